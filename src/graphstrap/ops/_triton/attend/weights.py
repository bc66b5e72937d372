# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""The weights of attention: the logarithm of each row's sum, and the weights themselves wherever they are needed."""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.ops._scores import Scores
from graphstrap.ops._triton.attend.edges import KeptEdges
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch

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


def log_totals(graph: Graph, edges: KeptEdges, scores: Scores) -> Tensor:
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


def weights_of(graph: Graph, edges: KeptEdges, scores: Scores, log_total: Tensor, *, transposed: bool) -> Tensor:
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
