"""A view's adjacency, made once and shared by every layer, network and pass that uses the view.

On a CPU the dropped edges are cut out of the CSR first. On CUDA, where this serves only without Triton, they get weight
0, which keeps every shape static.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.ops._csr.bag import Bag, narrow
from graphstrap.ops._masks import kept_edges, missing_degrees
from graphstrap.view import View

_adjacencies: WeakKeyDictionary[View, WeakKeyDictionary[Graph, dict[str, tuple[Bag, Bag]]]] = WeakKeyDictionary()
_frames: WeakKeyDictionary[Graph, tuple[Frame, Frame]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Frame:
    """A graph's CSR with the self-loops written in, in one direction. An `edge` of E is a self-loop."""

    indptr: Tensor  # (N + 1,)
    rows: Tensor  # (E + N,) int32, as the others where they can be
    columns: Tensor  # (E + N,)
    edge: Tensor  # (E + N,) position in graph.indices


def adjacency(graph: Graph, view: View, norm: str) -> tuple[Bag, Bag]:
    """The view's normalised adjacency and its transpose."""
    by_norm = _adjacencies.setdefault(view, WeakKeyDictionary()).setdefault(graph, {})
    if norm not in by_norm:
        by_norm[norm] = _draw(graph, view, norm)
    return by_norm[norm]


def _draw(graph: Graph, view: View, norm: str) -> tuple[Bag, Bag]:
    frames, kept = frames_of(graph, view)
    weights = [_entry_weights(graph, frame, kept) for frame in frames]
    if norm != "sum":
        degree = torch.segment_reduce(weights[0], "sum", offsets=frames[0].indptr, unsafe=True)
        missing = missing_degrees(graph, view)
        if missing is not None:
            degree = degree + missing
        scale = degree.rsqrt() if norm == "symmetric" else degree.reciprocal()
        for frame, weight, target in zip(frames, weights, (frames[0].rows, frames[1].columns), strict=True):
            weight *= scale.index_select(0, target)
            if norm == "symmetric":
                weight *= scale.index_select(0, frame.columns if target is frame.rows else frame.rows)
    bags = [Bag(narrow(f.indptr, len(f.columns)), f.columns, w) for f, w in zip(frames, weights, strict=True)]
    return bags[0], bags[1]


def frames_of(graph: Graph, view: View) -> tuple[tuple[Frame, Frame], Tensor | None]:
    """The view's CSR and its transpose, with self-loops; and which edges are kept where they still hold them all."""
    if graph not in _frames:
        back = graph.transpose
        every_edge = torch.arange(graph.num_edges, device=graph.device)
        forward = _with_loops(graph.indptr, graph.indices, every_edge)
        _frames[graph] = forward, _with_loops(back.indptr, back.indices, back.edge_positions)
    frames = _frames[graph]
    kept = kept_edges(graph, view)
    if kept is not None:
        kept = torch.cat([kept, kept.new_ones(1)])  # position E, where self-loops look, is always kept
    if graph.device.type == "cpu" and kept is not None:
        return (_cut(frames[0], kept), _cut(frames[1], kept)), None
    return frames, kept


def _with_loops(indptr: Tensor, indices: Tensor, positions: Tensor) -> Frame:
    """Write a self-loop in front of every row."""
    num_nodes, num_edges = len(indptr) - 1, len(indices)
    nodes = torch.arange(num_nodes, device=indptr.device)
    rows = torch.repeat_interleave(nodes, indptr.diff())
    place = torch.arange(num_edges, device=indptr.device) + rows + 1
    columns = indices.new_empty(num_edges + num_nodes)
    edge = positions.new_full((num_edges + num_nodes,), num_edges)
    columns[indptr[:-1] + nodes] = nodes.to(indices.dtype)
    columns[place], edge[place] = indices, positions
    every_row = torch.repeat_interleave(nodes, indptr.diff() + 1)
    starts = indptr + torch.arange(num_nodes + 1, device=indptr.device)
    return Frame(starts, narrow(every_row, num_nodes), columns, narrow(edge, num_edges + 1))


def _cut(frame: Frame, kept: Tensor) -> Frame:
    """The frame without the dropped edges."""
    stays = kept.index_select(0, frame.edge)  # index_select: four times as fast as [] on a CPU
    chosen = torch.from_numpy(np.flatnonzero(stays.numpy()))  # five times as fast as PyTorch's
    before = torch.cat([frame.indptr.new_zeros(1), stays.cumsum(0)])  # entries kept before each place
    rows, columns, edge = (part.index_select(0, chosen) for part in (frame.rows, frame.columns, frame.edge))
    return Frame(before.index_select(0, frame.indptr), rows, columns, edge)


def _entry_weights(graph: Graph, frame: Frame, kept: Tensor | None) -> Tensor:
    """(entries,) 1 for a self-loop, the edge's weight for a kept edge, 0 for a dropped one."""
    if graph.edge_weights is None:
        weight = torch.ones(len(frame.edge), device=graph.device)
    else:
        weight = torch.cat([graph.edge_weights, graph.edge_weights.new_ones(1)]).index_select(0, frame.edge)
    return weight if kept is None else weight * kept.index_select(0, frame.edge)
