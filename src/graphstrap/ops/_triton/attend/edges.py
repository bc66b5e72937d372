"""What a view keeps of a graph's edges, for attention."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.ops._triton.chunks import ChunkedMatrix
from graphstrap.ops._triton.compact import compact
from graphstrap.ops._triton.views import adjacency, kept_edge_bytes
from graphstrap.view import View

_kept: WeakKeyDictionary[View, WeakKeyDictionary[Graph, dict[bool, KeptEdges]]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class KeptEdges:
    """What a view keeps of a graph's edges, in both directions, with self-loops; worked out once for each view."""

    kept: Tensor | None
    forward: ChunkedMatrix
    backward: ChunkedMatrix
    backward_places: Tensor  # of the transpose's entries in `graph.indices`; a self-loop holds its node
    forward_places: Tensor | None  # the same of the forward entries, where edges have scores


def kept_edges(graph: Graph, view: View, with_places: bool) -> KeptEdges:
    found = _kept.setdefault(view, WeakKeyDictionary()).setdefault(graph, {})
    if with_places not in found:
        forward, backward = adjacency(graph, view, "sum")
        kept, back = kept_edge_bytes(graph, view), graph.transpose
        positions = back.edge_positions
        order = torch.arange(graph.num_edges, dtype=torch.int32, device=graph.device)
        places = compact(forward.chunks, order, kept=kept, loops=True).columns if with_places else None
        turned = compact(backward.chunks, positions.int(), kept=kept, positions=positions, loops=True).columns
        found[with_places] = KeptEdges(kept, forward, backward, turned, places)
    return found[with_places]
