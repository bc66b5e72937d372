"""WikiCS as its authors publish it: one data.json with features, labels, links and 20 splits.

Mernyei and Cangea, Wiki-CS: A Wikipedia-Based Benchmark for Graph Neural Networks, 2020.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.graph import splits_from_masks
from graphstrap.io.arrays import UNREADABLE
from graphstrap.io.files import check_readable, read_bytes

# PPI as GraphSAGE, DGL and PyG publish it: 24 graphs of protein interactions, in three parts of four files each.
#
# Zitnik and Leskovec, Predicting Multicellular Function through Multi-layer Tissue Networks, 2017.
#
# {train,valid,test}_graph.json      nodes and links, node-link format; ids are row numbers
# {train,valid,test}_feats.npy       (N, 50)
# {train,valid,test}_labels.npy      (N, 121) of 0 and 1
# {train,valid,test}_graph_id.npy    (N,) the graph that each node belongs to


Array = np.ndarray[Any, Any]
PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class _Part:
    features: Array
    labels: Array
    graph_ids: Array
    edges: Array  # (2, E)

    @property
    def num_nodes(self) -> int:
        return len(self.features)

    @property
    def graph_sizes(self) -> Array:
        """(G,) nodes of each graph; the nodes of a graph stand side by side."""
        return np.unique(self.graph_ids, return_counts=True)[1]


def read_ppi(folder: str | os.PathLike[str]) -> Graph:
    """All graphs as one, block by block: undirected, with several labels a node, split by graph.

    `folder` holds the files themselves, as PyG's `raw` folder does.

    Ids are "part-graph/node", such as "train-1/0". Files are never unpickled.
    """
    parts = [_read_part(Path(folder), part) for part in PARTS]
    sizes = [part.num_nodes for part in parts]
    offsets = np.cumsum([0, *sizes])
    edges = np.concatenate([part.edges + offset for part, offset in zip(parts, offsets[:-1], strict=True)], axis=1)
    member = np.repeat(np.arange(3), sizes)
    if len({part.features.shape[1:] + part.labels.shape[1:] for part in parts}) > 1:
        raise InputError(f"{folder}: train, valid and test have different numbers of features or labels")
    return Graph.from_edges(
        edges[0],
        edges[1],
        num_nodes=int(offsets[-1]),
        x=np.concatenate([part.features for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        splits=splits_from_masks(member == 0, member == 1, member == 2, num_nodes=int(offsets[-1])),
        graph_offsets=(0, *np.cumsum(np.concatenate([part.graph_sizes for part in parts])).tolist()),
        ids=np.concatenate([_ids(name, part.graph_ids) for name, part in zip(PARTS, parts, strict=True)]),
        name="ppi",
    )


def _read_part(folder: Path, part: str) -> _Part:
    features = _read_array(folder / f"{part}_feats.npy", dimensions=2)
    labels = _read_array(folder / f"{part}_labels.npy", dimensions=2)
    graph_ids = _read_array(folder / f"{part}_graph_id.npy", dimensions=1)
    if not len(features) == len(labels) == len(graph_ids):
        sizes = f"{len(features)}, {len(labels)} and {len(graph_ids)}"
        raise InputError(
            f"{folder}: {part}_feats, {part}_labels and {part}_graph_id have {sizes} rows, expected the same"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        features = features.astype(np.float32)
    if not np.isfinite(features).all() or not np.isin(labels, (0, 1)).all() or graph_ids.dtype.kind not in "iu":
        raise InputError(
            f"{folder}: {part} needs finite features, labels of 0 and 1, whole graph ids: download it again"
        )
    labels, graph_ids = labels.astype(np.uint8), graph_ids.astype(np.int64)
    edges = _read_links(folder / f"{part}_graph.json", len(features))
    edges = edges[:, graph_ids[edges[0]] == graph_ids[edges[1]]]
    order = np.argsort(graph_ids, kind="stable")  # which they are in, in the files that are published
    return _Part(features[order], labels[order], graph_ids[order], np.argsort(order)[edges])


def _read_array(path: Path, *, dimensions: int) -> Array:
    check_readable(path)
    try:
        with open(path, "rb") as file:
            array = np.load(file, allow_pickle=False)
    except UNREADABLE as error:
        raise InputError(f"{path} is not a readable array ({error}): download PPI again") from error
    if not isinstance(array, np.ndarray) or array.ndim != dimensions or array.dtype.kind not in "buif":
        raise InputError(f"{path} does not hold numbers in {dimensions} dimensions: download PPI again")
    return array


def _read_links(path: Path, num_nodes: int) -> Array:
    """(2, E) of row numbers."""
    try:
        links = json.loads(read_bytes(path))["links"]
        edges = np.array([[link["source"], link["target"]] for link in links], dtype=np.int64).reshape(-1, 2).T
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is not a graph in node-link format ({error!r}): download PPI again") from error
    if edges.size and not 0 <= edges.min() <= edges.max() < num_nodes:
        raise InputError(f"{path}: links name a node outside 0 to {num_nodes - 1}")
    return edges


def _ids(part: str, graph_ids: Array) -> Array:
    seen: Counter[int] = Counter()
    names = []
    for graph in graph_ids.tolist():
        names.append(f"{part}-{graph}/{seen[graph]}")
        seen[graph] += 1
    return np.array(names, dtype=np.str_)


KEYS = ("features", "labels", "links", "train_masks", "val_masks", "test_mask")


def read_wikics(path: str | os.PathLike[str]) -> Graph:
    """Read data.json, or the folder that holds it. Links become undirected; `stopping_masks` are not used."""
    path = Path(path) / "data.json" if Path(path).is_dir() else Path(path)
    data = _read_json(path)
    try:
        return _build(data)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path} does not hold a consistent WikiCS graph ({error}): download it again") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_bytes(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a readable JSON file ({error}): download data.json again") from error
    missing = [key for key in KEYS if not isinstance(data, dict) or key not in data]
    if missing:
        raise InputError(f"{path}: {missing[0]} is missing: WikiCS's data.json has it")
    found: dict[str, Any] = data
    return found


def _build(data: dict[str, Any]) -> Graph:
    labels = np.array(data["labels"], dtype=np.int64)
    targets = [np.array(row, dtype=np.int64).reshape(-1) for row in data["links"]]
    if len(targets) != len(labels):
        raise ValueError(f"links has {len(targets)} rows for {len(labels)} labels")
    source = np.repeat(np.arange(len(targets)), [len(row) for row in targets])
    train, val = (np.array(data[key], dtype=bool).T for key in ("train_masks", "val_masks"))
    return Graph.from_edges(
        source,
        np.concatenate([np.zeros(0, dtype=np.int64), *targets]),
        num_nodes=len(labels),
        x=_features(data["features"]),
        labels=labels,
        splits=splits_from_masks(train, val, np.array(data["test_mask"], dtype=bool), num_nodes=len(labels)),
        name="wikics",
    )


def _features(rows: Any) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        x = np.array(rows, dtype=np.float64).astype(np.float32)
    if not np.isfinite(x).all():
        raise ValueError("a feature is NaN, infinite or too large")
    return x
