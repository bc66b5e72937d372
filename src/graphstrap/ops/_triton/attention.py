"""Attention as Triton kernels: the weights are made again wherever they are needed, no E x D intermediate, no atomics.

With a_ij the weight of the edge from j to i, s(z) = 1 where z > 0, else the slope, and g the gradient of the output:

    log_total_i  =  log sum_j exp(score_ij)              by row, online: the one thing kept for the backward pass
    out_i        =  sum_j a_ij h_j                       by chunks of each row
    dh_j         =  sum_i a_ij g_i                       by chunks of the transpose; the same pass over g gives
    da_ij        =  g_i . h_j
    draw_ij      =  a_ij (da_ij - sum_k a_ik da_ik) s(raw_ij)                     by row
    dtarget_i, dsource_j  =  sums of draw over the entries of row i, of column j

The sums with h and g are here, what is scores and weights in `attention_weights.py`. A program takes some chunks of
rows, one head, and a block of the head's columns; da is the sum over these blocks. Softmax and sums are float32,
whatever h is. Nothing waits for the device and no shape depends on data, so a CUDA graph can hold all of it.
Memory besides the results: E H weights for a moment, then E H numbers of da for each block of columns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphstrap.graph import Graph, View
from graphstrap.ops._csr.attention import Kind, is_worth_summing, times_heads
from graphstrap.ops._csr.products import best_form
from graphstrap.ops._torch import Scores, apply
from graphstrap.ops._triton.attention_weights import (
    KeptEdges,
    kept_edges,
    log_totals,
    score_gradients,
    sum_sources,
    weights_of,
)
from graphstrap.ops._triton.chunks import ChunkedMatrix, combine, product_blocks
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch
from graphstrap.ops._triton.products import column_mask, masked_weight, project

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


def attend(graph: Graph, view: View, h: Tensor, scores: Scores, average: bool) -> Tensor:
    """See `graphstrap.ops.attend`."""
    return _attend(graph, view, h, scores, Kind(scores.slope, average))


def attend_features(graph: Graph, view: View, weight: Tensor, scores: Scores) -> Tensor:
    """See `graphstrap.ops.attend_features`."""
    features = best_form(graph, 0, weight, aligned=True)
    if not is_worth_summing(features, view, weight):
        return attend(graph, view, project(graph, view, [weight], 0)[0], scores, False)
    masked = masked_weight(weight, column_mask(graph, view, 0), features)
    sums = _attend(graph, view, features, scores, Kind(scores.slope, is_shared=True))
    return times_heads(sums, masked, scores.num_heads)


def _attend(graph: Graph, view: View, h: Tensor, scores: Scores, kind: Kind) -> Tensor:
    edges = kept_edges(graph, view, scores.edge is not None)
    source, target, edge = (None if part is None else part.contiguous() for part in scores[:3])
    return apply(_Attend, h.contiguous(), source, target, edge, kind, graph, edges)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        source: Tensor,
        target: Tensor,
        edge: Tensor | None,
        kind: Kind,
        graph: Graph,
        edges: KeptEdges,
    ) -> Tensor:
        scores = Scores(source, target, edge, kind.slope)
        log_total = log_totals(graph, edges, scores)
        weights = weights_of(graph, edges, scores, log_total, transposed=False)
        ctx.save_for_backward(h, source, target, edge, log_total)
        ctx.kind, ctx.graph, ctx.edges = kind, graph, edges
        return weighted_sums(edges.forward, weights, h, kind)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        h, source, target, edge, log_total = ctx.saved_tensors
        scores, graph, edges = Scores(source, target, edge, ctx.kind.slope), ctx.graph, ctx.edges
        weights = weights_of(graph, edges, scores, log_total, transposed=True)
        for_h, for_weights = source_gradients(edges, weights, h, gradient, ctx.kind)
        del weights
        for_raw, for_target = score_gradients(graph, edges, scores, log_total, for_weights)
        for_source = sum_sources(graph, for_raw, source)
        for_edge = None if edge is None else for_raw.to(edge.dtype)
        return for_h, for_source, for_target, for_edge, None, None, None


def weighted_sums(matrix: ChunkedMatrix, weights: Tensor, h: Tensor, kind: Kind) -> Tensor:
    chunks, heads, average, shared = matrix.chunks, len(weights), kind.is_averaged, kind.is_shared
    width = h.shape[1] if shared else h.shape[1] // heads
    out = torch.empty(len(h), width if average else heads * width, dtype=h.dtype, device=h.device)
    partial = torch.empty(chunks.num_slots, out.shape[1], dtype=torch.float32, device=h.device)
    if out.numel():
        blocks = product_blocks(width, h.dtype)
        per_head = triton.cdiv(width, blocks["block_columns"])
        grid = (triton.cdiv(len(chunks.rows), blocks["block_chunks"]) * (per_head if average else heads * per_head),)
        tensors = matrix.first, matrix.counts, chunks.rows, chunks.slots, matrix.columns, weights, h, out, partial
        numbers = len(chunks.rows), heads, width, weights.shape[1], 1.0 / heads if average else 1.0
        kinds = {"heads_here": heads if average else 1, "is_shared": shared, "is_large": h.numel() >= 2**31}
        launch(_attend_kernel, grid)(*tensors, *numbers, **kinds, blocks_per_head=per_head, **blocks)
        combine(chunks, [out], [partial])
    return out


def source_gradients(
    edges: KeptEdges, weights: Tensor, h: Tensor, gradient: Tensor, kind: Kind
) -> tuple[Tensor | None, Tensor]:
    """dh, unless heads share the table, and the parts of da: (E + N, blocks of a head's columns, H)."""
    matrix, places, average, shared = edges.backward, edges.backward_places, kind.is_averaged, kind.is_shared
    chunks, heads = matrix.chunks, len(weights)
    width = h.shape[1] if shared else h.shape[1] // heads
    blocks = product_blocks(width, h.dtype)
    per_head = max(1, triton.cdiv(width, blocks["block_columns"]))
    out = torch.empty(h.shape, dtype=h.dtype, device=h.device)
    partial = torch.empty(0 if shared else chunks.num_slots, h.shape[1], dtype=torch.float32, device=h.device)
    num_edges = len(matrix.columns) - len(h)  # and a self-loop for each node
    for_weights = torch.empty(len(matrix.columns), per_head, heads, dtype=torch.float32, device=h.device)
    if out.numel():
        grid = (triton.cdiv(len(chunks.rows), blocks["block_chunks"]) * heads * per_head,)
        entries = matrix.first, matrix.counts, chunks.rows, chunks.opens_row, chunks.slots, matrix.columns, places
        tables = weights, h, gradient.contiguous(), out, partial, for_weights
        numbers = len(chunks.rows), heads, num_edges, width, weights.shape[1], 1.0 / heads if average else 1.0
        is_large = max(h.numel(), gradient.numel()) >= 2**31
        kinds = {"is_averaged": average, "is_shared": shared, "is_large": is_large}
        launch(_source_gradient_kernel, grid)(*entries, *tables, *numbers, **kinds, blocks_per_head=per_head, **blocks)
        if not shared:
            combine(chunks, [out], [partial])
    return None if shared else out, for_weights


if IS_AVAILABLE:
    import triton
    import triton.language as tl

    from graphstrap.ops._triton.chunks import store_rows

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
        store_rows(out, partial, rows, slots, chunk, real, tl.sum(total, axis=1) * scale, out_width, to_column, inside)

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
            store_rows(out, partial, rows, slots, chunk, real, result, num_heads * width, columns_out, inside)
