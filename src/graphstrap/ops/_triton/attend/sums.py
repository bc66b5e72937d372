"""Weighted sums of table rows over the edges into each node, and their gradient for the table and the weights."""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.ops._triton.chunks import ChunkedMatrix, combine
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


if IS_AVAILABLE:
    import triton
    import triton.language as tl

    @triton.jit
    def _attend_kernel(
        first,
        counts,
        rows,
        slots,
        columns,
        weights,
        table,
        out,
        partial,
        num_chunks,
        num_heads,
        width,
        room,
        scale,
        heads_here: tl.constexpr,
        is_shared: tl.constexpr,
        blocks_per_head: tl.constexpr,
        is_large: tl.constexpr,
        block_chunks: tl.constexpr,
        block_entries: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """Weighted sums of table rows for a block of columns of one head, or of all heads together. `is_shared`: all
        heads have one table."""
        groups = blocks_per_head if heads_here > 1 else num_heads * blocks_per_head
        chunk = tl.program_id(0) // groups * block_chunks + tl.arange(0, block_chunks)
        group = tl.program_id(0) % groups
        own_head = group // blocks_per_head
        wanted = (group % blocks_per_head) * block_columns + tl.arange(0, block_columns)
        inside = wanted < width
        real = chunk < num_chunks
        begin = tl.load(first + chunk, mask=real, other=0).to(tl.int64)
        count = tl.load(counts + chunk, mask=real, other=0)
        total = tl.zeros((block_chunks, block_entries, block_columns), dtype=tl.float32)
        for done in range(0, tl.max(count, axis=0), block_entries):
            number = done + tl.arange(0, block_entries)
            valid = number[None, :] < count[:, None]
            place = begin[:, None] + number[None, :]
            column = tl.load(columns + place, mask=valid, other=0)
            if is_large:
                column = column.to(tl.int64)
            mask = valid[:, :, None] & inside[None, None, :]
            for other_head in tl.static_range(heads_here):
                head = own_head + other_head
                weight = tl.load(weights + head.to(tl.int64) * room + place, mask=valid, other=0.0)
                start = column * width if is_shared else (column * num_heads + head) * width
                source = start[:, :, None] + wanted[None, None, :]
                total += tl.load(table + source, mask=mask, other=0.0).to(tl.float32) * weight[:, :, None]
        out_width = width if heads_here > 1 else num_heads * width
        to_column = own_head * width + wanted
        _store_rows(out, partial, rows, slots, chunk, real, tl.sum(total, axis=1) * scale, out_width, to_column, inside)

    @triton.jit
    def _store_rows(out, partial, rows, slots, chunk, real, result, num_columns, columns, inside):
        """The sum of a row of one chunk, or the partial sum of a longer one."""
        slot = tl.load(slots + chunk, mask=real, other=-1).to(tl.int64)
        row = tl.load(rows + chunk, mask=real, other=0).to(tl.int64)
        whole = (real & (slot < 0))[:, None] & inside[None, :]
        split = (slot >= 0)[:, None] & inside[None, :]
        tl.store(out + row[:, None] * num_columns + columns[None, :], result.to(out.dtype.element_ty), mask=whole)
        tl.store(partial + slot[:, None] * num_columns + columns[None, :], result, mask=split)

    @triton.jit
    def _source_gradient_kernel(
        first,
        counts,
        rows,
        opens_row,
        slots,
        columns,
        places,
        weights,
        table,
        gradient,
        out,
        partial,
        for_weights,
        num_chunks,
        num_heads,
        num_edges,
        width,
        room,
        scale,
        is_averaged: tl.constexpr,
        is_shared: tl.constexpr,
        blocks_per_head: tl.constexpr,
        is_large: tl.constexpr,
        block_chunks: tl.constexpr,
        block_entries: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """dh of a block of one head's columns, and its part of da. `is_averaged`: all heads have one gradient;
        `is_shared`: they have one table, which gets none."""
        groups = num_heads * blocks_per_head
        chunk = tl.program_id(0) // groups * block_chunks + tl.arange(0, block_chunks)
        group = tl.program_id(0) % groups
        head, block = group // blocks_per_head, group % blocks_per_head
        wanted = block * block_columns + tl.arange(0, block_columns)
        inside = wanted < width
        real = chunk < num_chunks
        begin = tl.load(first + chunk, mask=real, other=0).to(tl.int64)
        count = tl.load(counts + chunk, mask=real, other=0)
        opens = tl.load(opens_row + chunk, mask=real, other=0) != 0
        row = tl.load(rows + chunk, mask=real, other=0)
        own_start = row.to(tl.int64) * width if is_shared else (row.to(tl.int64) * num_heads + head) * width
        own = own_start[:, None] + wanted[None, :]
        h = tl.load(table + own, mask=real[:, None] & inside[None, :], other=0.0).to(tl.float32)
        total = tl.zeros((block_chunks, block_entries, block_columns), dtype=tl.float32)
        for done in range(0, tl.max(count, axis=0), block_entries):
            number = done + tl.arange(0, block_entries)
            valid = number[None, :] < count[:, None]
            place = begin[:, None] + number[None, :]
            column = tl.load(columns + place, mask=valid, other=0)
            if is_large:
                column = column.to(tl.int64)
            weight = tl.load(weights + head.to(tl.int64) * room + place, mask=valid, other=0.0)
            start = column * width if is_averaged else (column * num_heads + head) * width
            mask = valid[:, :, None] & inside[None, None, :]
            g = tl.load(gradient + start[:, :, None] + wanted[None, None, :], mask=mask, other=0.0).to(tl.float32)
            total += g * weight[:, :, None]
            product = tl.sum(g * h[:, None, :], axis=2) * scale
            target = tl.load(places + place, mask=valid, other=0)
            target = tl.where(opens[:, None] & (number[None, :] == 0), num_edges + row[:, None], target)
            to = (target.to(tl.int64) * blocks_per_head + block) * num_heads + head
            tl.store(for_weights + to, product, mask=valid)
        if not is_shared:
            result = tl.sum(total, axis=1) * scale
            columns_out = head * width + wanted
            _store_rows(out, partial, rows, slots, chunk, real, result, num_heads * width, columns_out, inside)


def weighted_sums(matrix: ChunkedMatrix, weights: Tensor, h: Tensor, *, average: bool, shared: bool) -> Tensor:
    chunks, heads = matrix.chunks, len(weights)
    width = h.shape[1] if shared else h.shape[1] // heads
    out = torch.empty(len(h), width if average else heads * width, dtype=h.dtype, device=h.device)
    partial = torch.empty(chunks.num_slots, out.shape[1], dtype=torch.float32, device=h.device)
    if out.numel():
        blocks = _blocks(width, h.dtype)
        per_head = triton.cdiv(width, blocks["block_columns"])
        groups = per_head if average else heads * per_head
        launch(_attend_kernel, (triton.cdiv(len(chunks.rows), blocks["block_chunks"]) * groups,))(
            matrix.first,
            matrix.counts,
            chunks.rows,
            chunks.slots,
            matrix.columns,
            weights,
            h,
            out,
            partial,
            len(chunks.rows),
            heads,
            width,
            weights.shape[1],
            1.0 / heads if average else 1.0,
            heads_here=heads if average else 1,
            is_shared=shared,
            blocks_per_head=per_head,
            is_large=h.numel() >= 2**31,
            **blocks,
        )
        combine(chunks, [out], [partial])
    return out


def source_gradients(
    matrix: ChunkedMatrix, places: Tensor, weights: Tensor, h: Tensor, gradient: Tensor, *, average: bool, shared: bool
) -> tuple[Tensor | None, Tensor]:
    """dh, unless heads share the table, and the parts of da: (E + N, blocks of a head's columns, H)."""
    chunks, heads = matrix.chunks, len(weights)
    width = h.shape[1] if shared else h.shape[1] // heads
    blocks = _blocks(width, h.dtype)
    per_head = max(1, triton.cdiv(width, blocks["block_columns"]))
    out = torch.empty(h.shape, dtype=h.dtype, device=h.device)
    partial = torch.empty(0 if shared else chunks.num_slots, h.shape[1], dtype=torch.float32, device=h.device)
    num_edges = len(matrix.columns) - len(h)  # and a self-loop for each node
    for_weights = torch.empty(len(matrix.columns), per_head, heads, dtype=torch.float32, device=h.device)
    if out.numel():
        launch(_source_gradient_kernel, (triton.cdiv(len(chunks.rows), blocks["block_chunks"]) * heads * per_head,))(
            matrix.first,
            matrix.counts,
            chunks.rows,
            chunks.opens_row,
            chunks.slots,
            matrix.columns,
            places,
            weights,
            h,
            gradient.contiguous(),
            out,
            partial,
            for_weights,
            len(chunks.rows),
            heads,
            num_edges,
            width,
            weights.shape[1],
            1.0 / heads if average else 1.0,
            is_averaged=average,
            is_shared=shared,
            blocks_per_head=per_head,
            is_large=max(h.numel(), gradient.numel()) >= 2**31,
            **blocks,
        )
        if not shared:
            combine(chunks, [out], [partial])
    return None if shared else out, for_weights


def _blocks(width: int, dtype: torch.dtype) -> dict[str, int]:
    """Launch settings: a chunk for each warp, 512 bytes of a row at a time, 16 for each thread."""
    widest, chunks = (128, 4) if dtype == torch.float32 else (256, 8)
    block_columns = max(1, min(widest, triton.next_power_of_2(width)))
    return {"block_chunks": chunks, "block_entries": 2, "block_columns": block_columns, "num_warps": chunks}
