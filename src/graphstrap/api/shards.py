"""Embeddings of a graph of any size as a folder of files, each with the ids of its rows.

    embeddings.json        what the folder holds: model, graph, how it was embedded, rows a file
    part-00000.parquet     or .npy with part-00000.ids.npy beside it
    part-00001.parquet     ...

A cut run goes on: finished files are kept, and so is the work of layer-wise inference, in a folder that is removed at
the end.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphstrap.api.embed import choose_way, embed, embed_part, prepare
from graphstrap.api.layerwise import embed_layers
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.export import ids_path, write_embeddings
from graphstrap.io.files import atomic_write, os_errors, read_text
from graphstrap.io.parts import Part
from graphstrap.nn.methods.instant import append_columns
from graphstrap.nn.model import Model
from graphstrap.train.parallel.workers import ALONE, Workers

ENDINGS = ("parquet", "npy")
_LIST_FILE, _WORK_FOLDER = "embeddings.json", ".layers"


def write_shards(
    model: Model,
    graph: Graph,
    folder: Path,
    *,
    device: torch.device,
    rows_per_shard: int,
    ending: str = "parquet",
    how: str = "auto",
    workers: Workers = ALONE,
) -> int:
    """Embed a graph into a folder; the number of columns. Several workers share the blocks of layer-wise inference, and
    the files; of a graph in parts, each writes the files of its own nodes."""
    if ending not in ENDINGS:
        raise InputError(f"shards are written as {' or '.join(ENDINGS)}, got {ending!r}")
    model.module.to(device)
    prepared = prepare(model, graph)
    if isinstance(prepared, Part):
        way = how
    else:
        if how == "auto":
            how = "layers" if workers.size > 1 else choose_way(model, prepared, device=device)
        if workers.size > 1 and how != "layers":
            raise InputError(f"several workers share layers, not --how {how}: give --how layers, or one worker")
        way = "sampled" if how == "sampled" else "exact"  # full or layers: the same numbers
    if workers.is_first:
        contents = {
            "graph": graph.fingerprint,
            "num_nodes": graph.num_nodes,
            "num_edges": graph.num_edges,
            "rows_per_shard": rows_per_shard,
            "ending": ending,
            "way": way,
            "weights": [float(tensor.double().sum()) for tensor in model.contents()[0].values()],
        }
        _claim(folder, contents)
    workers.wait()
    h: Any
    columns: Any = None  # to be appended here; `embed` and `embed_part` have done so themselves
    if isinstance(prepared, Part):  # all workers must make every layer, so a cut run makes them anew
        h = embed_part(model, prepared, workers=workers, how=how)
        ids = prepared.own_ids
        counts = np.bincount(prepared.part_of.numpy(), minlength=prepared.num_parts)
        before = int((-(-counts[: prepared.number] // rows_per_shard)).sum())
        numbers: Sequence[tuple[int, int]] = list(enumerate(range(0, len(h), rows_per_shard), before))
    else:
        if how == "layers":
            work, own = folder / _WORK_FOLDER, model.own_features
            h = embed_layers(model.method.frozen, prepared, device=device, folder=work, workers=workers)
            if own is not None:
                columns = embed_layers(own, prepared, device=device, folder=work / "own", workers=workers)
        else:
            h = embed(model, graph, device=device, how=how)
        ids = graph.external_ids
        numbers = workers.share(list(enumerate(range(0, graph.num_nodes, rows_per_shard))))
    width = 0
    for number, first in numbers:
        last = min(first + rows_per_shard, len(ids))
        rows = np.asarray(h[first:last])
        if columns is not None:
            beside, weight = torch.from_numpy(columns[first:last]), model.recipe.encoder.own_weight
            rows = append_columns(torch.from_numpy(rows), beside, weight=weight).numpy()
        width = rows.shape[1]
        path = folder / f"part-{number:05}.{ending}"
        if not path.exists() or (ending == "npy" and not ids_path(path).exists()):
            write_embeddings(path, ids[first:last], rows)
    workers.wait()
    if workers.is_first:
        shutil.rmtree(folder / _WORK_FOLDER, ignore_errors=True)
    return width


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Make the folder, or find in it what an earlier run of the same began."""
    listed = folder / _LIST_FILE
    if listed.exists():
        try:
            found = json.loads(read_text(listed))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{listed} is damaged ({error}): name a new folder for the embeddings") from error
        if found != wanted:
            raise InputError(f"{folder} holds embeddings of another model, graph, way or layout: name a new folder")
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} holds other files: name a new folder for the embeddings")
    with os_errors(f"{folder} cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(listed) as temporary:
        temporary.write_text(json.dumps(wanted) + "\n", encoding="utf-8")
