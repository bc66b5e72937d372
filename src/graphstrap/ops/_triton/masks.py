"""Which edges, columns and rows a view keeps, and how much each row then counts: the bits of `graph.keep`."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from graphstrap.ops._triton.launch import IS_AVAILABLE, launch

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

if IS_AVAILABLE:
    import triton
    import triton.language as tl

    @triton.jit
    def mix(x):
        """`graph.keep.mix` on uint32."""
        x = x ^ (x >> 16)
        x = x * 0x7FEB352D
        x = x ^ (x >> 15)
        x = x * 0x846CA68B
        return x ^ (x >> 16)

    @triton.jit
    def hash32(number, seed):
        """`graph.keep.hash32` of int64 numbers, as uint32."""
        first_key = mix((seed & 0xFFFFFFFF).to(tl.uint32) ^ 0x9E3779B9)
        second_key = mix((seed >> 32).to(tl.uint32) ^ first_key ^ 0x85EBCA6B)
        low = mix((number & 0xFFFFFFFF).to(tl.uint32) ^ first_key)
        return mix((low + second_key) ^ mix((number >> 32).to(tl.uint32)))

    @triton.jit
    def stream_seed(seed, stream):
        """`_torch.stream_seed`."""
        return ((hash32(seed, stream).to(tl.int64) << 31) ^ seed) & 0x7FFFFFFFFFFFFFFF

    @triton.jit
    def _keep_kernel(
        ids,
        seed,
        streams,
        thresholds,
        threshold,
        out,
        num_ids,
        has_ids: tl.constexpr,
        has_stream: tl.constexpr,
        has_thresholds: tl.constexpr,
    ):
        """`graph.keep.keep`, one byte for each id."""
        place = tl.program_id(0).to(tl.int64) * 1024 + tl.arange(0, 1024)
        inside = place < num_ids
        number = tl.load(ids + place, mask=inside, other=0) if has_ids else place
        seeds = tl.load(seed + tl.zeros_like(place))
        if has_stream:
            seeds = stream_seed(seeds, tl.load(streams + tl.zeros_like(place)))
        limit = tl.load(thresholds + place, mask=inside, other=0) if has_thresholds else threshold
        tl.store(out + place, (hash32(number, seeds).to(tl.int64) >= limit).to(tl.int8), mask=inside)

    @triton.jit
    def _mask_elements_kernel(
        table,
        rows,
        seed,
        streams,
        thresholds,
        threshold,
        out,
        width,
        num_columns,
        num_out,
        has_thresholds: tl.constexpr,
    ):
        """out = table where its element is kept, 0 elsewhere; an element's id is row * num_columns + column."""
        place = tl.program_id(0).to(tl.int64) * 1024 + tl.arange(0, 1024)
        column = place % width
        inside = (place < num_out) & (column < num_columns)
        row = tl.load(rows + place // width, mask=inside, other=0)
        seeds = stream_seed(tl.load(seed + tl.zeros_like(place)), tl.load(streams + tl.zeros_like(place)))
        limit = tl.load(thresholds + column, mask=inside, other=0) if has_thresholds else threshold
        stays = inside & (hash32(row * num_columns + column, seeds).to(tl.int64) >= limit)
        tl.store(out + place, tl.load(table + place, mask=stays, other=0.0), mask=place < num_out)

    @triton.jit
    def _mask_rows_kernel(
        table, rows, kept, out, num_table_rows, num_columns, num_out, has_rows: tl.constexpr, is_masked: tl.constexpr
    ):
        """out = table where its row is kept, 0 elsewhere and in the rows that only one of the two has."""
        place = tl.program_id(0).to(tl.int64) * 1024 + tl.arange(0, 1024)
        row = place // num_columns
        source = place
        if has_rows:
            row = tl.load(rows + row, mask=place < num_out, other=0)
            source = row * num_columns + place % num_columns
        stays = (place < num_out) & (row < num_table_rows)
        if is_masked:
            stays = stays & (tl.load(kept + row, mask=stays, other=0) != 0)
        value = tl.load(table + source, mask=stays, other=0.0)
        tl.store(out + place, value.to(out.dtype.element_ty), mask=place < num_out)

    @triton.jit
    def _scale_kernel(
        indptr, kept, weights, out, is_masked: tl.constexpr, is_weighted: tl.constexpr, is_symmetric: tl.constexpr
    ):
        """One over the degree of each row, or over its root. The self-loop counts 1."""
        row = tl.program_id(0)
        end = tl.load(indptr + row + 1)
        degree = tl.zeros((128,), dtype=tl.float32)
        for first in range(tl.load(indptr + row), end, 128):
            entry = first + tl.arange(0, 128).to(tl.int64)
            inside = entry < end
            weight = tl.load(weights + entry, mask=inside, other=0.0) if is_weighted else inside.to(tl.float32)
            if is_masked:
                weight *= tl.load(kept + entry, mask=inside, other=0).to(tl.float32)
            degree += weight
        total = tl.sum(degree, axis=0) + 1.0
        tl.store(out + row, tl.rsqrt(total) if is_symmetric else 1.0 / total)


def keep_bytes(
    num_ids: int,
    seed: int | Tensor,
    threshold: int | Tensor,
    *,
    device: torch.device,
    ids: Tensor | None = None,
    stream: int | None = None,
) -> Tensor:
    """(num_ids,) 1 for what survives; the bits of `graph.keep.keep`.

    `ids` None means 0, 1, 2, ...; with a `stream`, the seed is `_torch.stream_seed(seed, stream)`.
    """
    seed = torch.as_tensor(seed, dtype=torch.int64, device=device)
    out = torch.empty(num_ids, dtype=torch.int8, device=device)
    if num_ids:
        per_id = isinstance(threshold, Tensor)
        streams = seed if stream is None else _constant(stream, device)
        thresholds = (threshold, 0) if per_id else (seed, threshold)
        kinds = {"has_ids": ids is not None, "has_stream": stream is not None, "has_thresholds": per_id}
        launch(_keep_kernel, (triton.cdiv(num_ids, 1024),))(
            seed if ids is None else ids, seed, streams, *thresholds, out, num_ids, **kinds
        )
    return out


@cache
def _constant(value: int, device: torch.device) -> Tensor:
    return torch.tensor(value, device=device)


def mask_rows(
    table: Tensor, kept: Tensor | None, *, num_rows: int, dtype: torch.dtype, rows: Tensor | None = None
) -> Tensor:
    """The table with its dropped rows set to 0, cut or filled up with zeros to `num_rows`, in another type.

    With `rows`, those `num_rows` rows of the table alone.
    """
    table = table.contiguous()
    out = torch.empty(num_rows, table.shape[1], dtype=dtype, device=table.device)
    if out.numel():
        tensors = table, table if rows is None else rows, table if kept is None else kept, out
        num_table_rows = len(table) if rows is not None else min(num_rows, len(table))
        kinds = {"has_rows": rows is not None, "is_masked": kept is not None}
        launch(_mask_rows_kernel, (triton.cdiv(out.numel(), 1024),))(
            *tensors, num_table_rows, table.shape[1], out.numel(), **kinds
        )
    return out


def mask_elements(
    table: Tensor, rows: Tensor, seed: int | Tensor, threshold: int | Tensor, *, num_columns: int, stream: int
) -> Tensor:
    """The table with each element kept or set to 0: the bits of `_torch.kept_elements`.

    `rows` are the table's rows by their global numbers; columns from `num_columns` on are zeros and stay so.
    """
    table, out = table.contiguous(), torch.empty(table.shape, dtype=table.dtype, device=table.device)
    seed = torch.as_tensor(seed, dtype=torch.int64, device=table.device)
    if out.numel():
        per_column, streams = isinstance(threshold, Tensor), _constant(stream, table.device)
        thresholds = (threshold, 0) if per_column else (seed, threshold)
        tensors, sizes = (table, rows.contiguous(), seed, streams), (table.shape[1], num_columns, out.numel())
        launch(_mask_elements_kernel, (triton.cdiv(out.numel(), 1024),))(
            *tensors, *thresholds, out, *sizes, has_thresholds=per_column
        )
    return out


def degree_scale(indptr: Tensor, kept: Tensor | None, weights: Tensor | None, *, symmetric: bool) -> Tensor:
    """(N,) 1 / degree of the masked graph with self-loops, or 1 / sqrt(degree)."""
    out = torch.empty(len(indptr) - 1, dtype=torch.float32, device=indptr.device)
    if len(out):
        tensors = indptr, indptr if kept is None else kept, out if weights is None else weights, out
        kinds = {"is_masked": kept is not None, "is_weighted": weights is not None, "is_symmetric": symmetric}
        launch(_scale_kernel, (len(out),))(*tensors, **kinds, num_warps=1)
    return out
