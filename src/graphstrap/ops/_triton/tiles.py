"""How the fused kernels share out a matrix: tiles of rows and columns, sums over rows in parts.

Order: a sum over rows is taken in parts, one for each program, and a second kernel adds the parts up: no atomics, the
same bits every time. Nothing waits for the device and no shape depends on data, so a CUDA graph can hold all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphstrap.ops._triton.launch import IS_AVAILABLE

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

if IS_AVAILABLE:
    import triton
    import triton.language as tl

    # A program owns `rows_per_program` rows of one block of columns and walks down them, one tile at a time.

    @triton.jit
    def own_columns(num_columns, block_columns: tl.constexpr):
        columns = tl.program_id(0) * block_columns + tl.arange(0, block_columns)
        return columns, columns < num_columns

    @triton.jit
    def own_part(num_rows, num_columns, rows_per_program, block_columns: tl.constexpr):
        columns, inside = own_columns(num_columns, block_columns)
        first = tl.program_id(1) * rows_per_program
        return columns, inside, first, tl.minimum(first + rows_per_program, num_rows)

    @triton.jit
    def own_tile(first, last, columns, inside, num_columns, block_rows: tl.constexpr):
        rows = first + tl.arange(0, block_rows)
        place = rows.to(tl.int64)[:, None] * num_columns + columns[None, :]
        return rows, place, (rows < last)[:, None] & inside[None, :]

    @triton.jit
    def read(source, place, here):
        return tl.load(source + place, mask=here, other=0.0).to(tl.float32)

    @triton.jit
    def prelu_of(z, slope):
        return tl.where(z > 0, z, slope * z)

    @triton.jit
    def through_prelu(gradient, z, slope):
        """The gradient for z, and what each element adds to the gradient for the slope."""
        return tl.where(z > 0, gradient, slope * gradient), tl.where(z > 0, 0.0, gradient * z)

    @triton.jit
    def _add_parts_kernel(
        parts,
        slope_parts,
        sums,
        slope_sum,
        num_parts,
        num_columns,
        num_slope_parts,
        block_parts: tl.constexpr,
        block_columns: tl.constexpr,
        block_slope_parts: tl.constexpr,
    ):
        """Column sums of the parts; the last program adds up the slope's parts instead."""
        if tl.program_id(0) + 1 < tl.num_programs(0):
            columns, inside = own_columns(num_columns, block_columns)
            _, place, here = own_tile(0, num_parts, columns, inside, num_columns, block_parts)
            tl.store(sums + columns, tl.sum(read(parts, place, here), axis=0), mask=inside)
        else:
            total = tl.zeros((block_slope_parts,), dtype=tl.float32)
            for start in range(0, num_slope_parts, block_slope_parts):
                part = start + tl.arange(0, block_slope_parts)
                total += read(slope_parts, part, part < num_slope_parts)
            tl.store(slope_sum, tl.sum(total, axis=0))


# Sizes for an H200: enough programs for its 132 multiprocessors, few enough that those which sum over rows run at once.
TILE = 2048  # elements that a program holds at a time
SUM_TILE = 1024  # the same where it also holds several running sums
MAX_PROGRAMS = 16_384  # of a pass that only reads and writes
MAX_MOMENT_PROGRAMS = 1024
MAX_SUM_PROGRAMS = 5 * 132
MAX_PARTS = 512  # parts that a sum over rows is taken in
COLUMNS = 64  # of a tile, where a row need not be held whole
JOIN_COLUMNS = 8  # of a program that adds up parts: one sector of memory


class Plan(NamedTuple):
    """How the rows and columns of a matrix are shared out among programs."""

    num_column_blocks: int
    num_parts: int  # programs along the rows
    rows_per_program: int
    block_rows: int
    block_columns: int


def by_tiles(x: Tensor, *, has_whole_rows: bool = False) -> Plan:
    """For a pass that only reads and writes, perhaps each row whole."""
    return _plan(x, tile=TILE, max_programs=MAX_PROGRAMS, max_parts=MAX_PROGRAMS, has_whole_rows=has_whole_rows)


def by_parts(x: Tensor, *, has_whole_rows: bool = False) -> Plan:
    """For a pass that sums gradients over rows, perhaps with each row whole."""
    most = MAX_PARTS if has_whole_rows else MAX_SUM_PROGRAMS
    return _plan(x, tile=SUM_TILE, max_programs=most, max_parts=MAX_PARTS, has_whole_rows=has_whole_rows)


def for_moments(x: Tensor) -> Plan:
    """For the pass that sums up to batch norm's moments."""
    return _plan(x, tile=TILE, max_programs=MAX_MOMENT_PROGRAMS, max_parts=MAX_PARTS)


def _plan(x: Tensor, *, tile: int, max_programs: int, max_parts: int, has_whole_rows: bool = False) -> Plan:
    num_rows, num_columns = x.shape
    block_columns = triton.next_power_of_2(num_columns)
    if not has_whole_rows:
        block_columns = min(block_columns, COLUMNS)
    block_rows = max(1, tile // block_columns)
    num_column_blocks = triton.cdiv(num_columns, block_columns)
    max_parts = min(max_parts, max(1, max_programs // num_column_blocks))
    rows_per_program = triton.cdiv(triton.cdiv(num_rows, block_rows), max_parts) * block_rows
    num_parts = triton.cdiv(num_rows, rows_per_program)
    return Plan(num_column_blocks, num_parts, rows_per_program, block_rows, block_columns)


def run_planned(kernel: Any, plan: Plan, x: Tensor, *tensors: Tensor, **numbers: float) -> None:
    """Run a kernel over x (N, D) as planned."""
    blocks = {"block_rows": plan.block_rows, "block_columns": plan.block_columns}
    num_warps = min(16, max(4, plan.block_rows * plan.block_columns // 512))
    grid = plan.num_column_blocks, plan.num_parts
    launch_on(kernel, grid, x, *tensors, *x.shape, plan.rows_per_program, **numbers, **blocks, num_warps=num_warps)


def launch_on(kernel: Any, grid: tuple[int, ...], x: Tensor, *arguments: Tensor | float, **options: float) -> None:
    """Run a kernel on the device of its first argument."""
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        kernel[grid](x, *arguments, **options)


def empty_parts(x: Tensor, plan: Plan, *, kinds: int) -> tuple[Tensor, Tensor]:
    return empty(x, plan.num_parts, kinds, x.shape[1]), empty(x, plan.num_parts, plan.num_column_blocks)


def empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def add_parts(parts: Tensor, slope_parts: Tensor) -> tuple[Tensor, Tensor]:
    """(kinds, D) and (1,): the parts, (P, kinds, D) and any shape, added up."""
    num_parts, kinds, num_columns = parts.shape
    sums, slope_sum = empty(parts, kinds, num_columns), empty(parts, 1)
    width = kinds * num_columns
    grid = (triton.cdiv(width, JOIN_COLUMNS) + 1,)
    numbers = num_parts, width, slope_parts.numel()
    blocks = {"block_parts": triton.next_power_of_2(num_parts), "block_columns": JOIN_COLUMNS}
    launch_on(_add_parts_kernel, grid, parts, slope_parts, sums, slope_sum, *numbers, **blocks, block_slope_parts=1024)
    return sums, slope_sum
