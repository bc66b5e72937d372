"""Batch norm and PReLU as one epilogue.

With p(z) = z where z > 0, else a z; s(z) = 1 where z > 0, else a; sums over rows i:

    n = (x - mean_i x) r,  r = (var_i x + eps)^-1/2,  y = p(w n + b),  u = g s(w n + b), g the gradient of y
    dw = sum u n,  db = sum u,  dx = w r (u - db / N - n dw / N)
    da = sum of g z over every element with z <= 0, z being what p is applied to

x is saved, with a mean and a factor r for each column; n and z are made again. Float32 throughout, whatever x is. Batch
norm does not see a shift, so the kernels work on x minus the first row of x, which keeps the small variance of a column
with a large mean; Welford's update and Chan's formula do the rest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphstrap.ops._torch import apply
from graphstrap.ops._triton.launch import IS_AVAILABLE
from graphstrap.ops._triton.tiles import (
    JOIN_COLUMNS,
    add_parts,
    by_parts,
    by_tiles,
    empty,
    empty_parts,
    for_moments,
    launch_on,
    run_planned,
)

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


def batch_norm_prelu(x: Tensor, norm: nn.BatchNorm1d, slope: Tensor) -> Tensor:
    """PReLU after batch norm of x (N, D) with the batch's own statistics; moves the running ones in place."""
    return apply(_BatchNormPReLU, x, slope, norm.weight, norm.bias, norm)


class _BatchNormPReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm1d) -> Tensor:
        x = x.contiguous()
        mean, rstd = _batch_moments(x, norm)
        out = torch.empty_like(x)
        run_planned(_batch_norm_kernel, by_tiles(x), x, slope, weight, bias, mean, rstd, out)
        ctx.save_for_backward(x, slope, weight, bias, mean, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, slope, *columns = ctx.saved_tensors
        gradient = gradient.contiguous()
        plan = by_parts(x)
        parts, slope_parts = empty_parts(x, plan, kinds=2)
        run_planned(_batch_norm_sums_kernel, plan, x, gradient, slope, *columns, parts, slope_parts)
        sums, for_slope = add_parts(parts, slope_parts)
        for_x = torch.empty_like(x)
        run_planned(_batch_norm_gradient_kernel, by_tiles(x), x, gradient, slope, *columns, sums, for_x)
        return for_x, for_slope, sums[0], sums[1], None


def _batch_moments(x: Tensor, norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """(D,) mean of x - x[0], and 1 / sqrt(variance + eps); the running statistics move."""
    num_rows, num_columns = x.shape
    plan = for_moments(x)
    mean_parts, square_parts = empty(x, plan.num_parts, num_columns), empty(x, plan.num_parts, num_columns)
    run_planned(_moments_kernel, plan, x, mean_parts, square_parts)
    mean, rstd = empty(x, num_columns), empty(x, num_columns)
    grid = (triton.cdiv(num_columns, JOIN_COLUMNS),)
    tensors: Any = x, mean_parts, square_parts, mean, rstd, norm.running_mean, norm.running_var
    new_batch_weight = norm.momentum if num_rows > 1 else 0.0  # one row has no variance
    numbers: Any = num_rows, num_columns, plan.num_parts, plan.rows_per_program, new_batch_weight, norm.eps
    blocks = {"block_parts": triton.next_power_of_2(plan.num_parts), "block_columns": JOIN_COLUMNS}
    launch_on(_join_moments_kernel, grid, *tensors, *numbers, **blocks)
    return mean, rstd


if IS_AVAILABLE:
    import triton
    import triton.language as tl

    from graphstrap.ops._triton.tiles import own_columns, own_part, own_tile, prelu_of, read, through_prelu

    @triton.jit
    def _moments_kernel(
        x,
        mean_parts,
        square_parts,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """Mean, and sum of squared deviations from it, of a program's rows of x - x[0]."""
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
        origin = read(x, columns, inside)
        mean = tl.zeros((block_rows, block_columns), dtype=tl.float32)  # of each lane's rows
        square = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        seen = 0.0
        for start in range(first, last, block_rows):
            _, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            value = read(x, place, here) - origin[None, :]
            seen += 1.0
            step = tl.where(here, value - mean, 0.0)
            mean += step * (1.0 / seen)
            square += step * (value - mean)
        lanes = tl.arange(0, block_rows)
        count = ((last - first + block_rows - 1 - lanes) // block_rows).to(tl.float32)[:, None]
        part_mean = tl.sum(count * mean, axis=0) / ((last - first) * 1.0)
        gap = mean - part_mean[None, :]
        target = tl.program_id(1) * num_columns + columns
        tl.store(mean_parts + target, part_mean, mask=inside)
        tl.store(square_parts + target, tl.sum(square + count * gap * gap, axis=0), mask=inside)

    @triton.jit
    def _join_moments_kernel(
        x,
        mean_parts,
        square_parts,
        mean,
        rstd,
        running_mean,
        running_var,
        num_rows,
        num_columns,
        num_parts,
        rows_per_part,
        new_batch_weight,
        eps,
        block_parts: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """The moments of all rows, from those of the parts; and the running statistics, moved towards them."""
        columns, inside = own_columns(num_columns, block_columns)
        parts = tl.arange(0, block_parts)
        rows = tl.minimum(num_rows - parts * rows_per_part, rows_per_part)
        count = tl.where(parts < num_parts, rows, 0).to(tl.float32)[:, None]
        place = parts[:, None] * num_columns + columns[None, :]
        here = (parts < num_parts)[:, None] & inside[None, :]
        part_mean = read(mean_parts, place, here)
        total = num_rows * 1.0
        batch_mean = tl.sum(count * part_mean, axis=0) / total
        gap = part_mean - batch_mean[None, :]
        square = tl.sum(read(square_parts, place, here) + count * gap * gap, axis=0)
        tl.store(mean + columns, batch_mean, mask=inside)
        tl.store(rstd + columns, tl.rsqrt(square / total + eps), mask=inside)
        old_weight = 1.0 - new_batch_weight
        new_mean = batch_mean + read(x, columns, inside)
        new_var = square / tl.maximum(total - 1.0, 1.0)
        old_mean, old_var = read(running_mean, columns, inside), read(running_var, columns, inside)
        tl.store(running_mean + columns, old_weight * old_mean + new_batch_weight * new_mean, mask=inside)
        tl.store(running_var + columns, old_weight * old_var + new_batch_weight * new_var, mask=inside)

    @triton.jit
    def _batch_norm_kernel(
        x,
        slope,
        weight,
        bias,
        mean,
        rstd,
        out,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
        a = tl.load(slope).to(tl.float32)
        origin, m, b = read(x, columns, inside), read(mean, columns, inside), read(bias, columns, inside)
        r = read(rstd, columns, inside)
        scale = read(weight, columns, inside) * r
        for start in range(first, last, block_rows):
            _, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            gap = read(x, place, here) - origin[None, :] - m[None, :]
            tl.store(out + place, prelu_of(gap * scale[None, :] + b[None, :], a), mask=here)

    @triton.jit
    def _batch_norm_sums_kernel(
        x,
        gradient,
        slope,
        weight,
        bias,
        mean,
        rstd,
        parts,
        slope_parts,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """A program's share of dw, db and da."""
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
        a = tl.load(slope).to(tl.float32)
        origin, m, b = read(x, columns, inside), read(mean, columns, inside), read(bias, columns, inside)
        r = read(rstd, columns, inside)
        scale = read(weight, columns, inside) * r
        for_weight = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_bias = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_slope = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for start in range(first, last, block_rows):
            _, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            gap = read(x, place, here) - origin[None, :] - m[None, :]
            u, da = through_prelu(read(gradient, place, here), gap * scale[None, :] + b[None, :], a)
            for_weight += u * gap
            for_bias += u
            for_slope += da
        target = parts + tl.program_id(1) * 2 * num_columns + columns
        tl.store(target, tl.sum(for_weight, axis=0) * r, mask=inside)
        tl.store(target + num_columns, tl.sum(for_bias, axis=0), mask=inside)
        program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        tl.store(slope_parts + program, tl.sum(tl.sum(for_slope, axis=0), axis=0))

    @triton.jit
    def _batch_norm_gradient_kernel(
        x,
        gradient,
        slope,
        weight,
        bias,
        mean,
        rstd,
        sums,
        for_x,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside, first, last = own_part(num_rows, num_columns, rows_per_program, block_columns)
        a = tl.load(slope).to(tl.float32)
        origin, m, b = read(x, columns, inside), read(mean, columns, inside), read(bias, columns, inside)
        r = read(rstd, columns, inside)
        scale = read(weight, columns, inside) * r
        r_mean_un = r * read(sums, columns, inside) / (num_rows * 1.0)
        mean_u = read(sums + num_columns, columns, inside) / (num_rows * 1.0)
        for start in range(first, last, block_rows):
            _, place, here = own_tile(start, last, columns, inside, num_columns, block_rows)
            gap = read(x, place, here) - origin[None, :] - m[None, :]
            u, _ = through_prelu(read(gradient, place, here), gap * scale[None, :] + b[None, :], a)
            dx = scale[None, :] * (u - mean_u[None, :] - gap * r_mean_un[None, :])
            tl.store(for_x + place, dx, mask=here)
