"""Attention over CSR, for a CPU: softmax by segments, then one sparse product for each head.

With a_ij the weight of entry (i, j), s(z) = 1 where z > 0, else the slope, and g the gradient of the output:

    out_i  =  sum_j a_ij h_j                     dh_j      =  sum_i a_ij g_i                  the transposed product
    da_ij  =  g_i . h_j                          dscore_ij =  a_ij (da_ij - sum_k a_ik da_ik)
    draw   =  dscore s(raw)                      dtarget_i, dsource_j, dedge_e:  sums of draw over their entries

A table that all heads share, such as features, is given as (N, C); it gets no gradient.
Only the logarithm of each row's sum of exponentials is kept for the backward pass, which makes the weights again.
Memory: O(N D + E H); the products g_i . h_j are taken for a block of entries at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.ops._csr.products import Bag, Frame, best_form, cut_frames, frames_of, narrow, project
from graphstrap.ops._torch import Scores, apply, kept_columns, kept_edges, widened
from graphstrap.ops.once import once

_BLOCK_ELEMENTS = 1 << 20  # of a block of gathered rows: a few megabytes


class Kind(NamedTuple):
    """Of attention: the leaky ReLU's slope below 0, whether heads are averaged, and whether they share one table."""

    slope: float
    is_averaged: bool = False
    is_shared: bool = False


def attend(graph: Graph, view: View, h: Tensor, scores: Scores, average: bool) -> Tensor:
    """See `graphstrap.ops.attend`."""
    return _attend(graph, view, h, scores, Kind(scores.slope, average))


def attend_features(graph: Graph, view: View, weight: Tensor, scores: Scores) -> Tensor:
    """See `graphstrap.ops.attend_features`."""
    features = best_form(graph, 0, weight)
    if not is_worth_summing(features, view, weight):
        return attend(graph, view, project(graph, view, [weight], 0)[0], scores, False)
    columns = kept_columns(view, num_columns=graph.num_features[0], block=0, device=weight.device)
    masked = weight if columns is None else weight * columns[:, None]
    masked = F.pad(masked, (0, 0, 0, features.shape[1] - len(masked)))  # the table may have columns of zeros at its end
    sums = _attend(graph, view, features, scores, Kind(scores.slope, is_shared=True))
    return times_heads(sums, masked, scores.num_heads)


def is_worth_summing(features: Tensor | SparseMatrix, view: View, weight: Tensor) -> TypeGuard[Tensor]:
    """Whether to attend to the features themselves: dense, at most half as wide as their product, masked by column."""
    masks_elements = view.spec.masks_features and view.spec.mask_elements
    return isinstance(features, Tensor) and not masks_elements and 2 * features.shape[1] <= weight.shape[1]


def times_heads(sums: Tensor, weight: Tensor, num_heads: int) -> Tensor:
    """(N, H C) from (N, H F) and (F, H C): each head's sums times its part of the weight."""
    left = sums.view(len(sums), num_heads, -1).transpose(0, 1)  # (H, N, F)
    right = weight.to(sums.dtype).view(len(weight), num_heads, -1).transpose(0, 1)  # (H, F, C)
    return torch.bmm(left, right).transpose(0, 1).reshape(len(sums), weight.shape[1])


def _attend(graph: Graph, view: View, h: Tensor, scores: Scores, kind: Kind) -> Tensor:
    source, target, edge = (None if part is None else widened(part) for part in scores[:3])
    return apply(_Attend, h, source, target, edge, kind, _entries(graph, view))


@once
def _entries(graph: Graph, view: View) -> Directions:
    (forward, backward), kept = cut_frames(frames_of(graph), kept_edges(graph, view))
    return _Entries(forward, kept, graph.num_edges), _Entries(backward, kept, graph.num_edges)


class _Entries:
    """A view's CSR in one direction: the nodes at both ends of every entry, and where its edge's score stands."""

    def __init__(self, frame: Frame, kept: Tensor | None, num_edges: int) -> None:
        self.indptr, self.rows, self.columns = frame.indptr, frame.rows, frame.columns
        is_loop = frame.edge == num_edges
        self.places = torch.where(is_loop, num_edges + frame.rows, frame.edge).long()  # (entries,) in `scores.edge`
        self.dropped = None if kept is None else ~kept.index_select(0, frame.edge)
        self.starts = narrow(frame.indptr, len(frame.columns))

    def raw(self, by_row: Tensor, by_column: Tensor, edge: Tensor | None) -> Tensor:
        """(entries, H) the scores before the leaky ReLU."""
        raw = by_row.index_select(0, self.rows) + by_column.index_select(0, self.columns)
        return raw if edge is None else raw + edge.index_select(0, self.places)

    def score(self, raw: Tensor, slope: float) -> Tensor:
        score = F.leaky_relu(raw, slope)
        return score if self.dropped is None else score.masked_fill(self.dropped[:, None], -torch.inf)

    def sum(self, values: Tensor) -> Tensor:
        """(N, H) the sum of each row's entries."""
        return torch.segment_reduce(values, "sum", offsets=self.indptr, unsafe=True)

    def times(self, weights: Tensor, table: Tensor) -> Tensor:
        """(N, C) sums of the table's rows by one head's weights."""
        return Bag(self.starts, self.columns, weights).times(table)


Directions = tuple[_Entries, _Entries]  # forward and backward


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, source: Tensor, target: Tensor, edge: Tensor | None, kind: Kind, entries: Directions
    ) -> Tensor:
        forward, _ = entries
        score = forward.score(forward.raw(target, source, edge), kind.slope)
        highest = torch.segment_reduce(score, "max", offsets=forward.indptr, unsafe=True)
        weights = score.sub_(highest.index_select(0, forward.rows)).exp_()
        total = forward.sum(weights)
        weights = weights.div_(total.index_select(0, forward.rows)).T.contiguous()  # (H, entries)
        ctx.save_for_backward(h, source, target, edge, highest + total.log())
        ctx.kind, ctx.entries = kind, entries
        tables = [h] * len(weights) if kind.is_shared else _heads(h, len(weights))
        heads = [forward.times(w, table) for w, table in zip(weights, tables, strict=True)]
        return torch.stack(heads).mean(0) if kind.is_averaged else torch.cat(heads, dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        h, source, target, edge, log_total = ctx.saved_tensors
        (forward, backward), heads, kind = ctx.entries, source.shape[1], ctx.kind
        gradient = gradient / heads if kind.is_averaged else gradient
        for_h = None
        if not kind.is_shared:
            score = backward.score(backward.raw(source, target, edge), kind.slope)
            weights = score.sub_(log_total.index_select(0, backward.columns)).exp_().T.contiguous()
            parts = [gradient] * heads if kind.is_averaged else _heads(gradient, heads)
            for_h = torch.cat([backward.times(w, part) for w, part in zip(weights, parts, strict=True)], dim=1)
        raw = forward.raw(target, source, edge)
        weight = forward.score(raw, kind.slope).sub_(log_total.index_select(0, forward.rows)).exp_()
        for_weight = _edge_products(forward, gradient, h, heads).to(weight.dtype)
        mean = forward.sum(weight * for_weight).index_select(0, forward.rows)
        for_raw = weight * (for_weight - mean)
        for_raw = torch.where(raw > 0, for_raw, kind.slope * for_raw)
        for_source = torch.zeros_like(source).index_add_(0, forward.columns.long(), for_raw)
        for_edge = None if edge is None else torch.zeros_like(edge).index_copy_(0, forward.places, for_raw)
        return for_h, for_source, forward.sum(for_raw), for_edge, None, None


def _heads(table: Tensor, num_heads: int) -> list[Tensor]:
    """(N, C) for each head."""
    return [part.contiguous() for part in table.chunk(num_heads, dim=1)]


def _edge_products(entries: _Entries, gradient: Tensor, h: Tensor, num_heads: int) -> Tensor:
    """(entries, H) the products g_i . h_j, head by head."""
    size = max(1, _BLOCK_ELEMENTS // max(1, h.shape[1], gradient.shape[1]))
    width = min(h.shape[1], gradient.shape[1])  # one of the two may be shared by all heads
    width = width if h.shape[1] != gradient.shape[1] else width // num_heads
    blocks = []
    for rows, columns in zip(torch.split(entries.rows, size), torch.split(entries.columns, size), strict=True):
        left = gradient.index_select(0, rows).view(len(rows), -1, width)
        right = h.index_select(0, columns).view(len(rows), -1, width)
        blocks.append((left * right).sum(-1))
    return torch.cat(blocks) if blocks else h.new_zeros(0, num_heads)
