"""Attention as Triton kernels: the weights are made again wherever they are needed, no E x D intermediate, no atomics.

With a_ij the weight of the edge from j to i, s(z) = 1 where z > 0, else the slope, and g the gradient of the output:

    log_total_i  =  log sum_j exp(score_ij)              by row, online: the one thing kept for the backward pass
    out_i        =  sum_j a_ij h_j                       by chunks of each row
    dh_j         =  sum_i a_ij g_i                       by chunks of the transpose; the same pass over g gives
    da_ij        =  g_i . h_j
    draw_ij      =  a_ij (da_ij - sum_k a_ik da_ik) s(raw_ij)                     by row
    dtarget_i, dsource_j  =  sums of draw over the entries of row i, of column j

`weights.py` has the first line, `sums.py` the next three, `scores.py` the rest. Rows are cut into chunks as in
`chunks.py`, and `compact.py` leaves out what a view drops. A program takes some chunks, one head, and a block of the
head's columns; da is the sum of its parts over these blocks. Softmax and sums are float32, whatever h is. Nothing waits
for the device and no shape depends on data, so a CUDA graph can hold all of it.
Memory besides the results: E H weights for a moment, then E H parts of da for each block of columns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphstrap.graph import Graph, View
from graphstrap.ops._csr import attend as _csr_attend
from graphstrap.ops._csr.attend import is_worth_summing, times_heads
from graphstrap.ops._csr.products import best_form
from graphstrap.ops._torch import Scores
from graphstrap.ops._triton.attend.sums import source_gradients, weighted_sums
from graphstrap.ops._triton.attend.weights import (
    KeptEdges,
    kept_edges,
    log_totals,
    score_gradients,
    sum_sources,
    weights_of,
)
from graphstrap.ops._triton.products import masked_weight, project
from graphstrap.ops._triton.views import column_mask


def attend(graph: Graph, view: View, h: Tensor, scores: Scores, average: bool) -> Tensor:
    """See `graphstrap.ops.attend`."""
    if h.dtype == torch.float64:
        return _csr_attend.attend(graph, view, h, scores, average)
    return _attend(graph, view, h, scores, average=average, shared=False)


def attend_features(graph: Graph, view: View, weight: Tensor, scores: Scores) -> Tensor:
    """See `graphstrap.ops.attend_features`."""
    if weight.dtype == torch.float64:
        return _csr_attend.attend_features(graph, view, weight, scores)
    features = best_form(graph, 0, weight, aligned=True)
    if not is_worth_summing(features, view, weight):
        return attend(graph, view, project(graph, view, weight, 0), scores, False)
    masked = masked_weight(weight, column_mask(graph, view, 0), features)
    return times_heads(_attend(graph, view, features, scores, average=False, shared=True), masked, scores.num_heads)


def _attend(graph: Graph, view: View, h: Tensor, scores: Scores, *, average: bool, shared: bool) -> Tensor:
    edges = kept_edges(graph, view, scores.edge is not None)
    source, target, edge = (None if part is None else part.contiguous() for part in scores[:3])
    result: Tensor = _Attend.apply(h.contiguous(), source, target, edge, scores.slope, average, shared, graph, edges)  # type: ignore[no-untyped-call]
    return result


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
        edges: KeptEdges,
    ) -> Tensor:
        scores = Scores(source, target, edge, slope)
        log_total = log_totals(graph, edges, scores)
        weights = weights_of(graph, edges, scores, log_total, transposed=False)
        out = weighted_sums(edges.forward, weights, h, average=average, shared=shared)
        ctx.save_for_backward(h, source, target, edge, log_total)
        ctx.slope, ctx.average, ctx.shared, ctx.graph, ctx.edges = slope, average, shared, graph, edges
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        h, source, target, edge, log_total = ctx.saved_tensors
        scores, graph, edges = Scores(source, target, edge, ctx.slope), ctx.graph, ctx.edges
        weights = weights_of(graph, edges, scores, log_total, transposed=True)
        kinds = {"average": ctx.average, "shared": ctx.shared}
        for_h, for_weights = source_gradients(edges.backward, edges.backward_places, weights, h, gradient, **kinds)
        del weights
        for_raw, for_target = score_gradients(graph, edges, scores, log_total, for_weights)
        for_source = sum_sources(graph, for_raw, source)
        for_edge = None if edge is None else for_raw.to(edge.dtype)
        return for_h, for_source, for_target, for_edge, None, None, None, None, None
