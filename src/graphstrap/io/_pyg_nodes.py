"""The node side of the PyTorch Geometric bridge: features, labels, splits, times and ids of each node type."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.blocks import Block, Features, as_features
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io._splits import splits_from_masks
from graphstrap.sparse import SparseMatrix

PARTS = ("train", "val", "test")


def node_fields(nodes: dict[str, Any], counts: list[int]) -> dict[str, Any]:
    """The fields of Graph that belong to nodes, gathered over all node types."""
    masks = {part: _gather_masks(nodes, counts, f"{part}_mask") for part in PARTS}
    return {
        "features": tuple(_features(store) for store in nodes.values()),
        "labels": _gather_labels(nodes, counts),
        "splits": splits_from_masks(*masks.values(), num_nodes=sum(counts)),
        "node_times": _gather_all(nodes, "time"),
        "ids": _gather_ids(nodes),
    }


def write_nodes(store: Any, graph: Graph, number: int, *, dense: bool) -> None:
    """Set x, y, masks, time and ids of the nodes of one type."""
    begin, end = graph.type_offsets[number], graph.type_offsets[number + 1]
    store.num_nodes = end - begin
    block = graph.features[number]
    if block is not None:
        store.x = _to_torch(block, dense)
    if graph.labels is not None and _belongs(graph.labels, begin, end):
        store.y = graph.labels[begin:end]
    if graph.splits is not None:
        everywhere = torch.cat([getattr(graph.splits, part) for part in PARTS], dim=1)
        if _belongs(everywhere, begin, end):
            for part in PARTS:
                mask = getattr(graph.splits, part)[begin:end]
                setattr(store, f"{part}_mask", mask[:, 0] if graph.splits.num_splits == 1 else mask)
    if graph.node_times is not None:
        store.time = graph.node_times[begin:end]
    if graph.ids is not None:
        store.ids = graph.ids[begin:end]


def _belongs(values: Tensor, begin: int, end: int) -> bool:
    """Whether these nodes have labels or splits at all, or no node has: then every type keeps its empty ones."""
    nothing = -1 if values.dim() == 1 else 0
    return bool((values[begin:end] != nothing).any()) or not bool((values != nothing).any())


def _to_torch(block: Block, dense: bool) -> Tensor:
    if isinstance(block, Tensor):
        return block
    if dense or not isinstance(block, SparseMatrix):
        return block.to_dense()
    places = torch.stack([block.rows, block.indices.long()])
    return torch.sparse_coo_tensor(places, block.values, block.shape, is_coalesced=True, check_invariants=True)


def _features(store: Any) -> Features | None:
    x = getattr(store, "x", None)
    if x is None:
        return None
    if hasattr(x, "to_scipy"):  # torch_sparse.SparseTensor
        return as_features(x.to_scipy(layout="csr"))
    if x.layout == torch.strided:
        return as_features(x.detach().cpu().reshape(len(x), -1))
    from scipy.sparse import csr_matrix

    entries = (x if x.layout == torch.sparse_coo else x.to_sparse_coo()).detach().cpu().coalesce()
    rows, columns = entries.indices().numpy()
    return as_features(csr_matrix((entries.values().numpy(), (rows, columns)), shape=tuple(x.shape)))


def _gather_labels(nodes: dict[str, Any], counts: list[int]) -> Tensor | None:
    """(N,) with -1 where a type has no labels, or (N, C) with zeros there."""
    given = [_labels(kind, store, count) for (kind, store), count in zip(nodes.items(), counts, strict=True)]
    found = [labels for labels in given if labels is not None]
    if not found:
        return None
    if len({labels.shape[1:] for labels in found}) > 1:
        raise InputError("y has different shapes in different node types: give all the same number of columns")
    nothing = -1 if found[0].dim() == 1 else 0
    blanks = [found[0].new_full((count, *found[0].shape[1:]), nothing) for count in counts]
    return torch.cat([blank if labels is None else labels for labels, blank in zip(given, blanks, strict=True)])


def _labels(node_type: str, store: Any, count: int) -> Tensor | None:
    y = getattr(store, "y", None)
    if y is None:
        return None
    y = y.detach().cpu()
    if y.dim() not in (1, 2) or len(y) != count:
        raise InputError(
            f"y of {node_type!r} has shape {tuple(y.shape)}, expected one row for each of the {count} nodes"
        )
    if y.dim() == 2 and y.shape[1] == 1 and y.dtype != torch.uint8:
        y = y[:, 0]
    y = torch.nan_to_num(y, nan=-1.0) if y.is_floating_point() else y
    if bool((y != y.long()).any()):
        raise InputError(f"y of {node_type!r} holds decimals: labels are whole numbers, with -1 for none")
    if y.dim() == 2 and bool(((y != 0) & (y != 1)).any()):
        raise InputError(f"y of {node_type!r} has several columns, so every entry must be 0 or 1")
    return y.to(torch.int64 if y.dim() == 1 else torch.uint8)


def _gather_masks(nodes: dict[str, Any], counts: list[int], key: str) -> Tensor | None:
    """(N, S), false where a type has no such mask."""
    given = [getattr(store, key, None) for store in nodes.values()]
    widths = {mask.reshape(len(mask), -1).shape[1] for mask in given if mask is not None}
    if not widths:
        return None
    if len(widths) > 1:
        raise InputError(f"{key} has different numbers of splits in different node types: give all the same number")
    blanks = [torch.zeros(count, widths.copy().pop(), dtype=torch.bool) for count in counts]
    parts = [blank if mask is None else mask.cpu().bool() for mask, blank in zip(given, blanks, strict=True)]
    return torch.cat([part.reshape(len(part), -1) for part in parts])


def _gather_all(nodes: dict[str, Any], key: str) -> Tensor | None:
    """A tensor that all node types have, or none."""
    given = [getattr(store, key, None) for store in nodes.values()]
    found = [value.cpu().reshape(-1) for value in given if value is not None]
    if found and len(found) < len(given):
        raise InputError(f"some node types have the attribute {key} and some do not: give it to all types or to none")
    return torch.cat(found) if found else None


def _gather_ids(nodes: dict[str, Any]) -> np.ndarray[Any, Any] | None:
    given = [getattr(store, "ids", None) for store in nodes.values()]
    found = [np.asarray(ids) for ids in given if ids is not None]
    if found and len(found) < len(given):
        raise InputError("some node types have ids and some have none: give ids to all types or to none")
    return np.concatenate(found) if found else None
