"""Neighbour sampling: a small graph around some roots, of which each node has at most a given number of neighbours.

    hop h:   every node that hop h - 1 found first gets min(d, k) of its d incoming edges of each relation,
             k = fan_outs[h][relation], drawn without replacement
    order:   roots, then what hop 1 found, then hop 2, ...; each in the order in which they were found

Which edges are drawn is a hash of (seed, step, node, relation, hop), and of the root where every root has a subgraph of
its own (`disjoint`); never of a place in the batch. Where semantics are per root (`by_time`: only nodes that are not
newer than the root), subgraphs must be disjoint; otherwise nodes that several roots reach are merged.

With `unbiased`, what was left out is made up for, so that sums over neighbours have the whole graph's expectation: an
edge drawn with probability k / d gets d / k times its weight, and the nodes of the last hop, which have no edges at
all, keep their in-degree in `missing_degrees`. If the fan-outs cover every neighbour, a GCN of as many layers as there
are hops gives the roots the embeddings that it gives them in the whole graph.

Cost of a batch: O(edges drawn), whatever the degrees; the scratch table takes 4 bytes for each node of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.keep import child_seed, hash32
from graphstrap.sampling._draw import choose_positions
from graphstrap.sampling._rows import Rows, num_relations_of
from graphstrap.sampling._subgraph import NOT_FOUND, Found, Hop, assemble

FanOuts = Sequence[int | Mapping[str, int]]

_SAMPLING_BRANCH = 1_000_033


class Drawn(NamedTuple):
    """Edges drawn for a frontier, row by row."""

    counts: Tensor  # (F,) how many each row has
    edges: Tensor  # (E,) their ids
    rows: Tensor  # (E,) whose they are, counted within the frontier
    factors: Tensor | None  # (E,) d / k


class Sampler:
    """Draws batches around roots.

    Args:
        graph: where to draw from; batches live on its device.
        fan_outs: one entry for each hop: a number for every relation, or one for each relation by name ("*" for those
            not named, else 0).
        disjoint: every root gets a subgraph of its own.
        by_time: leave out nodes newer than the root.
        unbiased: weigh edges by how many they stand for.
    """

    def __init__(
        self,
        graph: Graph,
        fan_outs: FanOuts,
        *,
        disjoint: bool = False,
        by_time: bool = False,
        unbiased: bool = True,
    ) -> None:
        if by_time and not disjoint:
            raise InputError("sampling by time is per root: set sampling.disjoint = true with sampling.by_time")
        if by_time and graph.node_times is None:
            raise InputError("sampling by time needs a time for every node: give a time column, or by_time = false")
        self.graph, self.disjoint, self.unbiased = graph, disjoint, unbiased
        self.rows = Rows.of(graph, with_times=by_time)
        self.fan_outs = [fan_out_row(graph, entry) for entry in fan_outs]
        self._degrees: Tensor | None = None
        self._places = None
        if not disjoint:
            self._places = torch.full((graph.num_nodes,), NOT_FOUND, dtype=torch.int32, device=graph.device)

    def sample(self, roots: Tensor, *, seed: int, step: int = 0) -> Graph:
        """The batch around these nodes, without features or labels: see `Gatherer`."""
        roots = roots.to(self.graph.device)
        owners = torch.arange(len(roots), device=roots.device) if self.disjoint else None
        with self._start(roots, owners) as found:
            hops, frontier = [], slice(0, len(roots))
            for hop in range(len(self.fan_outs)):
                nodes, node_owners = found.nodes(frontier)
                drawn = self._draw(nodes, node_owners, roots, hop, child_seed(seed, _SAMPLING_BRANCH, step, hop))
                sources = self.rows.sources.index_select(0, drawn.edges).long()
                places = found.add(sources, None if node_owners is None else node_owners.index_select(0, drawn.rows))
                hops.append(Hop(drawn.counts, places, drawn.edges, drawn.factors))
                frontier = slice(frontier.stop, found.num_nodes)
            missing = self._degrees_of(found, frontier, roots) if self.unbiased else None
            return assemble(self.graph, found, hops, num_roots=len(roots), missing_degrees=missing)

    def _start(self, roots: Tensor, owners: Tensor | None) -> Found:
        return Found(roots, owners, places=self._places, num_nodes=self.graph.num_nodes)

    def _draw(self, nodes: Tensor, owners: Tensor | None, roots: Tensor, hop: int, seed: int) -> Drawn:
        start, degree = self._segments(nodes, owners, roots)  # (F, R)
        fan_out = torch.tensor(self.fan_outs[hop], device=nodes.device)  # (R,)
        count = torch.minimum(degree, fan_out)
        counts, count = count.sum(1), count.flatten()
        ends = count.cumsum(0)
        num_drawn = int(ends[-1]) if len(ends) else 0
        begins = ends - count
        pairs = torch.repeat_interleave(torch.arange(len(count), device=nodes.device), count, output_size=num_drawn)
        start, degree = start.flatten(), degree.flatten()
        places = torch.arange(num_drawn, device=nodes.device) + (start - begins).index_select(0, pairs)
        cut = (degree > count).logical_and_(count > 0).nonzero().squeeze(1)  # pairs of which a part is drawn
        if len(cut):
            words = self._words(nodes, owners, roots, seed).flatten().index_select(0, cut)
            width = int(max(self.fan_outs[hop]))
            cut_start, cut_count = begins.index_select(0, cut), count.index_select(0, cut)
            chosen = choose_positions(degree.index_select(0, cut), cut_count, words, width=width)
            slot = torch.arange(width, device=nodes.device)[:, None]
            into, chosen = cut_start + slot, chosen + start.index_select(0, cut)
            if self.rows.num_relations > 1:  # fan-outs differ
                is_wanted = slot < cut_count
                into, chosen = into[is_wanted], chosen[is_wanted]
            places.scatter_(0, into.flatten(), chosen.flatten())
        factors = None
        if self.unbiased and len(cut):
            factors = (degree / count.clamp(min=1)).float().index_select(0, pairs)
        rows = pairs if self.rows.num_relations == 1 else pairs // self.rows.num_relations
        return Drawn(counts, self.rows.edges(places), rows, factors)

    def _segments(self, nodes: Tensor, owners: Tensor | None, roots: Tensor) -> tuple[Tensor, Tensor]:
        before = None
        if self.rows.times is not None:
            assert owners is not None
            before = self.rows.times.index_select(0, roots).index_select(0, owners)
            before = torch.where(before == torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max, before)
        return self.rows.segments(nodes, before)

    def _words(self, nodes: Tensor, owners: Tensor | None, roots: Tensor, seed: int) -> Tensor:
        """(F, R) the hash that the draws of each (node, relation) are made from."""
        if owners is not None:
            nodes = nodes ^ (hash32(roots, seed).index_select(0, owners) << 31)
        if self.rows.num_relations == 1:
            return torch.as_tensor(hash32(nodes, seed))
        seeds = [child_seed(seed, relation) for relation in range(self.rows.num_relations)]
        return torch.stack([hash32(nodes, one) for one in seeds], dim=1)

    def _degrees_of(self, found: Found, frontier: slice, roots: Tensor) -> Tensor:
        """(N,) the in-degrees of the last hop's nodes, which have no edges in the batch; 0 for all others."""
        nodes, owners = found.nodes(frontier)
        weights = self.graph.edge_weights
        if weights is None:
            degrees = self._segments(nodes, owners, roots)[1].sum(1).float()
        else:
            if self._degrees is None:
                self._degrees = torch.segment_reduce(weights, "sum", offsets=self.graph.indptr, unsafe=True)
            degrees = self._degrees.index_select(0, nodes)
        return torch.cat([degrees.new_zeros(frontier.start), degrees])


def fan_out_row(graph: Graph, entry: int | Mapping[str, int]) -> list[int]:
    """One hop's fan-out for every relation of a graph."""
    if isinstance(entry, int):
        row = [entry] * num_relations_of(graph)
    else:
        unknown = [name for name in entry if name not in ("*", *graph.edge_type_names)]
        if unknown:
            known = ", ".join(graph.edge_type_names) or "none"
            raise InputError(f"there is no edge type {unknown[0]!r}: this graph has {known}")
        row = [entry.get(name, entry.get("*", 0)) for name in graph.edge_type_names]
    if min(row) < 0:
        raise InputError(f"fan-outs are numbers from 0 up, got {entry!r}")
    return row
