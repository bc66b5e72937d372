"""LDG, a streaming partitioner (Stanton and Kliot, KDD 2012), a chunk of nodes at a time, several times through.

A node goes to the part where most of its neighbours are, as long as there is room:

    part(v)  =  argmax over p of   neighbours(v, p) * (1 - size(p) / room)      size < room = (1 + slack) * total / P

Nodes of a chunk choose at the same time, by the sizes of the chunk before; those who find no room left go where there
is most. From the second time through, all neighbours have a part.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.io._write_edges import Report
from graphstrap.keep import hash32

SLACK = 0.05  # how much larger than the mean a part may be
NUM_PASSES = 5
_EDGES_AT_ONCE = 1 << 22


def streaming(graph: Graph, weights: Tensor, num_parts: int, *, seed: int, report: Report) -> Tensor:
    """(N,) the part of each node; `weights` are the nodes' sizes."""
    part_of = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
    room = (1 + SLACK) * float(weights.double().sum()) / num_parts
    sizes = torch.zeros(num_parts, dtype=torch.float64)
    rows = max(64, -(-graph.num_nodes // 512))
    for number in range(NUM_PASSES):
        for first, last in row_chunks(graph.indptr, rows):
            report("partitioning", (number + first / graph.num_nodes) / NUM_PASSES)
            size = weights[first:last].double()
            if number:  # its nodes choose anew
                sizes.index_add_(0, part_of[first:last], -size)
            counts = _neighbours(graph, part_of, first, last, num_parts)
            chosen = _choose(counts, size, sizes, room, seed=seed, first=first)
            part_of[first:last] = chosen
            sizes.index_add_(0, chosen, size)
    return part_of


def _neighbours(graph: Graph, part_of: Tensor, first: int, last: int, num_parts: int) -> Tensor:
    """(rows, P) how many neighbours of each node, along edges of either direction, every part has."""
    counts = torch.zeros((last - first) * num_parts, dtype=torch.int64)
    directions = [(graph.indptr, graph.indices)]
    if graph.outgoing is not None and not graph.is_symmetric:
        directions.append((graph.outgoing.indptr, graph.outgoing.indices))
    for indptr, indices in directions:
        ends = part_of.index_select(0, indices[int(indptr[first]) : int(indptr[last])].long())
        rows = torch.repeat_interleave(torch.arange(last - first), indptr[first : last + 1].diff())
        known = ends >= 0
        counts += torch.bincount((rows * num_parts + ends)[known], minlength=len(counts))
    return counts.view(last - first, num_parts)


def _choose(counts: Tensor, size: Tensor, sizes: Tensor, room: float, *, seed: int, first: int) -> Tensor:
    """LDG's choice for nodes that choose at the same time, and another for those whose part overflows."""
    num_rows, num_parts = counts.shape
    free = (1 - sizes / room).clamp(min=0)
    ties = hash32(torch.arange(first * num_parts, (first + num_rows) * num_parts), seed).view(num_rows, num_parts)
    scores = counts * free + (1e-3 * free + 1e-9) * (1 + ties / 2.0**32)  # no neighbour: where there is room
    chosen: Tensor
    best, chosen = scores.max(1)
    order = torch.argsort(best, descending=True)
    order = order[torch.sort(chosen[order], stable=True).indices]  # by part, the surest first
    taken = size[order].cumsum(0)
    begins = torch.bincount(chosen, weights=size, minlength=num_parts).cumsum(0)
    before = torch.cat([begins.new_zeros(1), begins[:-1]])
    over = order[(taken - before[chosen[order]]) > (room - sizes).clamp(min=0)[chosen[order]]]
    if len(over):
        left = sizes + torch.bincount(chosen, weights=size, minlength=num_parts)
        left.index_add_(0, chosen[over], -size[over])
        chosen[over] = _fill(left, size[over], room)
    return chosen


def _fill(sizes: Tensor, size: Tensor, room: float) -> Tensor:
    """Parts for nodes that go wherever room is: each part in turn, in proportion to what it has left."""
    left = (room - sizes).clamp(min=0)
    ends = left.cumsum(0) / left.sum().clamp(min=1e-9)
    middle = (size.cumsum(0) - size / 2) / size.sum()
    return torch.searchsorted(ends, middle).clamp(max=len(sizes) - 1)


def row_chunks(indptr: Tensor, most_rows: int) -> Iterator[tuple[int, int]]:
    """Successive rows: at most so many, of at most so many edges, at least one."""
    first, num_rows = 0, len(indptr) - 1
    while first < num_rows:
        wanted = indptr[first] + _EDGES_AT_ONCE
        by_edges = max(first + 1, int(torch.searchsorted(indptr, wanted, right=True)) - 1)
        last = min(num_rows, first + most_rows, by_edges)
        yield first, last
        first = last
