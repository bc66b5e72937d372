"""Where a node's neighbours of one relation stand, so that any of them can be reached in O(1).

Rows of a graph are sorted by source. The sampler wants those of one relation side by side, and the older ones of them
first: `order` says how. A graph whose rows are in that order already (one relation and no times; or ids that grow with
time) needs none. The graph is looked at a block of rows at a time: it may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphstrap.graph import Graph

SourceTimes = Callable[[slice], Tensor]  # of some successive edges

EDGES_PER_BLOCK = 1 << 26
ALWAYS = torch.iinfo(torch.int64).min  # the time of a node that has none: never newer than a root


@dataclass(frozen=True, eq=False)
class Rows:
    """A graph's edges by (node, relation, time).

    Args:
        indptr: (N + 1,) the graph's own.
        ends: (N, R) int32, where each relation's edges end, counted from the start of the node's row; None for one
            relation.
        order: (E,) the edge at each place; None where edge and place are the same number.
        sources: (E,) the graph's own `indices`.
        times: (N,) int64, `ALWAYS` where a node has none; None where time is not looked at.
    """

    indptr: Tensor
    ends: Tensor | None
    order: Tensor | None
    sources: Tensor
    times: Tensor | None

    @classmethod
    def of(cls, graph: Graph, *, with_times: bool) -> Rows:
        times = node_times(graph) if with_times else None
        num_relations = num_relations_of(graph)
        source_times = None if times is None else lambda edges: times[graph.indices[edges].long()]
        return cls(graph.indptr, *sort_rows(graph, num_relations, source_times), graph.indices, times)

    @property
    def num_relations(self) -> int:
        return 1 if self.ends is None else int(self.ends.shape[1])

    def segments(self, nodes: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(F, R) where each node's edges of each relation start, and how many there are; with `before` (F,), only
        those from nodes that are not newer than that."""
        start = self.indptr.index_select(0, nodes)[:, None]  # (F, 1)
        if self.ends is None:
            degree = self.indptr.index_select(0, nodes + 1)[:, None] - start
        else:
            ends = self.ends.index_select(0, nodes).long()
            begins = torch.nn.functional.pad(ends[:, :-1], (1, 0))
            start, degree = start + begins, ends - begins
        if before is not None:
            degree = self._count_old(start, degree, before[:, None])
        return start, degree

    def degrees(
        self, nodes: Tensor, before: Tensor | None, weight_starts: Tensor | None, relations: list[int] | None = None
    ) -> Tensor:
        """(F,) how many edges `segments` has for each node, or what they weigh (see `weight_starts`); of these
        relations, or of all."""
        start, degree = self.segments(nodes, before)
        if relations is not None:
            start, degree = start[:, relations], degree[:, relations]
        if weight_starts is not None:
            degree = weight_starts[start + degree] - weight_starts[start]
        return degree.sum(1).float()

    def weight_starts(self, weights: Tensor) -> Tensor:
        """(E + 1,) what all edges at earlier places weigh. In double precision, which adds up ordinary weights without
        rounding, so that parts of a graph say what the whole says."""
        ordered = weights if self.order is None else weights.index_select(0, self.order)
        return torch.nn.functional.pad(ordered.cumsum(0, dtype=torch.float64), (1, 0))

    def edges(self, places: Tensor) -> Tensor:
        """The ids of the edges at these places."""
        return places if self.order is None else self.order.index_select(0, places)

    def _count_old(self, start: Tensor, degree: Tensor, before: Tensor) -> Tensor:
        """How many leading edges of each segment come from nodes not newer than `before`: bisection."""
        low, high = torch.zeros_like(degree), degree.clone()
        for _ in range(int(degree.max()).bit_length() if degree.numel() else 0):
            middle = (low + high) // 2
            place = (start + middle).clamp(max=max(0, len(self.sources) - 1))
            is_old = (self._times_at(self.edges(place.flatten())).view(place.shape) <= before) & (middle < high)
            low, high = torch.where(is_old, middle + 1, low), torch.where(is_old, high, torch.minimum(middle, high))
        return low

    def _times_at(self, edges: Tensor) -> Tensor:
        """When the nodes that these edges come from were new."""
        assert self.times is not None
        return self.times.index_select(0, self.sources.index_select(0, edges).long())


def sort_rows(
    graph: Graph, num_relations: int, source_times: SourceTimes | None
) -> tuple[Tensor | None, Tensor | None]:
    """`ends` and `order` of a graph whose edges come from nodes of these times."""
    ends = None
    if num_relations > 1:
        ends = torch.cat([_relation_ends(block, num_relations) for block in _blocks(graph, source_times)])
    return ends, _order(graph, source_times)


def num_relations_of(graph: Graph) -> int:
    """How many relations edges may have: the named ones, or as many as occur."""
    if graph.edge_types is None:
        return 1
    return len(graph.edge_type_names) or (int(graph.edge_types.max()) + 1 if graph.num_edges else 1)


def node_times(graph: Graph) -> Tensor:
    """(N,) int64 in an order that only comparisons look at; `ALWAYS` for a node without a time."""
    times = graph.node_times
    assert times is not None
    if not times.is_floating_point():
        return times.long()
    ranks = torch.unique(times.nan_to_num(nan=-torch.inf), return_inverse=True)[1]  # fractions stay apart
    return torch.where(times.isnan(), ALWAYS, ranks)


@dataclass(frozen=True, eq=False)
class _Block:
    """Some successive rows of a graph: the edges into them, each with its row (counted from the block's first) and the
    keys that it is to be sorted by, the least important first."""

    num_rows: int
    first_edge: int
    rows: Tensor
    types: Tensor | None
    keys: list[Tensor]


def _blocks(graph: Graph, source_times: SourceTimes | None) -> Iterator[_Block]:
    first = 0
    while first < graph.num_nodes:
        begin = int(graph.indptr[first])
        wanted = torch.tensor(begin + EDGES_PER_BLOCK, device=graph.device)
        last = max(first + 1, int(torch.searchsorted(graph.indptr, wanted, right=True)) - 1)
        last = min(last, graph.num_nodes)
        edges = slice(begin, int(graph.indptr[last]))
        degrees = graph.indptr[first : last + 1].diff()
        rows = torch.repeat_interleave(torch.arange(last - first, device=graph.device), degrees)
        types = None if graph.edge_types is None else graph.edge_types[edges].long()
        keys = [] if source_times is None else [source_times(edges)]
        yield _Block(last - first, begin, rows, types, keys if types is None else [*keys, types])
        first = last


def _relation_ends(block: _Block, num_relations: int) -> Tensor:
    assert block.types is not None
    counts = torch.bincount(block.rows * num_relations + block.types, minlength=block.num_rows * num_relations)
    return counts.view(block.num_rows, num_relations).cumsum(1).int()


def _order(graph: Graph, source_times: SourceTimes | None) -> Tensor | None:
    """Edges by (row, relation, time, as they were), or None where they are so already."""
    if graph.edge_types is None and source_times is None:
        return None
    if all(_is_sorted(block) for block in _blocks(graph, source_times)):
        return None
    orders = [block.first_edge + _sorted_order(block) for block in _blocks(graph, source_times)]
    return torch.cat(orders)


def _is_sorted(block: _Block) -> bool:
    ahead = torch.zeros(max(0, len(block.rows) - 1), dtype=torch.bool, device=block.rows.device)
    for key in [*block.keys, block.rows]:  # the last key that differs decides
        ahead = torch.where(key[1:] == key[:-1], ahead, key[1:] < key[:-1])
    return not bool(ahead.any())


def _sorted_order(block: _Block) -> Tensor:
    order = torch.arange(len(block.rows), device=block.rows.device)
    for key in [*block.keys, block.rows]:
        order = order[torch.sort(key[order], stable=True).indices]
    return order
