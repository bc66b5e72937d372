"""Whether the arrays of a graph make a graph: every number in its range, in steps that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.quantised import QuantisedMatrix
from graphstrap.sparse import SparseMatrix

_STEP = 1 << 22


def check_structure(graph: Graph) -> None:
    """Raise a ValueError that says what is wrong."""
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    out = graph.transpose
    for name, indptr, indices in (("in", graph.indptr, graph.indices), ("out", out.indptr, out.indices)):
        check_rows(f"indptr of {name}-edges", indptr, num_edges)
        check_range(f"ends of {name}-edges", indices, num_nodes)
        check_sorted(f"ends of {name}-edges", indptr, indices)
    check_range("positions of the transpose", out.edge_positions, num_edges)
    _check_transpose(graph)
    if graph.edge_types is not None and graph.edge_type_names:
        check_range("edge types", graph.edge_types, len(graph.edge_type_names))
    check_values(graph)


def check_values(graph: Graph) -> None:
    """The same for labels and features alone."""
    if graph.labels is not None and graph.labels.dim() == 1 and graph.class_names is not None:
        check_range("labels", graph.labels, len(graph.class_names), low=-1)
    for block in graph.features:
        if isinstance(block, SparseMatrix):
            check_rows("sparse features' indptr", block.indptr, len(block.values))
            check_range("columns of sparse features", block.indices, block.num_columns)
            if len(block.indices) != len(block.values):
                raise ValueError("sparse features have as many columns as values")
            for begin, end in _steps(len(block.values)):
                _check_finite(block.values[begin:end])
        elif isinstance(block, QuantisedMatrix):
            _check_finite(block.values)
        elif isinstance(block, Tensor):
            for begin, end in _steps(len(block), max(1, _STEP // max(1, block.shape[1]))):
                _check_finite(block[begin:end])


def _steps(count: int, step: int = _STEP) -> Iterator[tuple[int, int]]:
    for begin in range(0, count, step):
        yield begin, min(count, begin + step)


def check_rows(name: str, indptr: Tensor, count: int) -> None:
    if int(indptr[0]) != 0 or int(indptr[-1]) != count:
        raise ValueError(f"{name} does not run from 0 to {count}")
    for begin, end in _steps(len(indptr) - 1):
        if bool((indptr[begin : end + 1].diff() < 0).any()):
            raise ValueError(f"{name} falls")


def check_range(name: str, values: Tensor, below: int, *, low: int = 0) -> None:
    for begin, end in _steps(len(values)):
        part = values[begin:end]
        if int(part.min()) < low or int(part.max()) >= below:
            raise ValueError(f"{name} are not all from {low} to {below - 1}")


def check_sorted(name: str, indptr: Tensor, indices: Tensor, *, strictly: bool = False) -> None:
    """Within a row, numbers never fall: where one does, a row must begin."""
    for begin, end in _steps(len(indices) - 1):
        falls = begin + 1 + (indices[begin : end + 1].diff() < int(strictly)).nonzero()[:, 0]
        places = torch.searchsorted(indptr, falls)
        if len(falls) and bool((indptr[places] != falls).any()):
            raise ValueError(f"{name} are not sorted within their rows")


def _check_transpose(graph: Graph) -> None:
    """Every edge of the transpose stands where it says it does, and no two say the same."""
    out = graph.transpose
    check_sorted("positions of the transpose", out.indptr, out.edge_positions, strictly=True)
    for begin, end in _steps(graph.num_edges):
        positions = out.edge_positions[begin:end]
        sources = torch.searchsorted(out.indptr, torch.arange(begin, end), right=True) - 1
        targets = torch.searchsorted(graph.indptr, positions, right=True) - 1
        if bool((graph.indices[positions] != sources).any()) or bool((targets != out.indices[begin:end]).any()):
            raise ValueError("the transpose does not name the edges of the graph")


def _check_finite(values: Tensor) -> None:
    if not bool(values.isfinite().all()):
        raise ValueError("a feature is NaN or infinite")
