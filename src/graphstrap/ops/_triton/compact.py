# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""The entries of a matrix that a view keeps, moved to the front of their chunk, with their weights.

Shapes stay static, so a CUDA graph can hold it all, and the product reads nothing that was dropped.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.ops._triton.chunks import ChunkedMatrix, Chunks
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch

if IS_AVAILABLE:
    import triton
    import triton.language as tl

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
        launch(_compact_kernel, (triton.cdiv(len(chunks.rows), 8),))(
            chunks.first,
            chunks.last,
            first,
            chunks.rows,
            chunks.opens_row,
            indices,
            indices if positions is None else positions,
            counts if kept is None else kept,
            out_weights if weights is None else weights,
            out_weights if scale is None else scale,
            columns,
            out_weights,
            counts,
            len(chunks.rows),
            key="none" if kept is None else key,
            has_positions=positions is not None,
            is_weighted=weights is not None,
            scale_row=scale_row,
            scale_column=scale_column,
            has_loops=loops,
            chunks=8,
            width=chunks.width,
            num_warps=4,
        )
    return ChunkedMatrix(chunks, first, counts, columns, out_weights)


def select_rows(chunks: Chunks, indices: Tensor, weights: Tensor, kept: Tensor) -> ChunkedMatrix:
    """The matrix with the rows that are not kept emptied; nothing is moved for it."""
    counts = (chunks.last - chunks.first).int() * kept[chunks.rows]
    return ChunkedMatrix(chunks, chunks.first, counts, indices, weights)
