# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""The gradient of the scores, through softmax and leaky ReLU, and its sums by target and by source."""

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

    from graphstrap.ops._triton.attend.weights import leaky, raw_scores

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


def score_gradients(
    graph: Graph, edges: KeptEdges, scores: Scores, log_total: Tensor, for_weights: Tensor
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


def sum_sources(graph: Graph, for_raw: Tensor, source: Tensor) -> Tensor:
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
