"""Drawing edges for a frontier: the reference, and the fast way on a CPU.

Random choices are functions of hashes: the same on every device, in every order, at every time. `choose_positions`
picks k of d without replacement by Floyd's algorithm: in O(k) however long the row is, and every subset is equally
likely (to one part in 2**32 / d). Row by row, for i = 0 .. k - 1, with j = d - k + i:

    t = uniform on 0 .. j          choose t, or j if t is chosen already

`permuted` is a random order of 0 .. size - 1 that can be asked for any place without being made: a Feistel network on
pairs of digits, in which a result beyond the end is sent through again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.views import LOW_32_BITS, child_seed, hash32, mix

GOLDEN = 0x9E3779B9
_NUM_ROUNDS = 6


def choose_positions(degree: Tensor, fan_out: Tensor, word: Tensor, *, width: int) -> Tensor:
    """(width, C) different numbers below `degree` for each column, which has `fan_out` <= min(degree, width) of them.

    Args:
        degree, fan_out: (C,) int64, below 2**31.
        word: (C,) 32-bit words, one for each column; the draws are hashes of them.
        width: the largest fan-out; what lies below a column's own is to be left unread.
    """
    slot = torch.arange(width, device=degree.device)[:, None]
    last = degree - fan_out + slot  # (width, C): j
    draws: Tensor = (mix((word + slot * GOLDEN) & LOW_32_BITS) * (last + 1)) >> 32  # t
    chosen, last = draws.int(), last.int()
    for i in range(1, width):
        taken = (chosen[:i] == chosen[i]).view(torch.uint8).amax(0)  # `any` takes three times as long on a CPU
        torch.where(taken != 0, last[i], chosen[i], out=chosen[i])
    return chosen


def permuted(places: Tensor, *, size: int, seed: int) -> Tensor:
    """The numbers at these places of a random order of 0 .. size - 1."""
    high = max(1, int(size**0.5))
    low = -(-size // high)  # high * low >= size, by less than `high`
    keys = [child_seed(seed, number) for number in range(_NUM_ROUNDS)]
    result = _feistel(places, high, low, keys)
    beyond = result >= size
    while bool(beyond.any()):
        result = torch.where(beyond, _feistel(result, high, low, keys), result)
        beyond = result >= size
    return result


def _feistel(numbers: Tensor, high: int, low: int, keys: list[int]) -> Tensor:
    """A bijection of 0 .. high * low - 1."""
    a, b = numbers // low, numbers % low
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        a = (a + hash32(b, first)) % high
        b = (b + hash32(a, second)) % low
    return a * low + b


SourceTimes = Callable[[slice], Tensor]  # of some successive edges

EDGES_PER_BLOCK = 1 << 26
NOT_FOUND = torch.iinfo(torch.int32).max  # the place of a node that is not in a batch
NO_TIMES = "sampling by time needs a time for every node: give a time column, or by_time = false"


@dataclass(frozen=True, eq=False)
class NeighborIndex:
    """Where a node's neighbours of one relation stand, so that any of them can be reached in O(1).

    Rows of a graph are sorted by source. The sampler wants those of one relation side by side, and the older ones of
    them first: `order` says how. A graph whose rows are in that order already (one relation and no times; or ids that
    grow with time) needs none. The graph is looked at a block of rows at a time: it may be larger than memory.

    Args:
        indptr: (N + 1,) the graph's own.
        ends: (N, R) int32, where each relation's edges end, counted from the start of the node's row; None for one
            relation.
        order: (E,) the edge at each place; None where edge and place are the same number.
        sources: (E,) the graph's own `indices`.
        times: (N,) int64, `ALWAYS` where a node has none; None where time is not looked at.
        weights: (E,) the graph's own.
        nodes: (N,) of one part of a graph, the nodes whose rows it has, in order; None for all of them.
        source_times: (E,) of one part, the times of the nodes that edges come from, instead of `times`.
    """

    indptr: Tensor
    ends: Tensor | None
    order: Tensor | None
    sources: Tensor
    times: Tensor | None
    weights: Tensor | None
    nodes: Tensor | None = None
    source_times: Tensor | None = None

    @classmethod
    def of(cls, graph: Graph, *, with_times: bool) -> NeighborIndex:
        if with_times and graph.node_times is None:
            raise InputError(NO_TIMES)
        times = graph.times_in_order if with_times else None
        source_times = None if times is None else lambda edges: times[graph.indices[edges].long()]
        ends, order = sort_rows(graph, graph.num_relations, source_times)
        return cls(graph.indptr, ends, order, graph.indices, times, graph.edge_weights)

    @property
    def num_relations(self) -> int:
        return 1 if self.ends is None else int(self.ends.shape[1])

    def places_of(self, nodes: Tensor) -> Tensor:
        """The rows of these nodes."""
        return nodes if self.nodes is None else torch.searchsorted(self.nodes, nodes)

    def segments(self, nodes: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(F, R) where each node's edges of each relation start, and how many there are; with `before` (F,), only
        those from nodes that are not newer than that."""
        places = self.places_of(nodes)
        start = self.indptr.index_select(0, places)[:, None]  # (F, 1)
        if self.ends is None:
            degree = self.indptr.index_select(0, places + 1)[:, None] - start
        else:
            ends = self.ends.index_select(0, places).long()
            begins = torch.nn.functional.pad(ends[:, :-1], (1, 0))
            start, degree = start + begins, ends - begins
        if before is not None:
            degree = self._count_old(start, degree, before[:, None])
        return start, degree

    def degrees(self, nodes: Tensor, before: Tensor | None, relations: list[int] | None) -> Tensor:
        """(F,) how many edges `segments` has for each node, or what they weigh; of these relations, or of all."""
        if before is None and relations is None:
            return self._row_totals.index_select(0, self.places_of(nodes))
        start, degree = self.segments(nodes, before)
        if relations is not None:
            start, degree = start[:, relations], degree[:, relations]
        if self.weights is not None:
            degree = self._weight_starts[start + degree] - self._weight_starts[start]
        return degree.sum(1).float()

    @cached_property
    def _row_totals(self) -> Tensor:
        if self.weights is None:
            return self.indptr.diff().float()
        return torch.segment_reduce(self.weights, "sum", offsets=self.indptr)

    @cached_property
    def _weight_starts(self) -> Tensor:
        """(E + 1,) what all edges at earlier places weigh. In double precision, which adds up ordinary weights without
        rounding, so that the parts of a graph say what the whole says."""
        assert self.weights is not None
        ordered = self.weights if self.order is None else self.weights.index_select(0, self.order)
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
        if self.source_times is not None:
            return self.source_times.index_select(0, edges)
        assert self.times is not None
        return self.times.index_select(0, self.sources.index_select(0, edges).long())


def sort_rows(
    graph: Graph, num_relations: int, source_times: SourceTimes | None
) -> tuple[Tensor | None, Tensor | None]:
    """`ends` and `order` of a graph whose edges come from nodes of these times: edges by (row, relation, time, as they
    were), in no order of their own where they are so already."""
    ends = order = None
    if num_relations > 1:
        ends = torch.cat([block.relation_ends(num_relations) for block in _blocks(graph, source_times)])
    has_keys = graph.edge_types is not None or source_times is not None
    if has_keys and not all(block.is_sorted() for block in _blocks(graph, source_times)):
        order = torch.cat([block.first_edge + block.order() for block in _blocks(graph, source_times)])
    return ends, order


class _Block(NamedTuple):
    """Some successive rows of a graph: the edges into them, by the keys that these are to be sorted by, the least
    important first: times and types where there are any, and rows, counted from the block's first."""

    num_rows: int
    first_edge: int
    keys: list[Tensor]

    def relation_ends(self, num_relations: int) -> Tensor:
        *_, types, rows = self.keys
        counts = torch.bincount(rows * num_relations + types, minlength=self.num_rows * num_relations)
        return counts.view(self.num_rows, num_relations).cumsum(1).int()

    def is_sorted(self) -> bool:
        rows = self.keys[-1]
        ahead = torch.zeros(max(0, len(rows) - 1), dtype=torch.bool, device=rows.device)
        for key in self.keys:  # the last key that differs decides
            ahead = torch.where(key[1:] == key[:-1], ahead, key[1:] < key[:-1])
        return not bool(ahead.any())

    def order(self) -> Tensor:
        order = torch.arange(len(self.keys[-1]), device=self.keys[-1].device)
        for key in self.keys:
            order = order[torch.sort(key[order], stable=True).indices]
        return order


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
        times = [] if source_times is None else [source_times(edges)]
        types = [] if graph.edge_types is None else [graph.edge_types[edges].long()]
        yield _Block(last - first, begin, [*times, *types, rows])
        first = last


class Frontier(NamedTuple):
    """The nodes that a hop draws edges into."""

    nodes: Tensor  # (F,)
    owners: Tensor | None = None  # (F,) the number of each node's root, where draws depend on the root
    roots: Tensor | None = None  # (B,) the roots
    before: Tensor | None = None  # (F,) leave out edges from nodes newer than that


class Drawn(NamedTuple):
    """Edges drawn for a frontier, row by row."""

    counts: Tensor  # (F,) how many each row has
    edges: Tensor  # (E,) their ids
    sources: Tensor  # (E,) where they come from
    rows: Tensor  # (E,) whose they are, counted within the frontier
    factors: Tensor | None  # (E,) how many edges each stands for: d / k
    columns: list[Tensor] | None = None  # (E, ...) what else is known of edges that another worker drew


def draw_edges(
    index: NeighborIndex, frontier: Frontier, fan_outs: list[int], *, seeds: list[int], with_factors: bool = True
) -> Drawn:
    """min(d, k) of the d edges of each relation into each node.

    Args:
        fan_outs: k for each relation.
        seeds: one to hash roots with, then one for each relation.
        with_factors: whether to say how many edges each one stands for.
    """
    nodes, owners, roots, before = frontier
    device, num_relations = nodes.device, index.num_relations
    start, degree = (column.flatten() for column in index.segments(nodes, before))
    if num_relations == 1:
        count = degree.clamp(max=fan_outs[0])
    else:
        count = torch.minimum(degree.view(-1, num_relations), torch.tensor(fan_outs, device=device)).flatten()
    ends = count.cumsum(0)
    num_drawn = int(ends[-1]) if len(ends) else 0
    begins = ends - count
    pairs = torch.repeat_interleave(count, output_size=num_drawn)
    places = (start - begins).index_select(0, pairs)
    places += torch.arange(num_drawn, device=device)
    cut = (degree > count).logical_and_(count > 0).nonzero().squeeze(1)  # pairs of which not all edges are drawn
    if len(cut):
        if owners is not None:
            nodes = nodes ^ (hash32(roots, seeds[0]).index_select(0, owners) << 31)
        words = torch.stack([hash32(nodes, seed) for seed in seeds[1:]], dim=1).flatten().index_select(0, cut)
        num_chosen = count.index_select(0, cut)
        # Of several relations, one that is taken whole may be wider than what is chosen from.
        width = int(num_chosen.max()) if num_relations > 1 else fan_outs[0]
        chosen = choose_positions(degree.index_select(0, cut), num_chosen, words, width=width)
        slot = torch.arange(width, device=device)[:, None]
        into, chosen = begins.index_select(0, cut) + slot, chosen + start.index_select(0, cut)
        if num_relations > 1:  # fan-outs differ
            is_wanted = slot < num_chosen
            into, chosen = into[is_wanted], chosen[is_wanted]
        places.scatter_(0, into.flatten(), chosen.flatten())  # `places[into] = chosen` takes four times as long
    factors = None
    if with_factors:  # float64: a quotient that is rounded once, on every device
        factors = (degree.double() / count.clamp(min=1)).float().index_select(0, pairs)
    edges = index.edges(places)
    return Drawn(
        count if num_relations == 1 else count.view(-1, num_relations).sum(1),
        edges,
        index.sources.index_select(0, edges).long(),
        pairs if num_relations == 1 else pairs // num_relations,
        factors,
    )
