"""graphstrap embed: vectors out, for the run's own graph or for new tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Context, Option

from graphstrap.cli import _options as o
from graphstrap.errors import InputError


def embed(
    context: Context,
    folder: o.RunFolder,
    to: Annotated[
        Path,
        Option(help="Where to write: .parquet, .csv, .npy, .safetensors or .faiss; a folder with --rows-per-file."),
    ],
    edges: o.Edges = None,
    nodes: o.Nodes = None,
    ignore_unknown_nodes: o.IgnoreUnknownNodes = False,
    ignore_columns: o.IgnoreColumns = None,
    how: Annotated[
        str, Option(help="full, layers (each layer once, in blocks), sampled, or auto: by what fits into memory.")
    ] = "auto",
    rows_per_file: Annotated[
        int, Option(help="Write a folder of files with this many rows each; a cut run goes on.", min=0)
    ] = 0,
    file_format: Annotated[str, Option(help="Of the files in a folder: parquet or npy.")] = "parquet",
    device: o.Device = "auto",
    workers: o.NumWorkers = 1,
    quiet: o.Quiet = False,
) -> None:
    """Write ids and vectors. With --edges and --nodes: of new nodes or of a new graph, without retraining.

    New edges may name nodes of the run's own graph: then the new nodes are embedded within it, if it is a graph of one
    node type. For several types, give the tables of the whole graph: old nodes and edges, and the new ones.
    """
    from graphstrap.api.embed import WAYS
    from graphstrap.api.estimator import Embedder
    from graphstrap.api.shards import write_shards
    from graphstrap.io.export import check_embeddings_path, write_embeddings
    from graphstrap.io.source import Source
    from graphstrap.ops import resolve_device
    from graphstrap.run.folder import Run
    from graphstrap.train.parallel.workers import is_worker, joined

    if how not in WAYS:
        raise InputError(f"--how must be one of {', '.join(WAYS)}, got {how!r}")
    if rows_per_file and edges is not None:
        raise InputError("--rows-per-file is for the run's own graph: leave it out with --edges")
    if not rows_per_file:
        if workers > 1 or is_worker():
            raise InputError("several workers write a folder of files: give --rows-per-file 1000000, or one worker")
        check_embeddings_path(to)
    o.launched(context, workers)
    o.check_one_run(folder)
    run, model = Run.open(folder), Embedder.load(folder, device=device)
    if edges is None and nodes is not None:
        raise InputError("--nodes needs --edges: give the edges of the new nodes")
    if rows_per_file:
        on = resolve_device(device)
        with joined(on) as several:
            graph = o.load_graph_of(run, quiet=quiet or not several.is_first, workers=several)
            options: dict[str, Any] = {"rows_per_shard": rows_per_file, "ending": file_format, "how": how}
            width = write_shards(model.model_, graph, to, device=on, workers=several, **options)
        if several.is_first:
            print(f"{to}: {graph.num_nodes:,} nodes, {width} columns, {rows_per_file:,} nodes a file")
        return
    wanted = None
    if edges is None:
        graph = o.load_graph_of(run, quiet=quiet)
    else:
        source, ignored = Source.from_dict(run.info["source"], run=folder), o.names(ignore_columns) or ()
        graph, wanted = source.load_new(edges, nodes, ignore_unknown_nodes=ignore_unknown_nodes, ignore_columns=ignored)
        if wanted is None and nodes is not None and len(model.model_.transform.sizes) == 1:
            o.note(
                "note: the node table has every node that its edges name, so this is embedded as a graph of its own; "
                "to embed new nodes within the run's graph, list the new ones alone",
                quiet=quiet,
            )
    h, ids = model.embed(graph, how=how), graph.external_ids
    if wanted is not None:
        o.note(
            f"note: {len(wanted):,} nodes are embedded within the run's graph, whose ids the new edges name; "
            "if they mean other nodes, give the new graph's whole node table",
            quiet=quiet,
        )
        h, ids = h[wanted], ids[wanted]
    write_embeddings(to, ids, h)
    print(f"{to}: {len(ids):,} nodes, {h.shape[1]} columns")
