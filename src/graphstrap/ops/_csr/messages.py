"""From nodes to edges and back: gathers, and sums as sparse products, each the other's backward pass. No atomics.

    edges_from_nodes   z_e  =  a_source(e) + b_target(e)          da, db  =  what dz sends and receives
    nodes_from_edges   r_i  =  sum of z_e into i,  s_j  =  sum of z_e out of j      dz_e  =  ds_source(e) + dr_target(e)

The sums are products with the matrices whose rows hold the edges into each node, or out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphstrap.graph import CLEAN, Graph, View
from graphstrap.ops._csr.products import Bag, narrow
from graphstrap.ops._torch import apply, kept_edges
from graphstrap.ops.once import once


@dataclass(frozen=True, eq=False)
class Incidence:
    """Which edges that a view keeps go into each node, and out of it; as products with (E, D) tables."""

    into: Callable[[Tensor], Tensor]
    out_of: Callable[[Tensor], Tensor]
    kept: Tensor | None  # (E,) 1 for what the view keeps


def edges_from_nodes(graph: Graph, by_source: Tensor, by_target: Tensor) -> Tensor:
    """See `graphstrap.ops.edges_from_nodes`."""
    return apply(Gather, by_source, by_target, graph, incidence(graph, CLEAN))


def nodes_from_edges(graph: Graph, view: View, messages: Tensor) -> tuple[Tensor, Tensor]:
    """See `graphstrap.ops.nodes_from_edges`."""
    return sum_up(graph, incidence(graph, view), messages)


@once
def incidence(graph: Graph, view: View) -> Incidence:
    num_edges, back, kept = graph.num_edges, graph.transpose, kept_edges(graph, view)
    values = torch.ones(num_edges, device=graph.device) if kept is None else kept.float()
    every_edge = torch.arange(num_edges, device=graph.device)
    into, out_of = (
        Bag(narrow(indptr, num_edges), narrow(edges, num_edges), values.index_select(0, edges))
        for indptr, edges in ((graph.indptr, every_edge), (back.indptr, back.edge_positions))
    )
    return Incidence(into.times, out_of.times, None if kept is None else values)


def sum_up(graph: Graph, incidence: Incidence, messages: Tensor) -> tuple[Tensor, Tensor]:
    """The sums over the edges into each node, and out of it."""
    result: tuple[Tensor, Tensor] = _SumUp.apply(messages, graph, incidence)  # type: ignore[no-untyped-call]
    return result


class Gather(torch.autograd.Function):
    """by_source + by_target at the ends of every edge, for an incidence of all edges."""

    @staticmethod
    def forward(ctx: Any, by_source: Tensor, by_target: Tensor, graph: Graph, incidence: Incidence) -> Tensor:
        ctx.incidence = incidence
        return _ends(graph, by_source, by_target)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return ctx.incidence.out_of(gradient), ctx.incidence.into(gradient), None, None


class _SumUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, messages: Tensor, graph: Graph, incidence: Incidence) -> tuple[Tensor, Tensor]:
        ctx.graph, ctx.kept = graph, incidence.kept
        return incidence.into(messages), incidence.out_of(messages)

    @staticmethod
    def backward(ctx: Any, for_received: Tensor, for_sent: Tensor) -> tuple[Tensor, None, None]:
        gradient = _ends(ctx.graph, for_sent, for_received)
        if ctx.kept is not None:
            gradient *= ctx.kept[:, None].to(gradient.dtype)
        return gradient, None, None


def _ends(graph: Graph, by_source: Tensor, by_target: Tensor) -> Tensor:
    return by_source.index_select(0, graph.indices).add_(by_target.index_select(0, graph.targets))
