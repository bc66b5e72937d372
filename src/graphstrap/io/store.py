"""A graph on disk, larger than memory: a folder of plain `.npy` arrays and `store.json`.

    write_store(graph, path)      from a graph in memory; `graphstrap prepare` writes one from tables that are larger
    open_store(path)              a Graph over read-only memory maps: milliseconds, shared by processes, nothing copied
    verify_store(path)            reads everything: checksums, and that the arrays make a graph

    indptr, indices                         incoming edges, as in Graph
    out_indptr, out_indices, out_positions  the transpose, with the places of its edges in `indices`
    features.T                              of node type T: float32, float16, bfloat16; uint8 with .scale and .offset;
                                            or .indptr, .indices and .values of a sparse matrix
    labels, train, val, test, node_times, ids, edge_types, edge_weights, edge_times, edge_columns

Any tool that reads NumPy files can read a store. Nothing in it is ever unpickled, and `store.json` names no files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import Block, QuantisedMatrix, ScaledMatrix, SparseMatrix
from graphstrap.graph.graph import Transpose
from graphstrap.io.store_format import build_store, check_sums, describe, edge_columns, is_store, read_info

__all__ = ["FEATURE_DTYPES", "is_store", "open_store", "verify_store", "write_store"]

# How dense features can be kept.
FEATURE_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "uint8": torch.uint8}


def write_store(
    graph: Graph, path: str | os.PathLike[str], *, feature_dtype: str | None = None, overwrite: bool = False
) -> None:
    """Write a graph as a store, as a whole or not at all.

    Args:
        graph: a whole graph; `open_store` gives the same one back.
        path: the folder to make.
        feature_dtype: fp32, fp16, bf16 or uint8 for dense features; None keeps them as they are.
        overwrite: replace a store that is there.
    """
    check_feature_dtype(feature_dtype)
    graph = graph.to("cpu")
    with build_store(path, overwrite=overwrite) as builder:
        builder.write("indptr", graph.indptr)
        for name, (column, dtype) in edge_columns(graph).items():
            builder.write(name, column, dtype=dtype)
        for name, column in zip(("out_indptr", "out_indices", "out_positions"), graph.transpose, strict=True):
            builder.write(name, column)
        builder.write_nodes(graph)
        blocks = tuple(_as_kept(block, feature_dtype) for block in graph.features)
        for t, block in enumerate(blocks):
            if block is not None:
                builder.write_block(f"features.{t}", block)
        builder.finish(describe(graph, blocks))


def _as_kept(block: Block | None, dtype: str | None) -> Block | None:
    if isinstance(block, ScaledMatrix):
        block = block.apply(block.raw)
    if not isinstance(block, Tensor) or dtype is None:
        return block
    return QuantisedMatrix.from_dense(block) if dtype == "uint8" else block.to(FEATURE_DTYPES[dtype])


def check_feature_dtype(name: str | None) -> None:
    if name is not None and name not in FEATURE_DTYPES:
        raise InputError(f"feature_dtype must be one of {', '.join(FEATURE_DTYPES)}, got {name!r}")


def open_store(path: str | os.PathLike[str]) -> Graph:
    """The graph of a store, memory-mapped. What looks wrong from outside is refused; `verify_store` looks inside.

    Args:
        path: the folder that `write_store` or `graphstrap prepare` made.

    Returns:
        The graph, without a copy of its arrays. Nothing may write to them.
    """
    info = read_info(path)
    info.check_sizes()
    out = Transpose(*(info.open_tensor(f"out_{name}") for name in ("indptr", "indices", "positions")))
    graph = info.open_graph(outgoing=out)
    info.check_ends(out.indptr)
    sizes = info.type_offsets, info.facts["graph_offsets"], info.blocks
    digest = hashlib.blake2b(repr(sizes).encode(), digest_size=16)
    for name, array in sorted(info.arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} {array.sha256}\n".encode())
    object.__setattr__(graph, "fingerprint", digest.hexdigest())  # reading everything for it would take minutes
    return graph


def verify_store(
    path: str | os.PathLike[str], *, progress: Callable[[int, int], None] = lambda done, total: None
) -> Graph:
    """Read a whole store: every checksum must be right, and every number must be in its range."""
    graph = open_store(path)
    check_sums([read_info(path)], progress)
    try:
        check_structure(graph)
    except ValueError as error:
        raise InputError(f"the store {path} does not hold a graph: {error}") from error
    return graph


# ---- whether arrays make a graph: every number in its range, in steps that fit into memory --------------------------

_STEP = 1 << 22


def check_structure(graph: Graph) -> None:
    """Raise a ValueError that says what is wrong."""
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    out = graph.transpose
    check_edges("in", graph.indptr, graph.indices, num_nodes)
    check_edges("out", out.indptr, out.indices, num_nodes)
    check_range("positions of the transpose", out.edge_positions, num_edges)
    _check_transpose(graph)
    if graph.edge_types is not None and graph.edge_type_names:
        check_range("edge types", graph.edge_types, len(graph.edge_type_names))
    check_values(graph)


def check_edges(direction: str, indptr: Tensor, indices: Tensor, num_nodes: int) -> None:
    check_rows(f"indptr of {direction}-edges", indptr, len(indices))
    check_range(f"ends of {direction}-edges", indices, num_nodes)
    check_sorted(f"ends of {direction}-edges", indptr, indices)


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
        values = block.values if isinstance(block, SparseMatrix | QuantisedMatrix) else block
        if isinstance(values, Tensor) and values.numel() and not all(end.isfinite() for end in values.aminmax()):
            raise ValueError("a feature is NaN or infinite")


def _steps(count: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, count, _STEP):
        yield begin, min(count, begin + _STEP)


def check_rows(name: str, indptr: Tensor, count: int) -> None:
    if int(indptr[0]) != 0 or int(indptr[-1]) != count:
        raise ValueError(f"{name} does not run from 0 to {count}")
    for begin, end in _steps(len(indptr) - 1):
        if bool((indptr[begin : end + 1].diff() < 0).any()):
            raise ValueError(f"{name} falls")


def check_range(name: str, values: Tensor, below: int, *, low: int = 0) -> None:
    if len(values) and not low <= int(values.min()) <= int(values.max()) < below:
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
