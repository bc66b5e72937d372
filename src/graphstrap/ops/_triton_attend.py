# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""Attention as Triton kernels: the weights are made again wherever they are needed, no E x D intermediate, no atomics.

With a_ij the weight of the edge from j to i, s(z) = 1 where z > 0, else the slope, and g the gradient of the output:

    log_total_i  =  log sum_j exp(score_ij)              by row, online: the one thing kept for the backward pass
    out_i        =  sum_j a_ij h_j                       by chunks of each row
    dh_j         =  sum_i a_ij g_i                       by chunks of the transpose; the same pass over g gives
    da_ij        =  g_i . h_j
    draw_ij      =  a_ij (da_ij - sum_k a_ik da_ik) s(raw_ij)                     by row
    dtarget_i, dsource_j  =  sums of draw over the entries of row i, of column j

Rows are cut into chunks as in `_triton_sparse.py`, whose compaction leaves out what a view drops. A program takes some
chunks, one head, and a block of the head's columns; da is the sum of its parts over these blocks. Softmax and sums are
float32, whatever h is. Nothing waits for the device and no shape depends on data, so a CUDA graph can hold all of it.
Memory besides the results: E H weights for a moment, then E H parts of da for each block of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphstrap.graph import Graph
from graphstrap.ops import _csr, _csr_attend, _triton
from graphstrap.ops._csr_attend import is_worth_summing, times_heads
from graphstrap.ops._scores import Scores
from graphstrap.ops._triton_sparse import IS_AVAILABLE, ChunkedMatrix, combine, compact, launch
from graphstrap.view import View

if IS_AVAILABLE:
    import triton
    import triton.language as tl

    @triton.jit
    def _leaky(raw, slope):
        return tl.where(raw > 0, raw, slope * raw)

    @triton.jit
    def _raw_scores(source, target, edge, sources, targets, places, heads, num_heads, here, has_edge: tl.constexpr):
        """source[sources] + target[targets] + edge[places] for some heads; 0 where not `here`."""
        raw = tl.load(source + sources * num_heads + heads, mask=here, other=0.0).to(tl.float32)
        raw += tl.load(target + targets * num_heads + heads, mask=here, other=0.0).to(tl.float32)
        if has_edge:
            raw += tl.load(edge + places.to(tl.int64) * num_heads + heads, mask=here, other=0.0).to(tl.float32)
        return raw

    @triton.jit
    def _log_total_kernel(
        indptr,
        indices,
        kept,
        source,
        target,
        edge,
        out,
        num_heads,
        num_edges,
        slope,
        is_masked: tl.constexpr,
        has_edge: tl.constexpr,
        block_heads: tl.constexpr,
        block: tl.constexpr,
    ):
        """log of the sum of exp(score) over each row's kept edges and its self-loop."""
        row = tl.program_id(0)
        heads = tl.arange(0, block_heads)
        real = heads < num_heads
        own = _raw_scores(source, target, edge, row, row, num_edges + row, heads, num_heads, real, has_edge)
        highest = _leaky(own, slope)
        total = tl.full((block_heads,), 1.0, tl.float32)
        end = tl.load(indptr + row + 1)
        for first in range(tl.load(indptr + row), end, block):
            entry = first + tl.arange(0, block)
            stays = entry < end
            if is_masked:
                stays = stays & (tl.load(kept + entry, mask=stays, other=0) != 0)
            column = tl.load(indices + entry, mask=stays, other=0)[:, None]
            here = stays[:, None] & real[None, :]
            raw = _raw_scores(
                source, target, edge, column, row, entry[:, None], heads[None, :], num_heads, here, has_edge
            )
            score = tl.where(stays[:, None], _leaky(raw, slope), float("-inf"))
            higher = tl.maximum(highest, tl.max(score, axis=0))
            total = total * tl.exp(highest - higher) + tl.sum(tl.exp(score - higher[None, :]), axis=0)
            highest = higher
        tl.store(out + row * num_heads + heads, highest + tl.log(total), mask=real)

    @triton.jit
    def _weights_kernel(
        first,
        counts,
        rows,
        opens_row,
        columns,
        places,
        source,
        target,
        edge,
        log_total,
        out,
        num_chunks,
        num_heads,
        num_edges,
        room,
        slope,
        is_transposed: tl.constexpr,
        has_edge: tl.constexpr,
        chunks: tl.constexpr,
        width: tl.constexpr,
    ):
        """(H, room) the weight of every entry of some chunks, for one head; sources are rows in the transpose."""
        chunk = tl.program_id(0) * chunks + tl.arange(0, chunks)
        head = tl.program_id(1)
        valid = chunk < num_chunks
        begin = tl.load(first + chunk, mask=valid, other=0).to(tl.int64)
        count = tl.load(counts + chunk, mask=valid, other=0)
        opens = tl.load(opens_row + chunk, mask=valid, other=0) != 0
        row = tl.load(rows + chunk, mask=valid, other=0)[:, None]
        for done in range(0, tl.max(count, axis=0), width):
            number = done + tl.arange(0, width)[None, :]
            here = number < count[:, None]
            entry = begin[:, None] + number
            column = tl.load(columns + entry, mask=here, other=0)
            place = tl.load(places + entry, mask=here, other=0) if has_edge else column
            place = tl.where(opens[:, None] & (number == 0), num_edges + row, place)
            sources, targets = column, row
            if is_transposed:
                sources, targets = row, column
            raw = _raw_scores(source, target, edge, sources, targets, place, head, num_heads, here, has_edge)
            log_of_row = tl.load(log_total + targets * num_heads + head, mask=here, other=0.0)
            tl.store(out + head.to(tl.int64) * room + entry, tl.exp(_leaky(raw, slope) - log_of_row), mask=here)

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

    @triton.jit
    def _sum_of_parts(parts, place, heads, here, num_heads, num_parts: tl.constexpr):
        total = tl.load(parts + place * num_parts * num_heads + heads, mask=here, other=0.0)
        for part in tl.static_range(1, num_parts):
            total += tl.load(parts + (place * num_parts + part) * num_heads + heads, mask=here, other=0.0)
        return total

    @triton.jit
    def _score_gradient_kernel(
        indptr,
        indices,
        kept,
        source,
        target,
        edge,
        log_total,
        for_weights,
        for_raw,
        for_target,
        num_heads,
        num_edges,
        slope,
        num_parts: tl.constexpr,
        is_masked: tl.constexpr,
        has_edge: tl.constexpr,
        block_heads: tl.constexpr,
        block: tl.constexpr,
    ):
        """draw of every entry of a row, 0 for dropped ones, and their sum."""
        row = tl.program_id(0)
        heads = tl.arange(0, block_heads)
        real = heads < num_heads
        begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
        log_of_row = tl.load(log_total + row * num_heads + heads, mask=real, other=0.0)
        own = (num_edges + row).to(tl.int64)
        own_raw = _raw_scores(source, target, edge, row, row, own, heads, num_heads, real, has_edge)
        own_weight = tl.exp(_leaky(own_raw, slope) - log_of_row)
        own_part = _sum_of_parts(for_weights, own, heads, real, num_heads, num_parts)
        mean = own_weight * own_part
        for first in range(begin, end, block):
            entry = first + tl.arange(0, block)
            stays = entry < end
            if is_masked:
                stays = stays & (tl.load(kept + entry, mask=stays, other=0) != 0)
            column = tl.load(indices + entry, mask=stays, other=0)[:, None]
            here = stays[:, None] & real[None, :]
            raw = _raw_scores(
                source, target, edge, column, row, entry[:, None], heads[None, :], num_heads, here, has_edge
            )
            weight = tl.exp(tl.where(here, _leaky(raw, slope) - log_of_row[None, :], float("-inf")))
            part = _sum_of_parts(for_weights, entry[:, None], heads[None, :], here, num_heads, num_parts)
            mean += tl.sum(weight * part, axis=0)
        own_result = own_weight * (own_part - mean) * tl.where(own_raw > 0, 1.0, slope)
        tl.store(for_raw + own * num_heads + heads, own_result, mask=real)
        total = own_result
        for first in range(begin, end, block):
            entry = first + tl.arange(0, block)
            inside = entry < end
            stays = inside
            if is_masked:
                stays = stays & (tl.load(kept + entry, mask=stays, other=0) != 0)
            column = tl.load(indices + entry, mask=stays, other=0)[:, None]
            here = stays[:, None] & real[None, :]
            raw = _raw_scores(
                source, target, edge, column, row, entry[:, None], heads[None, :], num_heads, here, has_edge
            )
            weight = tl.exp(tl.where(here, _leaky(raw, slope) - log_of_row[None, :], float("-inf")))
            part = _sum_of_parts(for_weights, entry[:, None], heads[None, :], here, num_heads, num_parts)
            result = weight * (part - mean[None, :]) * tl.where(raw > 0, 1.0, slope)
            to = for_raw + entry[:, None] * num_heads + heads[None, :]
            tl.store(to, result, mask=inside[:, None] & real[None, :])
            total += tl.sum(result, axis=0)
        tl.store(for_target + row * num_heads + heads, total.to(for_target.dtype.element_ty), mask=real)

    @triton.jit
    def _sum_sources_kernel(
        indptr, positions, for_raw, out, num_heads, num_edges, block_heads: tl.constexpr, block: tl.constexpr
    ):
        """Sums of draw over the edges out of each node and its self-loop."""
        row = tl.program_id(0)
        heads = tl.arange(0, block_heads)
        real = heads < num_heads
        own = (num_edges + row).to(tl.int64)
        total = tl.load(for_raw + own * num_heads + heads, mask=real, other=0.0)
        end = tl.load(indptr + row + 1)
        for first in range(tl.load(indptr + row), end, block):
            entry = first + tl.arange(0, block)
            place = tl.load(positions + entry, mask=entry < end, other=0).to(tl.int64)[:, None]
            here = (entry < end)[:, None] & real[None, :]
            total += tl.sum(tl.load(for_raw + place * num_heads + heads[None, :], mask=here, other=0.0), axis=0)
        tl.store(out + row * num_heads + heads, total.to(out.dtype.element_ty), mask=real)


@dataclass(frozen=True, eq=False)
class _Edges:
    """What a view keeps of a graph's edges, in both directions, with self-loops; worked out once for each view."""

    kept: Tensor | None
    forward: ChunkedMatrix
    backward: ChunkedMatrix
    backward_places: Tensor  # of the transpose's entries in `graph.indices`; a self-loop holds its node
    forward_places: Tensor | None  # the same of the forward entries, where edges have scores


_kept: WeakKeyDictionary[View, WeakKeyDictionary[Graph, dict[bool, _Edges]]] = WeakKeyDictionary()


def attend(graph: Graph, view: View, h: Tensor, scores: Scores, average: bool) -> Tensor:
    """See `graphstrap.ops.attend`."""
    if h.dtype == torch.float64:
        return _csr_attend.attend(graph, view, h, scores, average)
    return _attend(graph, view, h, scores, average=average, shared=False)


def attend_features(graph: Graph, view: View, weight: Tensor, scores: Scores) -> Tensor:
    """See `graphstrap.ops.attend_features`."""
    if weight.dtype == torch.float64:
        return _csr_attend.attend_features(graph, view, weight, scores)
    features = _csr.best_form(graph, 0, weight, aligned=True)
    if not is_worth_summing(features, view, weight):
        return attend(graph, view, _triton.project(graph, view, weight, 0), scores, False)
    masked = _triton.masked_weight(weight, _triton.column_mask(graph, view, 0), features)
    return times_heads(_attend(graph, view, features, scores, average=False, shared=True), masked, scores.num_heads)


def _attend(graph: Graph, view: View, h: Tensor, scores: Scores, *, average: bool, shared: bool) -> Tensor:
    edges = _edges(graph, view, scores.edge is not None)
    source, target, edge = (None if part is None else part.contiguous() for part in scores[:3])
    result: Tensor = _Attend.apply(h.contiguous(), source, target, edge, scores.slope, average, shared, graph, edges)  # type: ignore[no-untyped-call]
    return result


def _edges(graph: Graph, view: View, with_places: bool) -> _Edges:
    found = _kept.setdefault(view, WeakKeyDictionary()).setdefault(graph, {})
    if with_places not in found:
        forward, backward = _triton.adjacency(graph, view, "sum")
        kept, back = _triton.kept_edge_bytes(graph, view), graph.transpose
        positions = back.edge_positions
        order = torch.arange(graph.num_edges, dtype=torch.int32, device=graph.device)
        places = compact(forward.chunks, order, kept=kept, loops=True).columns if with_places else None
        turned = compact(backward.chunks, positions.int(), kept=kept, positions=positions, loops=True).columns
        found[with_places] = _Edges(kept, forward, backward, turned, places)
    return found[with_places]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        source: Tensor,
        target: Tensor,
        edge: Tensor | None,
        slope: float,
        average: bool,
        shared: bool,
        graph: Graph,
        edges: _Edges,
    ) -> Tensor:
        scores = Scores(source, target, edge, slope)
        log_total = _log_total(graph, edges, scores)
        weights = _weights(graph, edges, scores, log_total, transposed=False)
        out = _weighted_sums(edges.forward, weights, h, average=average, shared=shared)
        ctx.save_for_backward(h, source, target, edge, log_total)
        ctx.slope, ctx.average, ctx.shared, ctx.graph, ctx.edges = slope, average, shared, graph, edges
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        h, source, target, edge, log_total = ctx.saved_tensors
        scores, graph, edges = Scores(source, target, edge, ctx.slope), ctx.graph, ctx.edges
        weights = _weights(graph, edges, scores, log_total, transposed=True)
        kinds = {"average": ctx.average, "shared": ctx.shared}
        for_h, for_weights = _source_gradients(edges.backward, edges.backward_places, weights, h, gradient, **kinds)
        del weights
        for_raw, for_target = _score_gradients(graph, edges, scores, log_total, for_weights)
        for_source = _sum_sources(graph, for_raw, source)
        for_edge = None if edge is None else for_raw.to(edge.dtype)
        return for_h, for_source, for_target, for_edge, None, None, None, None, None


def _log_total(graph: Graph, edges: _Edges, scores: Scores) -> Tensor:
    kept = edges.kept
    out = torch.empty(scores.target.shape, dtype=torch.float32, device=graph.device)
    if graph.num_nodes:
        launch(_log_total_kernel, (graph.num_nodes,))(
            graph.indptr,
            graph.indices,
            graph.indptr if kept is None else kept,
            scores.source,
            scores.target,
            scores.source if scores.edge is None else scores.edge,
            out,
            scores.num_heads,
            graph.num_edges,
            scores.slope,
            is_masked=kept is not None,
            has_edge=scores.edge is not None,
            block_heads=triton.next_power_of_2(scores.num_heads),
            block=32,
            num_warps=1,
        )
    return out


def _weights(graph: Graph, edges: _Edges, scores: Scores, log_total: Tensor, *, transposed: bool) -> Tensor:
    """(H, entries) the weights of what the view keeps, in the places of one of its two matrices."""
    matrix = edges.backward if transposed else edges.forward
    places = edges.backward_places if transposed else edges.forward_places
    chunks, heads = matrix.chunks, scores.num_heads
    out = torch.empty(heads, len(matrix.columns), dtype=torch.float32, device=log_total.device)
    if len(chunks.rows):
        launch(_weights_kernel, (triton.cdiv(len(chunks.rows), 8), heads))(
            matrix.first,
            matrix.counts,
            chunks.rows,
            chunks.opens_row,
            matrix.columns,
            matrix.columns if places is None else places,
            scores.source,
            scores.target,
            scores.source if scores.edge is None else scores.edge,
            log_total,
            out,
            len(chunks.rows),
            heads,
            graph.num_edges,
            out.shape[1],
            scores.slope,
            is_transposed=transposed,
            has_edge=scores.edge is not None,
            chunks=8,
            width=32,
            num_warps=4,
        )
    return out


def _weighted_sums(matrix: ChunkedMatrix, weights: Tensor, h: Tensor, *, average: bool, shared: bool) -> Tensor:
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


def _source_gradients(
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


def _score_gradients(
    graph: Graph, edges: _Edges, scores: Scores, log_total: Tensor, for_weights: Tensor
) -> tuple[Tensor, Tensor]:
    """draw, (E + N, H), and its sums by target."""
    kept, heads = edges.kept, scores.num_heads
    for_raw = torch.empty(len(for_weights), heads, dtype=torch.float32, device=graph.device)
    for_target = torch.empty(scores.target.shape, dtype=scores.target.dtype, device=graph.device)
    if graph.num_nodes:
        launch(_score_gradient_kernel, (graph.num_nodes,))(
            graph.indptr,
            graph.indices,
            graph.indptr if kept is None else kept,
            scores.source,
            scores.target,
            scores.source if scores.edge is None else scores.edge,
            log_total,
            for_weights,
            for_raw,
            for_target,
            heads,
            graph.num_edges,
            scores.slope,
            num_parts=for_weights.shape[1],
            is_masked=kept is not None,
            has_edge=scores.edge is not None,
            block_heads=triton.next_power_of_2(heads),
            block=32,
            num_warps=1,
        )
    return for_raw, for_target


def _sum_sources(graph: Graph, for_raw: Tensor, source: Tensor) -> Tensor:
    back = graph.transpose
    out = torch.empty(source.shape, dtype=source.dtype, device=source.device)
    if len(out):
        launch(_sum_sources_kernel, (len(out),))(
            back.indptr,
            back.edge_positions,
            for_raw,
            out,
            out.shape[1],
            graph.num_edges,
            block_heads=triton.next_power_of_2(out.shape[1]),
            block=32,
            num_warps=1,
        )
    return out


def _blocks(width: int, dtype: torch.dtype) -> dict[str, int]:
    """Launch settings: a chunk for each warp, 512 bytes of a row at a time, 16 for each thread."""
    widest, chunks = (128, 4) if dtype == torch.float32 else (256, 8)
    block_columns = max(1, min(widest, triton.next_power_of_2(width)))
    return {"block_chunks": chunks, "block_entries": 2, "block_columns": block_columns, "num_warps": chunks}
