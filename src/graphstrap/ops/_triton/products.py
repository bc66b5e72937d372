"""Products with a view's adjacency and features, and dense ones by cuBLAS, each with its gradient.

Float64 goes to the other backends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.ops import _csr
from graphstrap.ops._csr.products import best_form, product_dtype
from graphstrap.ops._triton.chunks import ChunkedMatrix
from graphstrap.ops._triton.launch import may_round_to_tf32
from graphstrap.ops._triton.masks import mask_rows
from graphstrap.ops._triton.views import Pair, adjacency, column_mask, masked_features, masked_table

# Sparse features, their frequent columns as a dense table:  X W = X_hot W[hot] + X_cold W.
#
# How often words occur is a power law: on Coauthor CS a seventh of the columns hold two thirds of the entries. An entry
# of a sparse product gathers a whole row of W; a column of a dense product costs N multiplications for each column of
# W, at the rate of the matrix units. A column that more than `HOT_FROM` of the rows have is cheaper in the dense one.


HOT_FROM = 0.02  # of the rows: the best of 0.005, 0.01 and 0.02 on an H200 (docs/LOG.md)
_MULTIPLE = 64  # of columns: what the matrix units like

_splits: WeakKeyDictionary[SparseMatrix, dict[torch.dtype, HotColumns]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class HotColumns:
    hot: Tensor  # (K,) ascending
    table: Tensor  # (N, K)
    cold: SparseMatrix  # (N, F): the other entries, columns numbered as before


def hot_columns(features: SparseMatrix, dtype: torch.dtype) -> HotColumns:
    """The features cut in two, the table in the product's type; worked out once."""
    by_dtype = _splits.setdefault(features, {})
    if dtype not in by_dtype:
        by_dtype[dtype] = _split(features, _choose(features), dtype)
    return by_dtype[dtype]


def _choose(features: SparseMatrix) -> Tensor:
    """The most frequent columns, as many as pass the mark, rounded to a multiple."""
    counts = torch.bincount(features.indices, minlength=features.num_columns)
    wanted = int((counts > HOT_FROM * features.shape[0]).sum())
    rounded = min((wanted + _MULTIPLE // 2) // _MULTIPLE * _MULTIPLE, features.num_columns // _MULTIPLE * _MULTIPLE)
    most_frequent = torch.sort(counts, descending=True, stable=True).indices
    return torch.sort(most_frequent[:rounded]).values


def _split(features: SparseMatrix, hot: Tensor, dtype: torch.dtype) -> HotColumns:
    place = torch.full((features.num_columns,), -1, device=features.device)
    place[hot] = torch.arange(len(hot), device=features.device)
    places = place[features.indices]
    is_hot = places >= 0
    table = torch.zeros(features.shape[0], len(hot), dtype=dtype, device=features.device)
    table[features.rows[is_hot], places[is_hot]] = features.values[is_hot].to(dtype)
    before = torch.cat([is_hot.new_zeros(1, dtype=torch.int64), (~is_hot).cumsum(0)])  # cold entries before each
    cold = SparseMatrix(
        before[features.indptr], features.indices[~is_hot], features.values[~is_hot], features.num_columns
    )
    return HotColumns(hot, table, cold)


def propagate(graph: Graph, view: View, h: Tensor, norm: str) -> Tensor:
    """A_hat h over the view's edges and self-loops; see `graphstrap.ops.propagate`."""
    if h.dtype == torch.float64:
        return _csr.propagate(graph, view, h, norm)
    return _times(adjacency(graph, view, norm), h)[0]


def propagate_both(graph: Graph, view: View, h: Tensor, t: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """A_hat h and A_hat t in one pass over the edges; see `graphstrap.ops.propagate_both`."""
    if h.dtype == torch.float64 or h.dtype != t.dtype:
        return propagate(graph, view, h, norm), propagate(graph, view, t, norm)
    first, second = _times(adjacency(graph, view, norm), h, t)
    return first, second


def project(graph: Graph, view: View, weight: Tensor, block: int) -> Tensor:
    """(X o mask) W for one feature block; see `graphstrap.ops.project`."""
    return _project(graph, view, [weight], block)[0]


def project_both(graph: Graph, view: View, weight: Tensor, other: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(X o mask) W for two weights, in one pass over sparse features; see `graphstrap.ops.project_both`."""
    first, second = _project(graph, view, [weight, other], block)
    return first, second


def _project(graph: Graph, view: View, weights: list[Tensor], block: int) -> Sequence[Tensor]:
    features = best_form(graph, block, weights[0], aligned=True)
    if weights[0].dtype == torch.float64:
        return [_csr.project(graph, view, weight, block) for weight in weights]
    if isinstance(features, SparseMatrix):
        dtype = product_dtype(weights[0])
        if not view.spec.mask_elements and _has_fast_products(dtype):
            return _split_product(graph, view, block, hot_columns(features, dtype), weights)
        return _times(masked_features(graph, view, block, features), *weights, dtype=dtype)
    if view.spec.mask_elements:
        features, columns = masked_table(graph, view, block, features), None
    else:
        columns = column_mask(graph, view, block)
    return [features @ masked_weight(weight, columns, features) for weight in weights]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + bias; see `graphstrap.ops.linear`."""
    dtype = product_dtype(weight)
    result: Tensor = _Linear.apply(x.to(dtype), weight.to(dtype), bias.to(dtype))  # type: ignore[no-untyped-call]
    return result


def _has_fast_products(dtype: torch.dtype) -> bool:
    """Whether dense products in this type run on the matrix units."""
    return dtype != torch.float32 or may_round_to_tf32()


def _split_product(
    graph: Graph, view: View, block: int, features: HotColumns, weights: list[Tensor]
) -> tuple[Tensor, ...]:
    """(X o mask) W: frequent columns as a dense product, the others as a sparse one."""
    pair, kept = masked_features(graph, view, block, features.cold), column_mask(graph, view, block)
    result: tuple[Tensor, ...] = _SplitProduct.apply(*pair, features, kept, *weights)  # type: ignore[no-untyped-call]
    return result


def _times(matrices: Pair, *tables: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
    result: tuple[Tensor, ...] = _Product.apply(*matrices, dtype or tables[0].dtype, *tables)  # type: ignore[no-untyped-call]
    return result


def masked_weight(weight: Tensor, columns: Tensor | None, features: Tensor) -> Tensor:
    """m o W, in the features' type, with rows of zeros where the features have columns of zeros."""
    result: Tensor = _MaskedWeight.apply(weight, columns, features.shape[1], features.dtype)  # type: ignore[no-untyped-call]
    return result


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
    """M H of every table H that is given, computed in `dtype`; the gradient with respect to H is M^T G, in H's type."""

    @staticmethod
    def forward(
        ctx: Any, matrix: ChunkedMatrix, transposed: ChunkedMatrix, dtype: torch.dtype, *tables: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.transposed, ctx.dtype = transposed, tables[0].dtype
        ctx.set_materialize_grads(False)
        outs = matrix.times(*(table.to(dtype) for table in tables))
        wanted = ctx.needs_input_grad[3:]
        ctx.mark_non_differentiable(*(out for out, needed in zip(outs, wanted, strict=True) if not needed))
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        times, dtype = ctx.transposed.times, ctx.dtype
        results = [None if gradient is None else times(gradient, dtype=dtype)[0] for gradient in gradients]
        return (None, None, None, *results)


class _SplitProduct(torch.autograd.Function):
    """X_hot (m o W)[hot] + X_cold (m o W) of every weight W, in the type of the dense table."""

    @staticmethod
    def forward(
        ctx: Any,
        cold: ChunkedMatrix,
        transposed: ChunkedMatrix,
        features: HotColumns,
        kept: Tensor | None,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.transposed, ctx.features, ctx.kept, ctx.dtype = transposed, features, kept, weights[0].dtype
        ctx.set_materialize_grads(False)
        hot, table = features.hot, features.table
        outs = cold.times(*(weight.to(table.dtype) for weight in weights))
        for out, weight in zip(outs, weights, strict=True):
            out.addmm_(table, mask_rows(weight, kept, rows=hot, num_rows=len(hot), dtype=table.dtype))
        wanted = ctx.needs_input_grad[4:]
        ctx.mark_non_differentiable(*(out for out, needed in zip(outs, wanted, strict=True) if not needed))
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        results = [None if gradient is None else _SplitProduct._turned(ctx, gradient) for gradient in gradients]
        return (None, None, None, None, *results)

    @staticmethod
    def _turned(ctx: Any, gradient: Tensor) -> Tensor:
        """m o X^T G."""
        hot, table = ctx.features.hot, ctx.features.table
        result: Tensor = ctx.transposed.times(gradient, dtype=ctx.dtype)[0]  # zero in the rows of hot columns
        kept = None if ctx.kept is None else ctx.kept[hot]
        hot_rows = mask_rows(table.T @ gradient, kept, num_rows=len(hot), dtype=ctx.dtype)
        return result.index_copy_(0, hot, hot_rows)
