"""Layer norm and PReLU, bias and PReLU, and the cosine of rows, each as one epilogue.

With p(z) = z where z > 0, else a z; s(z) = 1 where z > 0, else a; g the gradient of y:

    layer norm  n = (x + c - mean) r over each row,  y = p(w n + b),  u = g s(w n + b),  v = w u
                dw = sum u n,  db = sum u,  dx = r (v - mean v - n mean (v n)) over each row,  dc = sum dx
    bias        y = p(x + b),  dx = g s(x + b),  db = sum dx
    both        da = sum of g z over every element with z <= 0, z being what p is applied to
    cosine      c = q.t / (|q| |t|),  dq = g (t / |t| - c q / |q|) / |q|; lengths are at least 1e-8

x is saved, and for layer norm a mean and a factor r for each row; n and z are made again. Float32 throughout, whatever
x is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphstrap.ops import _torch
from graphstrap.ops._triton.launch import IS_AVAILABLE
from graphstrap.ops._triton.tiles import add_parts, by_parts, by_tiles, empty, empty_parts, run_planned

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


def layer_norm_prelu(x: Tensor, norm: nn.LayerNorm, slope: Tensor, shift: Tensor) -> Tensor:
    """PReLU after layer norm of every row of x + shift."""
    return _torch.apply(_LayerNormPReLU, x, slope, shift, norm.weight, norm.bias, norm.eps)


def bias_prelu(x: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x + bias."""
    if not len(x):  # a graph without edges
        return _torch.bias_prelu(x, bias.to(x.dtype), slope)
    return _torch.apply(_BiasPReLU, x, slope, bias)


def linear_prelu(x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x W + bias."""
    return bias_prelu(x @ weight, bias, slope)


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """(N,) float32 cosine of each row of q with the same row of t. Gradient flows to q alone."""
    return _torch.apply(_RowCosine, q, t.to(q.dtype))


class _LayerNormPReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        out, mean, rstd = torch.empty_like(x), empty(x, len(x)), empty(x, len(x))
        plan = by_tiles(x, has_whole_rows=True)
        run_planned(_layer_norm_kernel, plan, x, slope, shift, weight, bias, mean, rstd, out, eps=eps)
        ctx.save_for_backward(x, slope, shift, weight, bias, mean, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x = ctx.saved_tensors[0]
        plan = by_parts(x, has_whole_rows=True)
        parts, slope_parts = empty_parts(x, plan, kinds=3)
        for_x = torch.empty_like(x)
        inputs = x, gradient.contiguous(), *ctx.saved_tensors[1:]
        run_planned(_layer_norm_gradient_kernel, plan, *inputs, for_x, parts, slope_parts)
        (for_weight, for_bias, for_shift), for_slope = add_parts(parts, slope_parts)
        return for_x, for_slope, for_shift, for_weight, for_bias, None


class _BiasPReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor, bias: Tensor) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        run_planned(_bias_kernel, by_tiles(x), x, slope, bias, out)
        ctx.save_for_backward(x, slope, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, slope, bias = ctx.saved_tensors
        plan = by_parts(x)
        parts, slope_parts = empty_parts(x, plan, kinds=1)
        for_x = torch.empty_like(x)
        run_planned(_bias_gradient_kernel, plan, x, gradient.contiguous(), slope, bias, for_x, parts, slope_parts)
        sums, for_slope = add_parts(parts, slope_parts)
        return for_x, for_slope, sums[0]


class _RowCosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, t: Tensor) -> Tensor:
        q, t = q.contiguous(), t.contiguous()
        cosine, q_length, t_length = (empty(q, len(q)) for _ in range(3))
        run_planned(_cosine_kernel, by_tiles(q, has_whole_rows=True), q, t, cosine, q_length, t_length)
        ctx.save_for_backward(q, t, cosine, q_length, t_length)
        return cosine

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        q = ctx.saved_tensors[0]
        for_q = torch.empty_like(q)
        plan, stride = by_tiles(q, has_whole_rows=True), gradient.stride(0)  # 0 under a sum
        run_planned(_cosine_gradient_kernel, plan, *ctx.saved_tensors, gradient, for_q, gradient_stride=stride)
        return for_q, None


if IS_AVAILABLE:
    import triton
    import triton.language as tl

    from graphstrap.ops._triton.tiles import own_part, own_tile, prelu_of, read, through_prelu

    @triton.jit
    def _layer_norm_kernel(
        x,
        slope,
        shift,
        weight,
        bias,
        mean,
        rstd,
        out,
        num_rows,
        num_columns,
        rows_per_program,
        eps,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
        a = tl.load(slope).to(tl.float32)
        c = read(shift, columns, inside)
        w, b = read(weight, columns, inside), read(bias, columns, inside)
        for start in range(first, last, block_rows):
            rows, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            value = read(x, place, here) + c[None, :]
            m = tl.sum(value, axis=1) / (num_columns * 1.0)
            gap = tl.where(inside[None, :], value - m[:, None], 0.0)
            r = tl.rsqrt(tl.sum(gap * gap, axis=1) / (num_columns * 1.0) + eps)
            z = gap * r[:, None] * w[None, :] + b[None, :]
            tl.store(out + place, prelu_of(z, a), mask=here)
            tl.store(mean + rows, m, mask=rows < last)
            tl.store(rstd + rows, r, mask=rows < last)

    @triton.jit
    def _layer_norm_gradient_kernel(
        x,
        gradient,
        slope,
        shift,
        weight,
        bias,
        mean,
        rstd,
        for_x,
        parts,
        slope_parts,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """dx, and a program's share of dw, db, dc and da."""
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
        a = tl.load(slope).to(tl.float32)
        c = read(shift, columns, inside)
        w, b = read(weight, columns, inside), read(bias, columns, inside)
        for_weight = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_bias = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_shift = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_slope = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for start in range(first, last, block_rows):
            rows, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            m, r = read(mean, rows, rows < last), read(rstd, rows, rows < last)
            n = (read(x, place, here) + c[None, :] - m[:, None]) * r[:, None]
            u, da = through_prelu(read(gradient, place, here), n * w[None, :] + b[None, :], a)
            v = u * w[None, :]
            mean_v = tl.sum(v, axis=1) / (num_columns * 1.0)
            mean_vn = tl.sum(v * n, axis=1) / (num_columns * 1.0)
            dx = r[:, None] * (v - mean_v[:, None] - n * mean_vn[:, None])
            tl.store(for_x + place, dx, mask=here)
            for_weight += u * n
            for_bias += u
            for_shift += dx
            for_slope += da
        target = parts + tl.program_id(1) * 3 * num_columns + columns
        tl.store(target, tl.sum(for_weight, axis=0), mask=inside)
        tl.store(target + num_columns, tl.sum(for_bias, axis=0), mask=inside)
        tl.store(target + 2 * num_columns, tl.sum(for_shift, axis=0), mask=inside)
        tl.store(slope_parts + tl.program_id(1), tl.sum(tl.sum(for_slope, axis=0), axis=0))

    @triton.jit
    def _bias_kernel(
        x,
        slope,
        bias,
        out,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
        a = tl.load(slope).to(tl.float32)
        b = read(bias, columns, inside)
        for start in range(first, last, block_rows):
            _, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            tl.store(out + place, prelu_of(read(x, place, here) + b[None, :], a), mask=here)

    @triton.jit
    def _bias_gradient_kernel(
        x,
        gradient,
        slope,
        bias,
        for_x,
        parts,
        slope_parts,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """dx, and a program's share of db and da."""
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
        a = tl.load(slope).to(tl.float32)
        b = read(bias, columns, inside)
        for_bias = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_slope = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for start in range(first, last, block_rows):
            _, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            dx, da = through_prelu(read(gradient, place, here), read(x, place, here) + b[None, :], a)
            tl.store(for_x + place, dx, mask=here)
            for_bias += dx
            for_slope += da
        tl.store(parts + tl.program_id(1) * num_columns + columns, tl.sum(for_bias, axis=0), mask=inside)
        program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        tl.store(slope_parts + program, tl.sum(tl.sum(for_slope, axis=0), axis=0))

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
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
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
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
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
