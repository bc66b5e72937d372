"""Sparse products with a view's adjacency and features; the backward pass is the same product with the transpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.ops._torch import (
    apply,
    global_rows,
    kept_columns,
    kept_edges,
    kept_elements,
    missing_degrees,
    product_dtype,
)
from graphstrap.ops.once import once


@dataclass(frozen=True, eq=False)
class Bag:
    """A CSR matrix in the form that `embedding_bag` is fastest with: 32-bit indices (five times, on CPU).

    `embedding_bag(indices, table, offsets, weights)` sums weighted rows of a table for each row of a CSR matrix: that
    is a sparse product, and on a CPU the fastest one in PyTorch. No E x D intermediate, no atomics.
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor

    @classmethod
    @once
    def of(cls, matrix: SparseMatrix) -> Bag:
        return cls(narrow(matrix.indptr, len(matrix.values)), matrix.indices, matrix.values)

    def times(self, table: Tensor) -> Tensor:
        return F.embedding_bag(
            self.indices.to(self.indptr.dtype),
            table.contiguous(),
            self.indptr,
            mode="sum",
            per_sample_weights=self.values.to(table.dtype),
            include_last_offset=True,
        )


def times(matrix: Bag, transposed: Bag, table: Tensor) -> Tensor:
    """M H; the gradient of H is M^T G."""
    return apply(_SparseProduct, table, matrix, transposed)


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, matrix: Bag, transposed: Bag) -> Tensor:
        ctx.transposed = transposed
        return matrix.times(h)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        transposed: Bag = ctx.transposed
        return transposed.times(gradient), None, None


def narrow(numbers: Tensor, limit: int) -> Tensor:
    """As 32-bit integers, where all are below the limit that makes this possible."""
    return numbers.int() if limit < 2**31 else numbers


# Above these densities the dense product wins: on CPU as measured (docs/LOG.md), on CUDA an estimate.
DENSE_FROM = {"cpu": 0.25, "cuda": 0.05}
ALIGNMENT = 16  # columns


def best_form(graph: Graph, block: int, weight: Tensor, *, aligned: bool = False) -> Tensor | SparseMatrix:
    """A block's features: sparse, or as a dense table in the product's type where that is faster.

    A table that is made for it gets columns of zeros up to a width that the matrix units like; with `aligned`, it is
    made for the sake of that width alone.
    """
    features = graph.features[block]
    if features is None:
        raise ValueError(f"node type {graph.node_types[block]!r} has no features to project")
    if isinstance(features, SparseMatrix) and features.density < DENSE_FROM[features.device.type]:
        return features
    dtype, width = product_dtype(weight), -(-int(features.shape[1]) // ALIGNMENT) * ALIGNMENT
    if isinstance(features, Tensor) and features.dtype == dtype and not (aligned and features.shape[1] != width):
        return features
    return _dense_form(graph, block, dtype, width)


@once
def _dense_form(graph: Graph, block: int, dtype: torch.dtype, width: int) -> Tensor:
    features = graph.features[block]
    assert features is not None
    if isinstance(features, SparseMatrix):
        return features.to_dense(dtype=dtype, num_columns=width)
    dense = features if isinstance(features, Tensor) else features.to_dense()
    return F.pad(dense.to(dtype), (0, width - features.shape[1]))


@dataclass(frozen=True, eq=False)
class Frame:
    """A graph's CSR with the self-loops written in, in one direction. An `edge` of E is a self-loop."""

    indptr: Tensor  # (N + 1,)
    rows: Tensor  # (E + N,) int32, as the others where they can be
    columns: Tensor  # (E + N,)
    edge: Tensor  # (E + N,) position in graph.indices


@once
def adjacency(graph: Graph, view: View, norm: str) -> tuple[Bag, Bag]:
    """The view's normalised adjacency and its transpose."""
    frames, kept = cut_frames(frames_of(graph), kept_edges(graph, view))
    weights = [_entry_weights(graph, frame, kept) for frame in frames]
    if norm != "sum":
        degree = torch.segment_reduce(weights[0], "sum", offsets=frames[0].indptr, unsafe=True)
        missing = missing_degrees(graph, view)
        if missing is not None:
            degree = degree + missing
        scale = degree.rsqrt() if norm == "symmetric" else degree.reciprocal()
        for frame, weight, target in zip(frames, weights, (frames[0].rows, frames[1].columns), strict=True):
            weight *= scale.index_select(0, target)
            if norm == "symmetric":
                weight *= scale.index_select(0, frame.columns if target is frame.rows else frame.rows)
    bags = [Bag(narrow(f.indptr, len(f.columns)), f.columns, w) for f, w in zip(frames, weights, strict=True)]
    return bags[0], bags[1]


@once
def frames_of(graph: Graph) -> tuple[Frame, Frame]:
    """The CSR of a graph and its transpose, with self-loops."""
    back, every_edge = graph.transpose, torch.arange(graph.num_edges, device=graph.device)
    forward = _with_loops(graph.indptr, graph.indices, every_edge)
    return forward, _with_loops(back.indptr, back.indices, back.edge_positions)


def cut_frames(frames: tuple[Frame, Frame], kept: Tensor | None) -> tuple[tuple[Frame, Frame], Tensor | None]:
    """Those of the kept edges; and `kept`, where both still hold every edge.

    On a CPU the dropped edges are cut out of the CSR first. On CUDA, where this serves only without Triton, they get
    weight 0, which keeps every shape static.
    """
    if kept is None:
        return frames, None
    kept = torch.cat([kept, kept.new_ones(1)])  # position E, where self-loops look, is always kept
    if kept.device.type == "cpu":
        return (_cut(frames[0], kept), _cut(frames[1], kept)), None
    return frames, kept


def _with_loops(indptr: Tensor, indices: Tensor, positions: Tensor) -> Frame:
    """Write a self-loop in front of every row."""
    num_nodes, num_edges = len(indptr) - 1, len(indices)
    nodes = torch.arange(num_nodes, device=indptr.device)
    rows = torch.repeat_interleave(nodes, indptr.diff())
    place = torch.arange(num_edges, device=indptr.device) + rows + 1
    columns = indices.new_empty(num_edges + num_nodes)
    edge = positions.new_full((num_edges + num_nodes,), num_edges)
    columns[indptr[:-1] + nodes] = nodes.to(indices.dtype)
    columns[place], edge[place] = indices, positions
    every_row = torch.repeat_interleave(nodes, indptr.diff() + 1)
    starts = indptr + torch.arange(num_nodes + 1, device=indptr.device)
    return Frame(starts, narrow(every_row, num_nodes), columns, narrow(edge, num_edges + 1))


def _cut(frame: Frame, kept: Tensor) -> Frame:
    """The frame without the dropped edges."""
    stays = kept.index_select(0, frame.edge)  # index_select: four times as fast as [] on a CPU
    chosen = torch.from_numpy(np.flatnonzero(stays.numpy()))  # five times as fast as PyTorch's
    before = torch.cat([frame.indptr.new_zeros(1), stays.cumsum(0)])  # entries kept before each place
    rows, columns, edge = (part.index_select(0, chosen) for part in (frame.rows, frame.columns, frame.edge))
    return Frame(before.index_select(0, frame.indptr), rows, columns, edge)


def _entry_weights(graph: Graph, frame: Frame, kept: Tensor | None) -> Tensor:
    """(entries,) 1 for a self-loop, the edge's weight for a kept edge, 0 for a dropped one."""
    if graph.edge_weights is None:
        weight = torch.ones(len(frame.edge), device=graph.device)
    else:
        weight = torch.cat([graph.edge_weights, graph.edge_weights.new_ones(1)]).index_select(0, frame.edge)
    return weight if kept is None else weight * kept.index_select(0, frame.edge)


def propagate(graph: Graph, view: View, tables: Sequence[Tensor], norm: str) -> list[Tensor]:
    """A_hat h of every table; see `graphstrap.ops.propagate`. A second pass costs no more than a wider one."""
    return [times(*adjacency(graph, view, norm), h) for h in tables]


def project(graph: Graph, view: View, weights: Sequence[Tensor], block: int) -> list[Tensor]:
    """(X o mask) W of every weight for one feature block; see `graphstrap.ops.project`."""
    num_columns, masks_elements = graph.num_features[block], view.spec.masks_features and view.spec.mask_elements
    columns = kept_columns(view, num_columns=num_columns, block=block, device=weights[0].device)
    if columns is not None:
        weights = [weight * columns[:, None] for weight in weights]  # (X o m) W = X (m o W)
    features = best_form(graph, block, weights[0])
    if isinstance(features, Tensor):
        if masks_elements:
            rows, every_column = global_rows(graph, block)[:, None], torch.arange(num_columns, device=features.device)
            kept = kept_elements(view, rows=rows, columns=every_column[None], num_columns=num_columns, block=block)
            assert kept is not None
            features = features[:, :num_columns] * kept
        room = (0, 0, 0, features.shape[1] - num_columns)
        return [features @ F.pad(weight, room).to(features.dtype) for weight in weights]
    forward, backward = Bag.of(features), Bag.of(features.transpose)
    if masks_elements:
        rows, every_column = global_rows(graph, block)[features.rows], features.indices.long()
        kept = kept_elements(view, rows=rows, columns=every_column, num_columns=num_columns, block=block)
        assert kept is not None
        forward = replace(forward, values=features.values * kept)
        backward = replace(backward, values=forward.values[features.transpose_order])
    return [times(forward, backward, weight.to(product_dtype(weight))) for weight in weights]
