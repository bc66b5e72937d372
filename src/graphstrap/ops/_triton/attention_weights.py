"""The weights of attention, made again wherever they are needed, and the gradient of the scores behind them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.ops._torch import Scores
from graphstrap.ops._triton.chunks import ChunkedMatrix, compact
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch
from graphstrap.ops._triton.products import adjacency, kept_edge_bytes
from graphstrap.ops.once import once

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


@dataclass(frozen=True, eq=False)
class KeptEdges:
    """What a view keeps of a graph's edges, in both directions, with self-loops."""

    kept: Tensor | None
    forward: ChunkedMatrix
    backward: ChunkedMatrix
    backward_places: Tensor  # of the transpose's entries in `graph.indices`; a self-loop holds its node
    forward_places: Tensor | None  # the same of the forward entries, where edges have scores


@once
def kept_edges(graph: Graph, view: View, with_places: bool) -> KeptEdges:
    forward, backward = adjacency(graph, view, "sum")
    kept, positions = kept_edge_bytes(graph, view), graph.transpose.edge_positions
    order = torch.arange(graph.num_edges, dtype=torch.int32, device=graph.device)
    places = compact(forward.chunks, order, kept=kept, loops=True).columns if with_places else None
    turned = compact(backward.chunks, positions.int(), kept=kept, positions=positions, loops=True).columns
    return KeptEdges(kept, forward, backward, turned, places)


def _tables(scores: Scores) -> tuple[Tensor, Tensor, Tensor]:
    """Of all scores; where edges have none, one that stands in and is not read."""
    return scores.source, scores.target, scores.source if scores.edge is None else scores.edge


def _by_row(num_heads: int) -> dict[str, int]:
    """Launch settings of kernels that take a row at a time, with all its heads."""
    return {"block_heads": triton.next_power_of_2(num_heads), "block": 32, "num_warps": 1}


def log_totals(graph: Graph, edges: KeptEdges, scores: Scores) -> Tensor:
    kept, heads = edges.kept, scores.num_heads
    out = torch.empty(scores.target.shape, dtype=torch.float32, device=graph.device)
    if graph.num_nodes:
        tensors = graph.indptr, graph.indices, graph.indptr if kept is None else kept, *_tables(scores), out
        kinds = {"is_masked": kept is not None, "has_edge": scores.edge is not None, **_by_row(heads)}
        launch(_log_total_kernel, (graph.num_nodes,))(*tensors, heads, graph.num_edges, scores.slope, **kinds)
    return out


def weights_of(graph: Graph, edges: KeptEdges, scores: Scores, log_total: Tensor, *, transposed: bool) -> Tensor:
    """(H, entries) the weights of what the view keeps, in the places of one of its two matrices."""
    matrix = edges.backward if transposed else edges.forward
    places = edges.backward_places if transposed else edges.forward_places
    chunks, heads = matrix.chunks, scores.num_heads
    out = torch.empty(heads, len(matrix.columns), dtype=torch.float32, device=log_total.device)
    if len(chunks.rows):
        entries = matrix.first, matrix.counts, chunks.rows, chunks.opens_row, matrix.columns
        tables = matrix.columns if places is None else places, *_tables(scores), log_total, out
        numbers = len(chunks.rows), heads, graph.num_edges, out.shape[1], scores.slope
        kinds = {"is_transposed": transposed, "has_edge": scores.edge is not None}
        launch(_weights_kernel, (triton.cdiv(len(chunks.rows), 8), heads))(
            *entries, *tables, *numbers, **kinds, chunks=8, width=32, num_warps=4
        )
    return out


def score_gradients(
    graph: Graph, edges: KeptEdges, scores: Scores, log_total: Tensor, for_weights: Tensor
) -> tuple[Tensor, Tensor]:
    """draw, (E + N, H), and its sums by target."""
    kept, heads = edges.kept, scores.num_heads
    for_raw = torch.empty(len(for_weights), heads, dtype=torch.float32, device=graph.device)
    for_target = torch.empty(scores.target.shape, dtype=scores.target.dtype, device=graph.device)
    if graph.num_nodes:
        rows = graph.indptr, graph.indices, graph.indptr if kept is None else kept
        tables = *_tables(scores), log_total, for_weights, for_raw, for_target
        kinds = {"is_masked": kept is not None, "has_edge": scores.edge is not None, **_by_row(heads)}
        launch(_score_gradient_kernel, (graph.num_nodes,))(
            *rows, *tables, heads, graph.num_edges, scores.slope, num_parts=for_weights.shape[1], **kinds
        )
    return for_raw, for_target


def sum_sources(graph: Graph, for_raw: Tensor, source: Tensor) -> Tensor:
    back = graph.transpose
    out = torch.empty(source.shape, dtype=source.dtype, device=source.device)
    if len(out):
        tensors, heads = (back.indptr, back.edge_positions, for_raw, out), out.shape[1]
        launch(_sum_sources_kernel, (len(out),))(*tensors, heads, graph.num_edges, **_by_row(heads))
    return out


if IS_AVAILABLE:
    import triton
    import triton.language as tl

    @triton.jit
    def leaky(raw, slope):
        return tl.where(raw > 0, raw, slope * raw)

    @triton.jit
    def raw_scores(source, target, edge, sources, targets, places, heads, num_heads, here, has_edge: tl.constexpr):
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
        own = raw_scores(source, target, edge, row, row, num_edges + row, heads, num_heads, real, has_edge)
        highest = leaky(own, slope)
        total = tl.full((block_heads,), 1.0, tl.float32)
        end = tl.load(indptr + row + 1)
        for first in range(tl.load(indptr + row), end, block):
            entry = first + tl.arange(0, block)
            stays = entry < end
            if is_masked:
                stays = stays & (tl.load(kept + entry, mask=stays, other=0) != 0)
            column = tl.load(indices + entry, mask=stays, other=0)[:, None]
            here = stays[:, None] & real[None, :]
            raw = raw_scores(
                source, target, edge, column, row, entry[:, None], heads[None, :], num_heads, here, has_edge
            )
            score = tl.where(stays[:, None], leaky(raw, slope), float("-inf"))
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
            raw = raw_scores(source, target, edge, sources, targets, place, head, num_heads, here, has_edge)
            log_of_row = tl.load(log_total + targets * num_heads + head, mask=here, other=0.0)
            tl.store(out + head.to(tl.int64) * room + entry, tl.exp(leaky(raw, slope) - log_of_row), mask=here)

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
        own_raw = raw_scores(source, target, edge, row, row, own, heads, num_heads, real, has_edge)
        own_weight = tl.exp(leaky(own_raw, slope) - log_of_row)
        own_part = _sum_of_parts(for_weights, own, heads, real, num_heads, num_parts)
        mean = own_weight * own_part
        for first in range(begin, end, block):
            entry = first + tl.arange(0, block)
            stays = entry < end
            if is_masked:
                stays = stays & (tl.load(kept + entry, mask=stays, other=0) != 0)
            column = tl.load(indices + entry, mask=stays, other=0)[:, None]
            here = stays[:, None] & real[None, :]
            raw = raw_scores(
                source, target, edge, column, row, entry[:, None], heads[None, :], num_heads, here, has_edge
            )
            weight = tl.exp(tl.where(here, leaky(raw, slope) - log_of_row[None, :], float("-inf")))
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
            raw = raw_scores(
                source, target, edge, column, row, entry[:, None], heads[None, :], num_heads, here, has_edge
            )
            weight = tl.exp(tl.where(here, leaky(raw, slope) - log_of_row[None, :], float("-inf")))
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
