"""What the map can be coloured by, and shows of a node: label, cluster, degree, and every column that the user gave.

A column is one of numbers (float32, NaN where there is none) or of categories (a number for each node, -1 for none).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphstrap.graph import Graph
from graphstrap.report.nearest import unit_rows
from graphstrap.sparse import SparseMatrix

Array = np.ndarray[Any, Any]

MAX_FEATURE_COLUMNS, MAX_FEATURE_CELLS = 16, 1_000_000
MAX_CATEGORIES = 1000
NUM_TRAITS = 8
NUM_CLUSTERS = 12
_CLUSTER_SAMPLE = 5_000
_WHOLE_BELOW = 2**24  # float32 has every whole number; fractions are shown by a few digits anyway
_LEADING_ZERO = re.compile(r"\s*[+-]?0\d")


@dataclass(frozen=True, eq=False)
class Column:
    """`names` of the categories; None for a column of numbers."""

    title: str
    values: Array  # (N,) float32, or int32 codes
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Traits:
    """For sparse features: up to NUM_TRAITS of the columns that a node has, the rarest first, -1 for no more."""

    names: tuple[str, ...]
    columns: Array  # (N, NUM_TRAITS) int32


def graph_columns(graph: Graph) -> list[Column]:
    """Labels, types, splits, degree, times and dense features, as far as the graph has them."""
    columns = []
    if graph.labels is not None and graph.labels.dim() == 1:
        names = graph.class_names or tuple(str(number) for number in range(graph.num_classes))
        columns.append(Column("label", graph.labels.numpy().astype(np.int32), names))
    if len(graph.node_types) > 1:
        sizes = np.diff(graph.type_offsets)
        columns.append(Column("type", np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), graph.node_types))
    if graph.splits is not None:
        columns.append(_split_column(graph))
    columns.append(Column("degree", graph.in_degrees.numpy().astype(np.float32)))
    if graph.node_times is not None:
        columns.append(Column("time", graph.node_times.numpy().astype(np.float32)))
    return columns + _feature_columns(graph)


def cluster_column(h: Array, *, num_clusters: int, seed: int = 0) -> Column:
    """k-means of unit rows, fitted on a sample; clusters numbered from the largest."""
    from sklearn.cluster import KMeans

    unit = unit_rows(h).numpy()
    num_clusters = min(num_clusters, len(np.unique(unit[:1000], axis=0)))
    sample = np.random.default_rng(seed).permutation(len(unit))[:_CLUSTER_SAMPLE]
    codes = KMeans(num_clusters, n_init=1, random_state=seed).fit(unit[sample]).predict(unit)
    order = np.argsort(-np.bincount(codes, minlength=num_clusters), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(num_clusters)
    names = tuple(f"cluster {number + 1}" for number in range(num_clusters))
    return Column("cluster", place[codes].astype(np.int32), names)


def text_column(title: str, texts: Array) -> Column:
    """Numbers where all cells are numbers, else the `MAX_CATEGORIES` most frequent texts; others are none."""
    numbers = _as_numbers(texts)
    if numbers is not None:
        return Column(title, numbers)
    names, codes, counts = np.unique(texts, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    order = order[names[order] != ""][:MAX_CATEGORIES]
    place = np.full(len(names), -1, dtype=np.int32)
    place[order] = np.arange(len(order))
    return Column(title, place[codes.reshape(-1)], tuple(names[order].tolist()))


def _as_numbers(texts: Array) -> Array | None:
    """float32, NaN for an empty cell; None where cells are no numbers, or would not be shown as they are: telephone
    numbers, keys and times have leading zeros, or more digits than float32."""
    filled = texts[texts != ""]
    if not len(filled) or any(_LEADING_ZERO.match(text) for text in filled.tolist()):
        return None
    try:
        wanted = np.where(texts == "", "nan", texts).astype(np.float64)
    except ValueError:
        return None
    size = np.abs(wanted[texts != ""])
    if not bool((size <= np.finfo(np.float32).max).all()):  # nor is a cell that says nan
        return None
    numbers = wanted.astype(np.float32)
    is_kept = (numbers[texts != ""] == wanted[texts != ""]) | (size < _WHOLE_BELOW)
    return numbers if bool(is_kept.all()) else None


def traits(graph: Graph) -> Traits | None:
    """The rarest features of each node, where features are sparse and have names."""
    block = graph.features[0]
    if len(graph.features) != 1 or not isinstance(block, SparseMatrix) or graph.feature_names is None:
        return None
    counts = torch.bincount(block.indices, minlength=block.num_columns)
    rarity = counts[block.indices.long()]
    order = np.lexsort((block.indices.numpy(), rarity.numpy(), block.rows.numpy()))
    indptr = block.indptr.numpy()
    found = np.full((graph.num_nodes, NUM_TRAITS), -1, dtype=np.int32)
    rank = np.arange(len(order)) - np.repeat(indptr[:-1], np.diff(indptr))
    kept = rank < NUM_TRAITS
    found[block.rows.numpy()[kept], rank[kept]] = block.indices.numpy()[order][kept]
    return Traits(graph.feature_names, found)


def _split_column(graph: Graph) -> Column:
    assert graph.splits is not None
    codes = np.full(graph.num_nodes, -1, dtype=np.int32)
    for code, mask in enumerate((graph.splits.train, graph.splits.val, graph.splits.test)):
        if mask.shape[1]:
            codes[mask[:, 0].numpy().astype(bool)] = code
    return Column("split", codes, ("train", "val", "test"))


def _feature_columns(graph: Graph) -> list[Column]:
    """The first dense feature columns of a graph with one node type."""
    block = graph.features[0]
    if len(graph.features) != 1 or not isinstance(block, torch.Tensor):
        return []
    num_shown = max(4, min(MAX_FEATURE_COLUMNS, MAX_FEATURE_CELLS // max(1, graph.num_nodes)))
    names: Sequence[str] = graph.feature_names or [f"feature {number}" for number in range(block.shape[1])]
    values = block[:, :num_shown].float().numpy()
    return [Column(name, column) for name, column in zip(names, values.T, strict=False)]
