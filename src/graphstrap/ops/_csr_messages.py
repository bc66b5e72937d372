"""From nodes to edges and back: gathers, and sums by `embedding_bag`, each the other's backward pass. No atomics.

edges_from_nodes   z_e  =  a_source(e) + b_target(e)          da, db  =  what dz sends and receives
nodes_from_edges   r_i  =  sum of z_e into i,  s_j  =  sum of z_e out of j       dz_e  =  ds_source(e) + dr_target(e)
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.ops._csr import Bag, _narrow
from graphstrap.ops._masks import kept_edges
from graphstrap.view import View

_incidences: WeakKeyDictionary[Graph, tuple[Bag, Bag]] = WeakKeyDictionary()
_kept: WeakKeyDictionary[View, WeakKeyDictionary[Graph, Tensor | None]] = WeakKeyDictionary()


def edges_from_nodes(graph: Graph, by_source: Tensor, by_target: Tensor) -> Tensor:
    """See `graphstrap.ops.edges_from_nodes`."""
    result: Tensor = _EdgesFromNodes.apply(by_source, by_target, graph)  # type: ignore[no-untyped-call]
    return result


def nodes_from_edges(graph: Graph, view: View, messages: Tensor) -> tuple[Tensor, Tensor]:
    """See `graphstrap.ops.nodes_from_edges`."""
    by_graph = _kept.setdefault(view, WeakKeyDictionary())
    if graph not in by_graph:
        kept = kept_edges(graph, view)
        by_graph[graph] = None if kept is None else kept.float()
    result: tuple[Tensor, Tensor] = _NodesFromEdges.apply(messages, graph, by_graph[graph])  # type: ignore[no-untyped-call]
    return result


class _EdgesFromNodes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_source: Tensor, by_target: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return _gather(graph, by_source, by_target)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        received, sent = _sums(ctx.graph, gradient, None)
        return sent, received, None


class _NodesFromEdges(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, messages: Tensor, graph: Graph, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.graph, ctx.kept = graph, kept
        return _sums(graph, messages, kept)

    @staticmethod
    def backward(ctx: Any, for_received: Tensor, for_sent: Tensor) -> tuple[Tensor, None, None]:
        gradient = _gather(ctx.graph, for_sent, for_received)
        if ctx.kept is not None:
            gradient *= ctx.kept[:, None].to(gradient.dtype)
        return gradient, None, None


def _gather(graph: Graph, by_source: Tensor, by_target: Tensor) -> Tensor:
    return by_source.index_select(0, graph.indices).add_(by_target.index_select(0, graph.targets))


def _sums(graph: Graph, messages: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    if graph not in _incidences:
        _incidences[graph] = _incidence(graph)
    into, out_of = _incidences[graph]
    if kept is not None:
        into, out_of = (bag.with_values(kept.index_select(0, bag.indices)) for bag in (into, out_of))
    return into.times(messages), out_of.times(messages)


def _incidence(graph: Graph) -> tuple[Bag, Bag]:
    """The matrices whose rows hold the edges into each node, and those out of it."""
    num_edges, back = graph.num_edges, graph.transpose
    ones = torch.ones(num_edges, device=graph.device)
    every_edge = torch.arange(num_edges, device=graph.device)
    return tuple(  # type: ignore[return-value]
        Bag(_narrow(indptr, num_edges), _narrow(edges, num_edges), ones)
        for indptr, edges in ((graph.indptr, every_edge), (back.indptr, back.edge_positions))
    )
