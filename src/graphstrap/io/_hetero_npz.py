"""Graphs of several node types in one .npz file: the keys carry the type they belong to.

    node_types, edge_types                names; an edge type is "source type|relation|target type"
    num_nodes:<type>                      nodes of a type are numbered from 0
    x_data:<type>, x_indices:<type>, ...  features of a type as CSR, or x:<type>, or absent
    edge_index:<edge type>                (2, E), one direction only
    label_type, y:<type>                  the type that has labels
    train_idx:<split>, val_idx:<split>, test_idx:<split>

In the graph there is one numbering, contiguous by type in the order of node_types, and each split is a column.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from graphstrap.blocks import Features, as_features
from graphstrap.graph import Graph, Splits
from graphstrap.io._archive import Archive, Array


def read_hetero(archive: Archive, directed: bool | None) -> Graph:
    node_types = archive.names("node_types") or ()
    counts = [archive.count(f"num_nodes:{node_type}") for node_type in node_types]
    offsets = (0, *accumulate(counts))
    first = dict(zip(node_types, offsets, strict=False))
    sizes = dict(zip(node_types, counts, strict=True))
    edge_types, edges, kinds = _edges(archive, first, sizes)
    return Graph.from_edges(
        edges[0],
        edges[1],
        num_nodes=offsets[-1],
        directed=bool(directed),
        edge_types=kinds,
        edge_type_names=edge_types,
        features=tuple(_features(archive, node_type, sizes[node_type]) for node_type in node_types),
        type_offsets=offsets,
        node_types=node_types,
        labels=_labels(archive, first, sizes),
        class_names=archive.names("class_names"),
        splits=_splits(archive, first, sizes),
        name=archive.path.stem,
    )


def _edges(archive: Archive, first: dict[str, int], sizes: dict[str, int]) -> tuple[tuple[str, ...], Array, Array]:
    """Edge type names, all edges in the common numbering (2, E), and the type of each."""
    names = archive.names("edge_types")
    if names is None:
        archive.refuse("edge_types", "is missing: the format needs this key")
    blocks = [_edge_block(archive, name, first, sizes) for name in names]
    kinds = [np.full(block.shape[1], number, dtype=np.int64) for number, block in enumerate(blocks)]
    empty = np.zeros((2, 0), dtype=np.int64)
    return names, np.concatenate([empty, *blocks], axis=1), np.concatenate([empty[0], *kinds])


def _edge_block(archive: Archive, name: str, first: dict[str, int], sizes: dict[str, int]) -> Array:
    parts = name.split("|")
    if len(parts) != 3 or parts[0] not in first or parts[2] not in first:
        archive.refuse("edge_types", f"holds {name!r}, expected source|relation|target with types from node_types")
    key = f"edge_index:{name}"
    block = archive.integers(key, dimensions=2)
    if len(block) != 2:
        archive.refuse(key, f"has shape {block.shape}, expected two rows: sources and targets")
    for row, node_type in zip(block, (parts[0], parts[2]), strict=True):
        if row.size and (row.min() < 0 or row.max() >= sizes[node_type]):
            archive.refuse(key, f"names a {node_type} outside 0 to {sizes[node_type] - 1}")
    shifted: Array = block + np.array([[first[parts[0]]], [first[parts[2]]]])
    return shifted


def _features(archive: Archive, node_type: str, count: int) -> Features | None:
    if f"x:{node_type}" in archive:
        block = as_features(archive.read(f"x:{node_type}", kinds="buif", dimensions=2))
    elif f"x_shape:{node_type}" in archive:
        block = as_features(archive.csr(f":{node_type}"))
    else:
        return None
    if block is not None and block.shape[0] != count:
        archive.refuse(f"x:{node_type}", f"has {block.shape[0]} rows for {count} nodes")
    return block


def _label_type(archive: Archive, first: dict[str, int]) -> str | None:
    if "label_type" not in archive:
        return None
    label_type = str(archive.read("label_type", kinds="U", dimensions=0))
    if label_type not in first:
        archive.refuse("label_type", f"is {label_type!r}, which is not among node_types")
    return label_type


def _labels(archive: Archive, first: dict[str, int], sizes: dict[str, int]) -> Tensor | None:
    """(N,) with -1 outside the type that has labels."""
    label_type = _label_type(archive, first)
    if label_type is None:
        return None
    given = archive.integers(f"y:{label_type}")
    if len(given) != sizes[label_type]:
        archive.refuse(f"y:{label_type}", f"has {len(given)} rows for {sizes[label_type]} nodes")
    if given.size and given.min() < -1:
        archive.refuse(f"y:{label_type}", f"holds {given.min()}: labels run from 0 up, with -1 for none")
    labels = torch.full((sum(sizes.values()),), -1, dtype=torch.int64)
    labels[first[label_type] : first[label_type] + len(given)] = torch.from_numpy(given)
    return labels


def _splits(archive: Archive, first: dict[str, int], sizes: dict[str, int]) -> Splits | None:
    """One column for each split name, in the order of the file."""
    label_type = _label_type(archive, first)
    parts = ("train", "val", "test")
    keys = [
        key.split("_idx:", 1) for key in archive.all_keys if key.startswith(tuple(f"{part}_idx:" for part in parts))
    ]
    names = list(dict.fromkeys(name for _, name in keys))
    if label_type is None or not names:
        return None
    masks = {part: torch.zeros(sum(sizes.values()), len(names), dtype=torch.bool) for part in parts}
    for part, name in keys:
        members = archive.indices(f"{part}_idx:{name}", below=sizes[label_type])
        masks[part][torch.from_numpy(members) + first[label_type], names.index(name)] = True
    return Splits(masks["train"], masks["val"], masks["test"])
