# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""Bias and PReLU, fused. With s(z) = 1 where z > 0, else a; g the gradient of y:

y = p(x + b),  dx = g s(x + b),  db = sum dx,  da = sum of g z over every element with z = x + b <= 0
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphstrap.ops._triton.finish.tiles import add_parts, by_parts, by_tiles, empty_parts, run_planned
from graphstrap.ops._triton.launch import IS_AVAILABLE

if IS_AVAILABLE:
    import triton
    import triton.language as tl

    from graphstrap.ops._triton.finish.tiles import own_columns, own_rows, own_tile, prelu_of, read, through_prelu

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
        columns, inside = own_columns(num_columns, block_columns)
        first, last = own_rows(num_rows, rows_per_program)
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
        columns, inside = own_columns(num_columns, block_columns)
        first, last = own_rows(num_rows, rows_per_program)
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


def bias_prelu(x: Tensor, slope: Tensor, *, bias: Tensor) -> Tensor:
    """prelu(x + bias) of x (N, D)."""
    result: Tensor = _BiasPReLU.apply(x, slope, bias)  # type: ignore[no-untyped-call]
    return result


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
