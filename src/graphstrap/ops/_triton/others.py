# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""How alike each row is to all others on CUDA: tiles of similarities live and die in registers.

The formulas stand in `_csr/others.py`. A program owns a tile of rows and walks over all tiles of columns: forward it
keeps a running maximum and sum, backward a tile of the gradient. Each tile of keys is read once for both products. Sums
are in float32 and in a fixed order, so results repeat bit for bit. Keys of more than MOST_COLUMNS columns do not fit
into a program's registers and go the way of `_csr/others.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphstrap.ops._csr import others as _csr_others
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch, may_round_to_tf32

MOST_COLUMNS = 256

if IS_AVAILABLE:
    import triton
    import triton.language as tl

    @triton.jit
    def _log_total_kernel(
        keys,
        total,
        num_rows,
        num_columns,
        rows_per_tile: tl.constexpr,
        others_per_tile: tl.constexpr,
        padded_columns: tl.constexpr,
        precision: tl.constexpr,
    ):
        rows = tl.program_id(0) * rows_per_tile + tl.arange(0, rows_per_tile)
        columns = tl.arange(0, padded_columns)
        here = columns[None, :] < num_columns
        own = tl.load(
            keys + rows[:, None].to(tl.int64) * num_columns + columns, mask=(rows[:, None] < num_rows) & here, other=0.0
        )
        largest = tl.full([rows_per_tile], -1e30, tl.float32)
        sums = tl.zeros([rows_per_tile], tl.float32)
        for first in range(0, num_rows, others_per_tile):
            others = first + tl.arange(0, others_per_tile)
            real = others < num_rows
            tile = tl.load(
                keys + others[:, None].to(tl.int64) * num_columns + columns, mask=real[:, None] & here, other=0.0
            )
            similarity = tl.dot(own, tl.trans(tile), input_precision=precision)
            counts = real[None, :] & (rows[:, None] != others[None, :])
            similarity = tl.where(counts, similarity, -1e30)
            new_largest = tl.maximum(largest, tl.max(similarity, axis=1))
            parts = tl.where(counts, tl.exp(similarity - new_largest[:, None]), 0.0)
            sums = sums * tl.exp(largest - new_largest) + tl.sum(parts, axis=1)
            largest = new_largest
        tl.store(total + rows, largest + tl.log(sums), mask=rows < num_rows)

    @triton.jit
    def _gradient_kernel(
        keys,
        total,
        gradient,
        result,
        num_rows,
        num_columns,
        rows_per_tile: tl.constexpr,
        others_per_tile: tl.constexpr,
        padded_columns: tl.constexpr,
        precision: tl.constexpr,
    ):
        rows = tl.program_id(0) * rows_per_tile + tl.arange(0, rows_per_tile)
        columns = tl.arange(0, padded_columns)
        here = columns[None, :] < num_columns
        places = rows[:, None].to(tl.int64) * num_columns + columns
        own = tl.load(keys + places, mask=(rows[:, None] < num_rows) & here, other=0.0)
        own_total = tl.load(total + rows, mask=rows < num_rows, other=0.0)
        own_gradient = tl.load(gradient + rows, mask=rows < num_rows, other=0.0)
        sums = tl.zeros([rows_per_tile, padded_columns], tl.float32)
        for first in range(0, num_rows, others_per_tile):
            others = first + tl.arange(0, others_per_tile)
            real = others < num_rows
            tile = tl.load(
                keys + others[:, None].to(tl.int64) * num_columns + columns, mask=real[:, None] & here, other=0.0
            )
            other_total = tl.load(total + others, mask=real, other=0.0)
            other_gradient = tl.load(gradient + others, mask=real, other=0.0)
            similarity = tl.dot(own, tl.trans(tile), input_precision=precision)
            counts = real[None, :] & (rows[:, None] != others[None, :]) & (rows[:, None] < num_rows)
            similarity = tl.where(counts, similarity, -1e30)
            weight = own_gradient[:, None] * tl.exp(similarity - own_total[:, None])
            weight += other_gradient[None, :] * tl.exp(similarity - other_total[None, :])
            sums = tl.dot(weight.to(tile.dtype), tile, sums, input_precision=precision)
        tl.store(result + places, sums.to(result.dtype.element_ty), mask=(rows[:, None] < num_rows) & here)


def log_total_others(keys: Tensor) -> Tensor:
    """See `graphstrap.ops.log_total_others`."""
    if keys.dtype == torch.float64 or keys.shape[1] > MOST_COLUMNS:
        return _csr_others.log_total_others(keys)
    total: Tensor = _LogTotalOthers.apply(keys)  # type: ignore[no-untyped-call]
    return total


class _LogTotalOthers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor) -> Tensor:
        keys = keys.contiguous()
        total = keys.new_empty(len(keys), dtype=torch.float32)
        tiles = _tiles(keys)
        grid = (triton.cdiv(len(keys), tiles["rows_per_tile"]),)
        launch(_log_total_kernel, grid)(keys, total, *keys.shape, **tiles)
        ctx.save_for_backward(keys, total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        keys, total = ctx.saved_tensors
        result, tiles = torch.empty_like(keys), _tiles(keys)
        grid = (triton.cdiv(len(keys), tiles["rows_per_tile"]),)
        launch(_gradient_kernel, grid)(keys, total, gradient.float().contiguous(), result, *keys.shape, **tiles)
        return result


def _tiles(keys: Tensor) -> dict[str, Any]:
    """What a program holds: both tables of keys, the similarities and the gradient within a multiprocessor's memory."""
    padded = max(16, triton.next_power_of_2(keys.shape[1]))
    is_wide = keys.dtype == torch.float32
    return {
        "rows_per_tile": 64 if is_wide else 128,
        "others_per_tile": 32 if is_wide and padded > 128 else 64,
        "padded_columns": padded,
        "precision": "tf32" if may_round_to_tf32() else "ieee",
        "num_warps": 4 if is_wide else 8,
        "num_stages": 2 if is_wide else 3,
    }
