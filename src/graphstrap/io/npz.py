"""Graphs in one .npz file: `read_npz` and `write_npz`. Files are never unpickled.

One graph has the keys

    edge_index                                   (2, E) node numbers: sources, then targets
    x, or x_data, x_indices, x_indptr, x_shape   features, dense or CSR
    y                                            (N,) with -1 for "none", or (N, C) of 0 and 1
    train_mask, val_mask, test_mask              (N,) or (N, splits)

and, where there are such things, num_nodes, class_names, feature_names, ids, node_time, edge_weight, edge_time,
edge_type, edge_type_names, edge_columns, edge_column_names, graph_offsets (the first node of each of several graphs,
then N). A true `clean_edges` says that edge_index lists every directed edge of a graph as it was.

A file with the key node_types holds several types of nodes, and its keys carry the type they belong to:

    node_types, edge_types                names; an edge type is "source type|relation|target type"
    num_nodes:<type>                      nodes of a type are numbered from 0
    x_data:<type>, x_indices:<type>, ...  features of a type as CSR, or x:<type>, or absent
    edge_index:<edge type>                (2, E), one direction only
    label_type, y:<type>                  the type that has labels
    train_idx:<split>, val_idx:<split>, test_idx:<split>

In the graph there is one numbering, contiguous by type in the order of node_types, and each split is a column.
"""

from __future__ import annotations

import os
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import Block, Features, SparseMatrix, dense
from graphstrap.graph.graph import SPLITS, as_features, splits_from_masks
from graphstrap.io.arrays import Archive, Array
from graphstrap.io.files import atomic_write

_SCIPY_KEYS = {"format", "shape", "data"}  # what scipy.sparse.save_npz writes, whatever the format


def read_npz(path: str | os.PathLike[str], *, directed: bool | None = None, binarize: bool = False) -> Graph:
    """Read a graph, of one node type or several.

    Args:
        path: the file.
        directed: False adds missing reverse edges, True does not. None: False, but for files that say they are clean.
        binarize: set every positive feature to 1, as the usual loaders do for some graphs.
    """
    with Archive(path) as archive, np.errstate(over="ignore", invalid="ignore"):  # infinite is refused where it matters
        _refuse_scipy(archive)
        read = _read_typed if "node_types" in archive else _read_homogeneous
        try:
            graph = read(archive, directed)
        except (ValueError, RuntimeError, MemoryError) as error:
            if isinstance(error, InputError) and str(error).startswith(f"{archive.path}: "):
                raise  # names the key already
            raise InputError(f"{archive.path} does not hold a consistent graph: {error}") from error
    return graph.with_features(*map(_binarized, graph.features)) if binarize else graph


def write_npz(path: str | os.PathLike[str], graph: Graph) -> None:
    """Write a graph of one node type, in one move; `read_npz` gives the same graph back."""
    if len(graph.node_types) != 1:
        raise InputError(f"write_npz writes graphs of one node type, and {graph.name} has {len(graph.node_types)}")
    arrays = _arrays(graph.to("cpu"))
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _refuse_scipy(archive: Archive) -> None:
    if set(archive.all_keys) >= _SCIPY_KEYS and "edge_index" not in archive:
        raise InputError(
            f"{archive.path} is a SciPy matrix, not a graph: read it with scipy.sparse.load_npz, make a graph of it "
            "with graphstrap.io.scipy.from_scipy, and write that with graphstrap.io.npz.write_npz"
        )


def _binarized(block: Block | None) -> Features | None:
    """Every positive value set to 1."""
    if isinstance(block, SparseMatrix):
        return block.with_values(torch.where(block.values > 0, 1.0, block.values))
    return None if block is None else torch.where((x := dense(block)) > 0, 1.0, x)


def _read_homogeneous(archive: Archive, directed: bool | None) -> Graph:
    x = _features(archive)
    num_nodes = _count_nodes(archive, x)
    edge_index = archive.indices("edge_index", below=num_nodes, dimensions=2)
    _check_two_rows(archive, "edge_index", edge_index)
    num_edges = edge_index.shape[1]
    is_clean = "clean_edges" in archive and bool(archive.read("clean_edges", kinds="b", dimensions=0))
    times = _optional(archive, "node_time", length=num_nodes)
    keys = [f"{name}_mask" for name in SPLITS]
    masks = [archive.read(key, kinds="bui", dimensions=(1, 2)) if key in archive else None for key in keys]
    graph = Graph.from_edges(
        *edge_index,
        num_nodes=num_nodes,
        directed=is_clean if directed is None else directed,
        self_loops="keep" if is_clean else "drop",
        duplicates="keep" if is_clean else "merge",
        x=x,
        labels=_labels(archive, "y", num_nodes, dimensions=(1, 2)) if "y" in archive else None,
        class_names=archive.names("class_names"),
        feature_names=archive.names("feature_names"),
        splits=splits_from_masks(*masks, num_nodes=num_nodes),
        edge_types=_optional(archive, "edge_type", length=num_edges, kinds="iu"),
        edge_type_names=archive.names("edge_type_names") or (),
        edge_weights=_optional(archive, "edge_weight", length=num_edges),
        edge_times=_optional(archive, "edge_time", length=num_edges),
        edge_columns=_optional(archive, "edge_columns", length=num_edges, dimensions=2),
        edge_column_names=archive.names("edge_column_names") or (),
        ids=_optional(archive, "ids", kinds="iuU", length=num_nodes),
        node_times=None if times is None else torch.from_numpy(times),
        graph_offsets=tuple(archive.integers("graph_offsets").tolist()) if "graph_offsets" in archive else (),
        name=archive.path.stem,
    )
    if graph.num_graphs > 1 and bool((graph.graph_ids[graph.indices.long()] != graph.graph_ids[graph.targets]).any()):
        archive.refuse("graph_offsets", "puts the two ends of an edge into different graphs")
    return graph


def _features(archive: Archive, suffix: str = "") -> Features | None:
    if f"x{suffix}" in archive:
        return as_features(archive.read(f"x{suffix}", kinds="buif", dimensions=2))
    is_sparse = f"x_shape{suffix}" in archive or f"x_data{suffix}" in archive
    return as_features(archive.csr(suffix)) if is_sparse else None


def _count_nodes(archive: Archive, x: Features | None) -> int:
    if "num_nodes" in archive:
        return archive.count("num_nodes")
    if x is not None:
        return int(x.shape[0])
    if "y" in archive:
        return len(archive.read("y", kinds="buif", dimensions=(1, 2)))
    return archive.refuse("num_nodes", "is missing: without x and y the number of nodes must be given")


def _check_two_rows(archive: Archive, key: str, edge_index: Array) -> None:
    if len(edge_index) != 2:
        archive.refuse(key, f"has shape {edge_index.shape}, expected two rows: sources and targets")


def _labels(archive: Archive, key: str, count: int, *, dimensions: int | tuple[int, ...] = 1) -> Array:
    """(N,) int64 with -1 for "none", or (N, C) uint8."""
    labels = archive.read(key, kinds="bui", dimensions=dimensions)
    if len(labels) != count:
        archive.refuse(key, f"has {len(labels)} rows for {count} nodes")
    if labels.ndim == 2:
        if labels.size and not (labels <= 1).all() & (labels >= 0).all():
            archive.refuse(key, "has several columns, so every entry must be 0 or 1")
        return labels.astype(np.uint8)
    if labels.size and labels.min() < -1:
        archive.refuse(key, f"holds {labels.min()}: labels run from 0 up, with -1 for none")
    return labels.astype(np.int64)


def _optional(archive: Archive, key: str, *, length: int, kinds: str = "uif", dimensions: int = 1) -> Array | None:
    if key not in archive:
        return None
    values = archive.read(key, kinds=kinds, dimensions=dimensions)
    if len(values) != length:
        archive.refuse(key, f"has {len(values)} rows, expected {length}")
    return values


def _read_typed(archive: Archive, directed: bool | None) -> Graph:
    node_types, edge_types = archive.names("node_types") or (), archive.names("edge_types")
    if edge_types is None:
        archive.refuse("edge_types", "is missing: the format needs this key")
    offsets = (0, *accumulate(archive.count(f"num_nodes:{node_type}") for node_type in node_types))
    nodes = dict(zip(node_types, pairwise(offsets), strict=True))
    blocks = [_typed_edges(archive, name, nodes) for name in edge_types]
    kinds = [np.full(block.shape[1], number) for number, block in enumerate(blocks)]
    empty = np.zeros((2, 0), dtype=np.int64)
    return Graph.from_edges(
        *np.concatenate([empty, *blocks], axis=1),
        num_nodes=offsets[-1],
        directed=bool(directed),
        edge_types=np.concatenate([empty[0], *kinds]),
        edge_type_names=edge_types,
        features=tuple(_features(archive, f":{node_type}") for node_type in node_types),
        type_offsets=offsets,
        node_types=node_types,
        class_names=archive.names("class_names"),
        **_typed_labels_and_splits(archive, nodes, offsets[-1]),
        name=archive.path.stem,
    )


def _typed_edges(archive: Archive, name: str, nodes: dict[str, tuple[int, int]]) -> Array:
    """(2, E) edges of one type in the common numbering, in which a node type has the numbers from first to last."""
    parts = name.split("|")
    if len(parts) != 3 or parts[0] not in nodes or parts[2] not in nodes:
        archive.refuse("edge_types", f"holds {name!r}, expected source|relation|target with types from node_types")
    key = f"edge_index:{name}"
    edge_index = archive.integers(key, dimensions=2)
    _check_two_rows(archive, key, edge_index)
    for row, node_type in zip(edge_index, (parts[0], parts[2]), strict=True):
        first, end = nodes[node_type]
        if row.size and (row.min() < 0 or row.max() >= end - first):
            archive.refuse(key, f"names a {node_type} outside 0 to {end - first - 1}")
        row += first
    return edge_index


def _typed_labels_and_splits(archive: Archive, nodes: dict[str, tuple[int, int]], num_nodes: int) -> dict[str, Any]:
    """Labels (N,), -1 outside the type that has them, and one column of each mask for each split, in file order."""
    if "label_type" not in archive:
        return {}
    label_type = str(archive.read("label_type", kinds="U", dimensions=0))
    if label_type not in nodes:
        archive.refuse("label_type", f"is {label_type!r}, which is not among node_types")
    first, end = nodes[label_type]
    labels = torch.full((num_nodes,), -1, dtype=torch.int64)
    labels[first:end] = torch.from_numpy(_labels(archive, f"y:{label_type}", end - first))
    pairs = (key.split("_idx:", 1) for key in archive.all_keys if "_idx:" in key)
    keys = [(kind, name) for kind, name in pairs if kind in SPLITS]
    names = list(dict.fromkeys(name for _, name in keys))
    if not names:
        return {"labels": labels}
    masks = {kind: torch.zeros(num_nodes, len(names), dtype=torch.bool) for kind in SPLITS}
    for kind, name in keys:
        members = archive.indices(f"{kind}_idx:{name}", below=end - first)
        masks[kind][torch.from_numpy(members) + first, names.index(name)] = True
    return {"labels": labels, "splits": Splits(**masks)}


def _arrays(graph: Graph) -> dict[str, Array]:
    """The keys of a file, for what the graph has."""
    tensors = {
        "edge_index": torch.stack([graph.indices.long(), graph.targets]).to(graph.indices.dtype),
        "y": graph.labels,
        "node_time": graph.node_times,
        "edge_weight": graph.edge_weights,
        "edge_time": graph.edge_times,
        "edge_type": graph.edge_types,
        "edge_columns": graph.edge_columns,
    }
    for name, mask in vars(graph.splits).items() if graph.splits is not None else ():
        tensors[f"{name}_mask"] = mask[:, 0] if mask.shape[1] == 1 else mask
    arrays = {key: tensor.numpy() for key, tensor in tensors.items() if tensor is not None}
    for key in ("class_names", "feature_names", "edge_type_names", "edge_column_names"):
        if names := getattr(graph, key):
            arrays[key] = np.array(names, dtype=np.str_)
    if graph.ids is not None:
        arrays["ids"] = graph.ids.astype(np.str_) if graph.ids.dtype.kind == "O" else graph.ids
    if graph.num_graphs > 1:
        arrays["graph_offsets"] = np.array(graph.graph_offsets)
    arrays |= {"num_nodes": np.array(graph.num_nodes), "clean_edges": np.array(True)}
    return arrays | _feature_arrays(graph.features[0])


def _feature_arrays(block: Block | None) -> dict[str, Array]:
    if block is None:
        return {}
    if not isinstance(block, SparseMatrix):
        return {"x": dense(block).numpy()}
    values, columns = block.values.numpy(), block.indices.numpy()
    are_bytes = values.size > 0 and 0 <= values.min() <= values.max() < 256 and (values == np.floor(values)).all()
    return {
        "x_data": values.astype(np.uint8) if are_bytes else values,
        "x_indices": columns.astype(np.uint16 if block.num_columns <= 2**16 else np.int32),
        "x_indptr": block.indptr.numpy(),
        "x_shape": np.array(block.shape, dtype=np.int64),
    }
