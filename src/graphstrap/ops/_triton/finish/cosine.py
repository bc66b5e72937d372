# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""The cosine of rows, fused:  c = q.t / (|q| |t|),  dq = g (t / |t| - c q / |q|) / |q|; lengths are at least 1e-8."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphstrap.ops._triton.finish.tiles import by_rows, empty, run_planned
from graphstrap.ops._triton.launch import IS_AVAILABLE

if IS_AVAILABLE:
    import triton
    import triton.language as tl

    from graphstrap.ops._triton.finish.tiles import own_columns, own_rows, own_tile, read

    @triton.jit
    def _cosine_kernel(
        q,
        t,
        cosine,
        q_length,
        t_length,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside = own_columns(num_columns, block_columns)
        first, last = own_rows(num_rows, rows_per_program)
        for start in range(first, last, block_rows):
            rows, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            q_rows, t_rows = read(q, place, here), read(t, place, here)
            q_size = tl.maximum(tl.sqrt(tl.sum(q_rows * q_rows, axis=1)), 1e-8)
            t_size = tl.maximum(tl.sqrt(tl.sum(t_rows * t_rows, axis=1)), 1e-8)
            dot = tl.sum(q_rows * t_rows, axis=1)  # a NaN that the maximum swallows is here too
            value = tl.where(q_size > 1e-8, dot / (q_size * t_size), dot * 0.0)  # nearly zero: see the reference
            tl.store(cosine + rows, value, mask=rows < last)
            tl.store(q_length + rows, q_size, mask=rows < last)
            tl.store(t_length + rows, t_size, mask=rows < last)

    @triton.jit
    def _cosine_gradient_kernel(
        q,
        t,
        cosine,
        q_length,
        t_length,
        gradient,
        for_q,
        num_rows,
        num_columns,
        rows_per_program,
        gradient_stride,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside = own_columns(num_columns, block_columns)
        first, last = own_rows(num_rows, rows_per_program)
        for start in range(first, last, block_rows):
            rows, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            inside_rows = rows < last
            g = read(gradient, rows.to(tl.int64) * gradient_stride, inside_rows)
            q_size = tl.load(q_length + rows, mask=inside_rows, other=1.0)
            t_size = tl.load(t_length + rows, mask=inside_rows, other=1.0)
            of_t = tl.where(q_size > 1e-8, g / (q_size * t_size), 0.0)  # a row of zeros: see the reference
            of_q = -g * read(cosine, rows, inside_rows) / (q_size * q_size)
            dq = of_t[:, None] * read(t, place, here) + of_q[:, None] * read(q, place, here)
            tl.store(for_q + place, dq, mask=here)


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """(N,) float32 cosine of each row of q with the same row of t. Gradient flows to q alone."""
    result: Tensor = _RowCosine.apply(q, t)  # type: ignore[no-untyped-call]
    return result


class _RowCosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, t: Tensor) -> Tensor:
        q, t = q.contiguous(), t.contiguous()
        cosine, q_length, t_length = (empty(q, len(q)) for _ in range(3))
        run_planned(_cosine_kernel, by_rows(q), q, t, cosine, q_length, t_length)
        ctx.save_for_backward(q, t, cosine, q_length, t_length)
        return cosine

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        q = ctx.saved_tensors[0]
        for_q = torch.empty_like(q)
        stride = gradient.stride(0)  # 0 under a sum
        run_planned(_cosine_gradient_kernel, by_rows(q), *ctx.saved_tensors, gradient, for_q, gradient_stride=stride)
        return for_q, None
