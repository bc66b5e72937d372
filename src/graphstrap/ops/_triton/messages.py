"""Messages on CUDA: as in `_csr/messages.py`, the sums by the product of `chunks.py`, balanced for hubs."""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.graph import CLEAN, Graph, View
from graphstrap.ops._csr.messages import Gather, Incidence, sum_up
from graphstrap.ops._torch import apply
from graphstrap.ops._triton.chunks import compact
from graphstrap.ops._triton.products import chunks_of, kept_edge_bytes
from graphstrap.ops.once import once


def edges_from_nodes(graph: Graph, by_source: Tensor, by_target: Tensor) -> Tensor:
    """See `graphstrap.ops.edges_from_nodes`."""
    return apply(Gather, by_source, by_target, graph, incidence(graph, CLEAN))


def nodes_from_edges(graph: Graph, view: View, messages: Tensor) -> tuple[Tensor, Tensor]:
    """See `graphstrap.ops.nodes_from_edges`."""
    return sum_up(graph, incidence(graph, view), messages)


@once
def incidence(graph: Graph, view: View) -> Incidence:
    (forward, backward), kept = chunks_of(graph), kept_edge_bytes(graph, view)
    positions = graph.transpose.edge_positions
    every_edge = torch.arange(graph.num_edges, dtype=torch.int32, device=graph.device)
    into = compact(forward, every_edge, kept=kept)
    out_of = compact(backward, positions.int(), kept=kept, positions=positions)
    return Incidence(lambda z: into.times(z)[0], lambda z: out_of.times(z)[0], kept)
