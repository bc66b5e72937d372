"""Products with a view's adjacency and features, and dense ones by cuBLAS, each with its gradient.

What a view keeps of a graph becomes matrices ready for the product, once for each view and graph: every layer, network
and pass shares them.

Sparse features are cut in two, their frequent ("hot") columns as a dense table:  X W = X_hot W[hot] + X_cold W. How
often words occur is a power law: on Coauthor CS a seventh of the columns hold two thirds of the entries. An entry of a
sparse product gathers a whole row of W; a column of a dense product costs N multiplications for each column of W, at
the rate of the matrix units. A column that more than `HOT_FROM` of the rows have is cheaper in the dense one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.ops._csr.products import best_form
from graphstrap.ops._torch import (
    aligned_threshold,
    apply,
    feature_stream,
    global_rows,
    missing_degrees,
    pair_ids,
    product_dtype,
)
from graphstrap.ops._triton.chunks import ChunkedMatrix, Chunks, compact, select_rows
from graphstrap.ops._triton.launch import may_round_to_tf32
from graphstrap.ops._triton.masks import degree_scale, keep_bytes, mask_elements, mask_rows
from graphstrap.ops.once import once

HOT_FROM = 0.02  # of the rows: the best of 0.005, 0.01 and 0.02 on an H200 (docs/LOG.md)
_MULTIPLE = 64  # of columns: what the matrix units like

Pair = tuple[ChunkedMatrix, ChunkedMatrix]


def propagate(graph: Graph, view: View, tables: Sequence[Tensor], norm: str) -> Sequence[Tensor]:
    """A_hat h of every table in one pass over the edges; see `graphstrap.ops.propagate`."""
    if tables[0].dtype != tables[-1].dtype:
        return [_times(adjacency(graph, view, norm), h)[0] for h in tables]
    return _times(adjacency(graph, view, norm), *tables)


def project(graph: Graph, view: View, weights: Sequence[Tensor], block: int) -> Sequence[Tensor]:
    """(X o mask) W of every weight, in one pass over sparse features; see `graphstrap.ops.project`."""
    features = best_form(graph, block, weights[0], aligned=True)
    if isinstance(features, SparseMatrix):
        dtype = product_dtype(weights[0])
        if not view.spec.mask_elements and _has_fast_products(dtype):
            split, kept = hot_columns(features, dtype), column_mask(graph, view, block)
            cold = masked_features(graph, view, block, split.cold)
            return _times(cold, *weights, dtype=dtype, split=split, kept=kept)
        return _times(masked_features(graph, view, block, features), *weights, dtype=dtype)
    if view.spec.mask_elements:
        features, columns = masked_table(graph, view, block, features), None
    else:
        columns = column_mask(graph, view, block)
    return [features @ masked_weight(weight, columns, features) for weight in weights]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + bias; see `graphstrap.ops.linear`."""
    dtype = product_dtype(weight)
    return apply(_Linear, x.to(dtype), weight.to(dtype), bias.to(dtype))


def _has_fast_products(dtype: torch.dtype) -> bool:
    """Whether dense products in this type run on the matrix units."""
    return dtype != torch.float32 or may_round_to_tf32()


def _times(matrices: Pair, *tables: Tensor, dtype: torch.dtype | None = None, **hot: Any) -> tuple[Tensor, ...]:
    """A matrix, given with its transpose, times one table or two; for `hot` see `_Product`."""
    options = dtype or tables[0].dtype, hot.get("split"), hot.get("kept")
    result: tuple[Tensor, ...] = _Product.apply(*matrices, *options, *tables)  # type: ignore[no-untyped-call]
    return result


def masked_weight(weight: Tensor, columns: Tensor | None, features: Tensor) -> Tensor:
    """m o W, in the features' type, with rows of zeros where the features have columns of zeros."""
    return apply(_MaskedWeight, weight, columns, features.shape[1], features.dtype)


@once
def masked_table(graph: Graph, view: View, block: int, table: Tensor) -> Tensor:
    """A dense block's features in the form that is given, of which the view drops single elements."""
    if not view.spec.masks_features:
        return table
    num_columns, rows = graph.num_features[block], global_rows(graph, block)
    threshold = aligned_threshold(view.spec.feature_mask_prob, torch.arange(num_columns, device=table.device))
    return mask_elements(table, rows, view.seed, threshold, num_columns=num_columns, stream=feature_stream(block))


@once
def column_mask(graph: Graph, view: View, block: int) -> Tensor | None:
    """(F,) one byte for each feature column: whether the view keeps it."""
    if not view.spec.masks_features:
        return None
    num_columns = graph.num_features[block]
    threshold = aligned_threshold(view.spec.feature_mask_prob, torch.arange(num_columns, device=graph.device))
    return keep_bytes(num_columns, view.seed, threshold, device=graph.device, stream=feature_stream(block))


@once
def adjacency(graph: Graph, view: View, norm: str) -> Pair:
    """The view's normalised adjacency and its transpose."""
    back = graph.transpose
    forward, backward = chunks_of(graph)
    kept = kept_edge_bytes(graph, view)
    by_target, by_source = norm != "sum", norm == "symmetric"
    scale = degree_scale(graph.indptr, kept, graph.edge_weights, symmetric=by_source) if by_target else None
    missing = missing_degrees(graph, view)
    if scale is not None and missing is not None:
        scale = (scale.pow(-2) + missing).rsqrt() if by_source else (scale.reciprocal() + missing).reciprocal()
    shared: dict[str, Any] = {"kept": kept, "weights": graph.edge_weights, "scale": scale, "loops": True}
    turned: dict[str, Any] = {"positions": back.edge_positions, "scale_row": by_source, "scale_column": by_target}
    return (
        compact(forward, graph.indices, scale_row=by_target, scale_column=by_source, **shared),
        compact(backward, back.indices, **turned, **shared),
    )


@once
def chunks_of(matrix: Graph | SparseMatrix) -> tuple[Chunks, Chunks]:
    """How the rows of a CSR matrix, perhaps a graph's, and of its transpose are cut."""
    return Chunks.of(matrix.indptr), Chunks.of(matrix.transpose.indptr)


def kept_edge_bytes(graph: Graph, view: View) -> Tensor | None:
    """(E,) one byte for each edge: whether the view keeps it; None where all stay."""
    if not view.spec.drops_edges:
        return None
    ids = pair_ids(graph) if view.spec.drop_directions_together else graph.edge_ids
    threshold = aligned_threshold(view.spec.edge_drop_prob, graph.edge_ids)
    return keep_bytes(graph.num_edges, view.seed, threshold, ids=ids, device=graph.device)


@once
def masked_features(graph: Graph, view: View, block: int, features: SparseMatrix) -> Pair:
    """The view's features, all or the cold ones, and their transpose."""
    (forward, backward), turned, values = chunks_of(features), features.transpose, features.values
    columns = None if view.spec.mask_elements else column_mask(graph, view, block)
    if columns is not None:
        return (
            compact(forward, features.indices, kept=columns, key="column", weights=values),
            select_rows(backward, turned.indices, turned.values, columns),
        )
    kept = None  # one byte for each entry
    if view.spec.masks_features:
        ids = global_rows(graph, block)[features.rows] * features.num_columns + features.indices
        threshold = aligned_threshold(view.spec.feature_mask_prob, features.indices)
        kept = keep_bytes(len(ids), view.seed, threshold, ids=ids, device=graph.device, stream=feature_stream(block))
    return (
        compact(forward, features.indices, kept=kept, weights=values),
        compact(backward, turned.indices, kept=kept, positions=features.transpose_order, weights=values),
    )


@dataclass(frozen=True, eq=False)
class HotColumns:
    hot: Tensor  # (K,) ascending
    table: Tensor  # (N, K)
    cold: SparseMatrix  # (N, F): the other entries, columns numbered as before


@once
def hot_columns(features: SparseMatrix, dtype: torch.dtype) -> HotColumns:
    """The features cut in two, the table in the product's type: of the most frequent columns, as many as pass the mark,
    rounded to a multiple."""
    counts = torch.bincount(features.indices, minlength=features.num_columns)
    wanted = int((counts > HOT_FROM * features.shape[0]).sum())
    rounded = min((wanted + _MULTIPLE // 2) // _MULTIPLE * _MULTIPLE, features.num_columns // _MULTIPLE * _MULTIPLE)
    most_frequent = torch.sort(counts, descending=True, stable=True).indices
    hot = torch.sort(most_frequent[:rounded]).values
    place = torch.full((features.num_columns,), -1, device=features.device)
    place[hot] = torch.arange(len(hot), device=features.device)
    places = place[features.indices]
    is_hot = places >= 0
    table = torch.zeros(features.shape[0], len(hot), dtype=dtype, device=features.device)
    table[features.rows[is_hot], places[is_hot]] = features.values[is_hot].to(dtype)
    before = torch.cat([is_hot.new_zeros(1, dtype=torch.int64), (~is_hot).cumsum(0)])  # cold entries before each
    indptr, indices, values = before[features.indptr], features.indices[~is_hot], features.values[~is_hot]
    return HotColumns(hot, table, SparseMatrix(indptr, indices, values, features.num_columns))


class _MaskedWeight(torch.autograd.Function):
    """The rows of a weight whose feature columns a view keeps; the gradient is masked alike."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, kept: Tensor | None, num_rows: int, dtype: torch.dtype) -> Tensor:
        ctx.kept, ctx.like = kept, weight
        return mask_rows(weight, kept, num_rows=num_rows, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return mask_rows(gradient, ctx.kept, num_rows=len(ctx.like), dtype=ctx.like.dtype), None, None, None


class _Linear(torch.autograd.Function):
    """x W + bias. The bias's gradient is a product with ones: a third of the time of PyTorch's sum over rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        ones = gradient.new_ones(1, len(gradient))
        return gradient @ weight.T, x.T @ gradient, (ones @ gradient).squeeze(0)


class _Product(torch.autograd.Function):
    """M H of every table H that is given, computed in `dtype`; the gradient with respect to H is M^T G, in H's type.

    With `split`, M is the cold columns of some features, and the hot ones are added: X_hot (m o H)[hot].
    """

    @staticmethod
    def forward(
        ctx: Any,
        matrix: ChunkedMatrix,
        transposed: ChunkedMatrix,
        dtype: torch.dtype,
        split: HotColumns | None,
        kept: Tensor | None,
        *tables: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.transposed, ctx.split, ctx.kept, ctx.dtype = transposed, split, kept, tables[0].dtype
        ctx.set_materialize_grads(False)
        outs = matrix.times(*(table.to(dtype) for table in tables))
        if split is not None:
            for out, table in zip(outs, tables, strict=True):
                rows = mask_rows(table, kept, rows=split.hot, num_rows=len(split.hot), dtype=dtype)
                out.addmm_(split.table, rows)
        wanted = ctx.needs_input_grad[5:]
        ctx.mark_non_differentiable(*(out for out, needed in zip(outs, wanted, strict=True) if not needed))
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        split, results = ctx.split, []
        for gradient in gradients:
            result: Any = None if gradient is None else ctx.transposed.times(gradient, dtype=ctx.dtype)[0]
            if split is not None and gradient is not None:  # the result is zero in the rows of hot columns
                kept = None if ctx.kept is None else ctx.kept[split.hot]
                rows = mask_rows(split.table.T @ gradient, kept, num_rows=len(split.hot), dtype=ctx.dtype)
                result.index_copy_(0, split.hot, rows)
            results.append(result)
        return (None, None, None, None, None, *results)
