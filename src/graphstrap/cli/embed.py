"""graphstrap embed: vectors out, for the run's own graph or for new tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphstrap.cli import _options as o
from graphstrap.errors import InputError
from graphstrap.estimator import BGRL
from graphstrap.io.export import check_embeddings_path, write_embeddings
from graphstrap.run import Run
from graphstrap.source import Source


def embed(
    folder: o.RunFolder,
    to: Annotated[Path, typer.Option(help="Where to write: .parquet, .csv, .npy, .safetensors or .faiss.")],
    edges: o.Edges = None,
    nodes: o.Nodes = None,
    ignore_unknown_nodes: o.IgnoreUnknownNodes = False,
    ignore_columns: o.IgnoreColumns = None,
    device: o.Device = "auto",
    quiet: o.Quiet = False,
) -> None:
    """Write ids and vectors. With --edges and --nodes: of new nodes or of a new graph, without retraining.

    New edges may name nodes of the run's own graph: then the new nodes are embedded within it.
    """
    check_embeddings_path(to)
    run = Run.open(folder)
    model = BGRL.load(folder, device=device)
    if edges is None:
        if nodes is not None:
            raise InputError("--nodes needs --edges: give the edges of the new nodes")
        graph, wanted = o.load_graph_of(run, quiet=quiet), None
    else:
        graph, wanted = Source.from_dict(run.info["source"]).load_new(
            edges,
            nodes,
            ignore_unknown_nodes=ignore_unknown_nodes,
            ignore_columns=o.names(ignore_columns) or (),
        )
    h = model.embed(graph)
    ids = graph.external_ids
    if wanted is not None:
        h, ids = h[wanted], ids[wanted]
    write_embeddings(to, ids, h)
    print(f"{to}: {len(ids):,} nodes, {h.shape[1]} columns")
