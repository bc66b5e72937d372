"""How alike each row is to all others on CUDA: tiles of similarities live and die in registers.

The formulas stand in `_csr/similarities.py`. A program owns a tile of rows and walks over all tiles of columns. No
similarity exceeds the caller's bound b, so no maximum is sought, and each pair takes one exponential per direction:

    forward     t_i  =  b + log sum over j != i of e^(s_ij - b)
    backward    g_i e^(s_ij - t_i) + g_j e^(s_ij - t_j)  =  e^(s_ij - b) (a_i + a_j)        a_i = g_i e^(b - t_i)

Only tiles that hold the program's own rows, and the last one, ask which pairs count. Tiles come by descriptor, which
Hopper's copy engine reads, zeros beyond the table. Sums are in float32 and in a fixed order, so results repeat bit for
bit. Without a bound, or with one so large that e^(-2 b) is next to nothing in float32, and with more columns than a
program's registers hold, keys go the way of `_csr/similarities.py`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.ops._csr import similarities as _csr
from graphstrap.ops._torch import apply
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch, may_round_to_tf32

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

MOST_COLUMNS = 256
LARGEST_BOUND = 40.0
LOG2_E = 1.4426950408889634

if IS_AVAILABLE:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def _own_tiles(num_rows, rows_per_tile: tl.constexpr, others_per_tile: tl.constexpr):
        """The first of the tiles of others that hold the program's own rows, and the one after the last."""
        first = tl.program_id(0) * rows_per_tile // others_per_tile
        count: tl.constexpr = (rows_per_tile + others_per_tile - 1) // others_per_tile
        return first, min(first + count, tl.cdiv(num_rows, others_per_tile))

    @triton.jit
    def _log_total_kernel(
        own_keys,
        other_keys,
        total,
        num_rows,
        bound,  # in powers of 2
        rows_per_tile: tl.constexpr,
        others_per_tile: tl.constexpr,
        precision: tl.constexpr,
    ):
        rows = tl.program_id(0) * rows_per_tile + tl.arange(0, rows_per_tile)
        own = own_keys.load([tl.program_id(0) * rows_per_tile, 0])
        first_own, past_own = _own_tiles(num_rows, rows_per_tile, others_per_tile)
        num_tiles, num_whole = tl.cdiv(num_rows, others_per_tile), num_rows // others_per_tile
        sums = tl.zeros([rows_per_tile, others_per_tile], tl.float32)
        for k in range(num_whole - (min(past_own, num_whole) - first_own)):
            first = tl.where(k < first_own, k, k + past_own - first_own) * others_per_tile
            similarity = tl.dot(own, tl.trans(other_keys.load([first, 0])), input_precision=precision)
            sums += tl.exp2(similarity * 1.4426950408889634 - bound)
        has_rest = (num_whole < num_tiles) & (past_own < num_tiles)
        for k in range(past_own - first_own + has_rest.to(tl.int32)):
            first = tl.where(first_own + k < past_own, first_own + k, num_whole) * others_per_tile
            similarity = tl.dot(own, tl.trans(other_keys.load([first, 0])), input_precision=precision)
            others = first + tl.arange(0, others_per_tile)
            counts = (others[None, :] < num_rows) & (rows[:, None] != others[None, :])
            sums += tl.where(counts, tl.exp2(similarity * 1.4426950408889634 - bound), 0.0)
        result = (tl.log2(tl.sum(sums, axis=1)) + bound) * 0.6931471805599453
        tl.store(total + rows, result, mask=rows < num_rows)

    @triton.jit
    def _gradient_kernel(
        own_keys,
        other_keys,
        scale,
        result,
        num_rows,
        bound,  # in powers of 2
        rows_per_tile: tl.constexpr,
        others_per_tile: tl.constexpr,
        num_columns: tl.constexpr,
        precision: tl.constexpr,
    ):
        rows = tl.program_id(0) * rows_per_tile + tl.arange(0, rows_per_tile)
        own = own_keys.load([tl.program_id(0) * rows_per_tile, 0])
        own_scale = tl.load(scale + rows, mask=rows < num_rows, other=0.0)
        first_own, past_own = _own_tiles(num_rows, rows_per_tile, others_per_tile)
        sums = tl.zeros([rows_per_tile, num_columns], tl.float32)
        for k in range(tl.cdiv(num_rows, others_per_tile) - (past_own - first_own)):
            first = tl.where(k < first_own, k, k + past_own - first_own) * others_per_tile
            tile = other_keys.load([first, 0])
            others = first + tl.arange(0, others_per_tile)
            other_scale = tl.load(scale + others, mask=others < num_rows, other=0.0)
            similarity = tl.dot(own, tl.trans(tile), input_precision=precision)
            weight = tl.exp2(similarity * 1.4426950408889634 - bound) * (own_scale[:, None] + other_scale[None, :])
            sums = tl.dot(weight.to(tile.dtype), tile, sums, input_precision=precision)
        for k in range(first_own, past_own):
            tile = other_keys.load([k * others_per_tile, 0])
            others = k * others_per_tile + tl.arange(0, others_per_tile)
            other_scale = tl.load(scale + others, mask=others < num_rows, other=0.0)
            similarity = tl.dot(own, tl.trans(tile), input_precision=precision)
            weight = tl.exp2(similarity * 1.4426950408889634 - bound) * (own_scale[:, None] + other_scale[None, :])
            weight = tl.where(rows[:, None] != others[None, :], weight, 0.0)
            sums = tl.dot(weight.to(tile.dtype), tile, sums, input_precision=precision)
        places = rows[:, None].to(tl.int64) * num_columns + tl.arange(0, num_columns)[None, :]
        tl.store(result + places, sums.to(result.dtype.element_ty), mask=rows[:, None] < num_rows)


def log_total_others(keys: Tensor, *, bound: float | None = None) -> Tensor:
    """See `graphstrap.ops.log_total_others`."""
    is_bounded = bound is not None and bound <= LARGEST_BOUND
    if not is_bounded or keys.shape[1] > MOST_COLUMNS:
        return _csr.log_total_others(keys)
    padded = max(16, triton.next_power_of_2(keys.shape[1]))
    return apply(_LogTotalOthers, F.pad(keys, (0, padded - keys.shape[1])), bound)


class _LogTotalOthers(torch.autograd.Function):
    """Of keys whose number of columns is a power of 2."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, bound: float) -> Tensor:
        keys = keys.contiguous()
        total = keys.new_empty(len(keys), dtype=torch.float32)
        _run(_log_total_kernel, keys, total, len(keys), bound * LOG2_E, **_tiles(keys))
        ctx.save_for_backward(keys, total)
        ctx.bound = bound
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        keys, total = ctx.saved_tensors
        scale = gradient.float() * torch.exp(ctx.bound - total)
        result, numbers = torch.empty_like(keys), (len(keys), ctx.bound * LOG2_E)
        _run(_gradient_kernel, keys, scale, result, *numbers, num_columns=keys.shape[1], **_tiles(keys))
        return result, None


def _tiles(keys: Tensor) -> dict[str, Any]:
    """What a program holds: both tables of keys, the similarities and the gradient within a multiprocessor's memory.
    For bfloat16 the best of thirteen on an H200 (docs/LOG.md)."""
    is_wide = keys.dtype == torch.float32
    return {
        "rows_per_tile": 64,
        "others_per_tile": 32 if is_wide and keys.shape[1] > 128 else 64,
        "precision": "tf32" if may_round_to_tf32() else "ieee",
        "num_warps": 4,
        "num_stages": 2 if is_wide else 3,
    }


def _run(kernel: Any, keys: Tensor, *arguments: Tensor | float, **sizes: Any) -> None:
    """Run a kernel over the table as tiles of own rows, and of others."""
    tiles = [TensorDescriptor.from_tensor(keys, [sizes[f"{of}_per_tile"], keys.shape[1]]) for of in ("rows", "others")]
    launch(kernel, (triton.cdiv(len(keys), sizes["rows_per_tile"]),))(*tiles, *arguments, **sizes)
