"""Sparse products balanced for power laws: a matrix's rows are cut once into chunks of at most 128 entries.

So a hub is many programs and not a straggler. A row of one chunk is written at once; the partial sums of a longer row
are added up by a second kernel, in a fixed order. Sums are float32. No atomics, no E x D intermediate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphstrap.ops._triton.launch import IS_AVAILABLE, launch

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

CHUNK = 128

if IS_AVAILABLE:
    import triton
    import triton.language as tl

    @triton.jit
    def store_rows(out, partial, rows, slots, chunk, real, result, num_columns, columns, inside):
        """The sum of a row of one chunk, or the partial sum of a longer one."""
        slot = tl.load(slots + chunk, mask=real, other=-1).to(tl.int64)
        row = tl.load(rows + chunk, mask=real, other=0).to(tl.int64)
        whole = (real & (slot < 0))[:, None] & inside[None, :]
        split = (slot >= 0)[:, None] & inside[None, :]
        tl.store(out + row[:, None] * num_columns + columns[None, :], result.to(out.dtype.element_ty), mask=whole)
        tl.store(partial + slot[:, None] * num_columns + columns[None, :], result, mask=split)

    @triton.jit
    def _product_kernel(
        first,
        counts,
        rows,
        slots,
        columns,
        weights,
        table,
        out,
        partial,
        table_2,
        out_2,
        partial_2,
        num_chunks,
        num_columns,
        is_pair: tl.constexpr,
        is_large: tl.constexpr,
        block_chunks: tl.constexpr,
        block_entries: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """Weighted sums of table rows, a chunk for each warp, for a block of columns of one table or two."""
        chunk = tl.program_id(0) * block_chunks + tl.arange(0, block_chunks)
        real = chunk < num_chunks
        wanted = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
        inside = wanted < num_columns
        begin = tl.load(first + chunk, mask=real, other=0)
        count = tl.load(counts + chunk, mask=real, other=0)
        total = tl.zeros((block_chunks, block_entries, block_columns), dtype=tl.float32)
        total_2 = tl.zeros((block_chunks, block_entries, block_columns), dtype=tl.float32)
        for done in range(0, tl.max(count, axis=0), block_entries):
            entry = done + tl.arange(0, block_entries)
            valid = entry[None, :] < count[:, None]
            place = begin[:, None] + entry[None, :]
            column = tl.load(columns + place, mask=valid, other=0)
            if is_large:
                column = column.to(tl.int64)
            weight = tl.load(weights + place, mask=valid, other=0.0)[:, :, None]
            mask = valid[:, :, None] & inside[None, None, :]
            source = column[:, :, None] * num_columns + wanted[None, None, :]
            total += tl.load(table + source, mask=mask, other=0.0).to(tl.float32) * weight
            if is_pair:
                total_2 += tl.load(table_2 + source, mask=mask, other=0.0).to(tl.float32) * weight
        result = tl.sum(total, axis=1)
        store_rows(out, partial, rows, slots, chunk, real, result, num_columns, wanted, inside)
        if is_pair:
            result = tl.sum(total_2, axis=1)
            store_rows(out_2, partial_2, rows, slots, chunk, real, result, num_columns, wanted, inside)

    @triton.jit
    def _combine_kernel(
        rows, slots_ptr, out, partial, out_2, partial_2, num_columns, is_pair: tl.constexpr, block_columns: tl.constexpr
    ):
        """Adds up the partial sums of a row of several chunks, in order."""
        if is_pair:  # noqa: SIM102, for it is known to the compiler
            if tl.program_id(2) == 1:
                out, partial = out_2, partial_2
        wanted = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
        inside = wanted < num_columns
        total = tl.zeros((block_columns,), dtype=tl.float32)
        first = tl.load(slots_ptr + tl.program_id(0)).to(tl.int64)
        for index in range(tl.load(slots_ptr + tl.program_id(0) + 1) - first):
            total += tl.load(partial + (first + index) * num_columns + wanted, mask=inside, other=0.0)
        row = tl.load(rows + tl.program_id(0)).to(tl.int64)
        tl.store(out + row * num_columns + wanted, total.to(out.dtype.element_ty), mask=inside)

    @triton.jit
    def _compact_kernel(
        first,
        last,
        out_first,
        rows,
        opens_row,
        indices,
        positions,
        kept,
        weights,
        scale,
        out_columns,
        out_weights,
        out_counts,
        num_chunks,
        key: tl.constexpr,
        has_positions: tl.constexpr,
        is_weighted: tl.constexpr,
        scale_row: tl.constexpr,
        scale_column: tl.constexpr,
        has_loops: tl.constexpr,
        chunks: tl.constexpr,
        width: tl.constexpr,
    ):
        """Surviving entries of each chunk, and the self-loop in front of each row's first chunk."""
        chunk = tl.program_id(0) * chunks + tl.arange(0, chunks)
        valid = chunk < num_chunks
        begin = tl.load(first + chunk, mask=valid, other=0).to(tl.int64)
        end = tl.load(last + chunk, mask=valid, other=0).to(tl.int64)
        row = tl.load(rows + chunk, mask=valid, other=0)
        entry = begin[:, None] + tl.arange(0, width)[None, :]
        stays = entry < end[:, None]
        column = tl.load(indices + entry, mask=stays, other=0)
        position = tl.load(positions + entry, mask=stays, other=0).to(tl.int64) if has_positions else entry
        weight = tl.load(weights + position, mask=stays, other=0.0) if is_weighted else stays.to(tl.float32)
        if key == "entry":
            stays = stays & (tl.load(kept + position, mask=stays, other=0) != 0)
        elif key == "column":
            stays = stays & (tl.load(kept + column, mask=stays, other=0) != 0)
        row_scale = tl.load(scale + row, mask=valid, other=0.0) if scale_row or has_loops else valid.to(tl.float32)
        if scale_row:
            weight *= row_scale[:, None]
        if scale_column:
            weight *= tl.load(scale + column, mask=stays, other=0.0)
        start = tl.load(out_first + chunk, mask=valid, other=0).to(tl.int64)
        count = tl.sum(stays.to(tl.int32), axis=1)
        place = start[:, None] + tl.cumsum(stays.to(tl.int32), axis=1) - 1
        if has_loops:
            opens = valid & (tl.load(opens_row + chunk, mask=valid, other=0) != 0)
            loop = row_scale * row_scale if scale_row and scale_column else row_scale
            tl.store(out_columns + start, row, mask=opens)
            tl.store(out_weights + start, loop, mask=opens)
            count += opens.to(tl.int32)
            place += opens.to(tl.int32)[:, None]
        tl.store(out_columns + place, column, mask=stays)
        tl.store(out_weights + place, weight, mask=stays)
        tl.store(out_counts + chunk, count, mask=valid)


@dataclass(frozen=True, eq=False)
class Chunks:
    """How a CSR matrix's rows are cut: static, made once for a graph and a direction."""

    num_rows: int
    width: int  # of a chunk, at most
    rows: Tensor  # (C,) int32
    first: Tensor  # (C,) entries first..last of the matrix
    last: Tensor  # (C,)
    first_with_loops: Tensor  # (C,) the same once every row has a self-loop in front
    opens_row: Tensor  # (C,) int8, whether it is its row's first
    slots: Tensor  # (C,) int32, place of the partial sum; -1 for a row of one chunk
    num_slots: int
    split_rows: Tensor  # (S,) rows of several chunks
    split_slots: Tensor  # (S + 1,) their partial sums

    @classmethod
    def of(cls, indptr: Tensor) -> Chunks:
        width, num_rows = CHUNK, len(indptr) - 1
        numbers = ((indptr.diff() + width - 1) // width).clamp(min=1)  # an empty row is a chunk too: it writes zeros
        row = torch.repeat_interleave(torch.arange(num_rows, device=indptr.device), numbers)
        before = numbers.cumsum(0) - numbers  # chunks before each row
        index = torch.arange(len(row), device=indptr.device) - before[row]
        first = indptr[row] + index * width
        is_split = numbers > 1
        many = is_split[row]
        slots = torch.where(many, many.cumsum(0) - 1, -1)
        split_slots = torch.cat([indptr.new_zeros(1), numbers[is_split].cumsum(0)])
        is_small = int(indptr[-1]) + num_rows + width < 2**31
        place_dtype = torch.int32 if is_small else torch.int64
        last = torch.minimum(first + width, indptr[row + 1])
        order = torch.sort(last - first, descending=True, stable=True).indices  # a program's chunks: alike in length
        return cls(
            num_rows=num_rows,
            width=width,
            rows=row[order].int(),
            first=first[order].to(place_dtype),
            last=last[order].to(place_dtype),
            first_with_loops=(first + row + (index > 0))[order].to(place_dtype),
            opens_row=(index == 0)[order].to(torch.int8),
            slots=slots[order].int(),
            num_slots=int(split_slots[-1]),
            split_rows=is_split.nonzero().squeeze(1).int(),
            split_slots=split_slots.int(),
        )


@dataclass(frozen=True, eq=False)
class ChunkedMatrix:
    """A CSR matrix ready for the product: chunk c holds entries first[c] .. first[c] + counts[c]."""

    chunks: Chunks
    first: Tensor
    counts: Tensor
    columns: Tensor
    weights: Tensor

    def times(self, *tables: Tensor, dtype: torch.dtype | None = None) -> list[Tensor]:
        """The matrix times one or two tables of the same shape and type, in one pass; results in `dtype` or theirs."""
        tables = tuple(table.contiguous() for table in tables)
        num_columns, chunks = tables[0].shape[1], self.chunks
        dtype = dtype or tables[0].dtype
        outs = [table.new_empty(chunks.num_rows, num_columns, dtype=dtype) for table in tables]
        partials = [table.new_empty(chunks.num_slots, num_columns, dtype=torch.float32) for table in tables]
        if not chunks.num_rows or not num_columns:
            return outs
        blocks = product_blocks(num_columns, tables[0].dtype)
        num_blocks = triton.cdiv(num_columns, blocks["block_columns"])
        num_programs = triton.cdiv(len(chunks.rows), blocks["block_chunks"])
        entries = self.first, self.counts, chunks.rows, chunks.slots, self.columns, self.weights
        results = tables[0], outs[0], partials[0], tables[-1], outs[-1], partials[-1]
        kinds = {"is_pair": len(tables) == 2, "is_large": tables[0].numel() >= 2**31}
        launch(_product_kernel, (num_programs, num_blocks))(
            *entries, *results, len(chunks.rows), num_columns, **kinds, **blocks
        )
        combine(chunks, outs, partials)
        return outs


def compact(
    chunks: Chunks,
    indices: Tensor,
    *,
    kept: Tensor | None = None,
    key: str = "entry",
    positions: Tensor | None = None,
    weights: Tensor | None = None,
    scale: Tensor | None = None,
    scale_row: bool = False,
    scale_column: bool = False,
    loops: bool = False,
) -> ChunkedMatrix:
    """The matrix of the entries that survive.

    Args:
        kept: one byte for each position or column, as `key` says; None keeps all.
        positions: where each entry's byte and weight stand; None means at the entry's own place.
        weights: of the entries, by position; None means 1.
        scale: (rows,) factors that `scale_row` and `scale_column` multiply in.
        loops: write a self-loop into every row, of weight 1 times the scales.
    """
    first = chunks.first_with_loops if loops else chunks.first
    room = len(indices) + (chunks.num_rows if loops else 0)
    columns = torch.empty(room, dtype=torch.int32, device=indices.device)
    out_weights = torch.empty(room, dtype=torch.float32, device=indices.device)
    counts = torch.empty(len(chunks.rows), dtype=torch.int32, device=indices.device)
    if loops and scale is None:
        scale = torch.ones(chunks.num_rows, device=indices.device)
    if len(chunks.rows):
        rows = chunks.first, chunks.last, first, chunks.rows, chunks.opens_row
        # In the place of what is not given stands a tensor that is not read.
        entries = indices, indices if positions is None else positions, counts if kept is None else kept
        factors = out_weights if weights is None else weights, out_weights if scale is None else scale
        results = columns, out_weights, counts
        kinds = {"has_positions": positions is not None, "is_weighted": weights is not None, "has_loops": loops}
        scales = {"scale_row": scale_row, "scale_column": scale_column}
        sizes = {"chunks": 8, "width": chunks.width, "num_warps": 4}
        key = "none" if kept is None else key
        launch(_compact_kernel, (triton.cdiv(len(chunks.rows), 8),))(
            *rows, *entries, *factors, *results, len(chunks.rows), key=key, **kinds, **scales, **sizes
        )
    return ChunkedMatrix(chunks, first, counts, columns, out_weights)


def select_rows(chunks: Chunks, indices: Tensor, weights: Tensor, kept: Tensor) -> ChunkedMatrix:
    """The matrix with the rows that are not kept emptied; nothing is moved for it."""
    counts = (chunks.last - chunks.first).int() * kept[chunks.rows]
    return ChunkedMatrix(chunks, chunks.first, counts, indices, weights)


def combine(chunks: Chunks, outs: list[Tensor], partials: list[Tensor]) -> None:
    """Write the rows of several chunks, which are the sums of their partial sums, for one result or two."""
    if not len(chunks.split_rows):
        return
    num_columns = outs[0].shape[1]
    block_columns = min(256, triton.next_power_of_2(num_columns))
    grid = (len(chunks.split_rows), triton.cdiv(num_columns, block_columns), len(outs))
    tensors = chunks.split_rows, chunks.split_slots, outs[0], partials[0], outs[-1], partials[-1]
    kinds = {"is_pair": len(outs) == 2, "block_columns": block_columns, "num_warps": 4}
    launch(_combine_kernel, grid)(*tensors, num_columns, **kinds)


def product_blocks(num_columns: int, dtype: torch.dtype) -> dict[str, int]:
    """Launch settings, the best over the paper's graphs: a row of the block is 512 bytes, 16 for each thread."""
    widest, chunks = (128, 4) if dtype == torch.float32 else (256, 8)
    block_columns = max(1, min(widest, triton.next_power_of_2(num_columns)))
    return {"block_chunks": chunks, "block_entries": 2, "block_columns": block_columns, "num_warps": chunks}
