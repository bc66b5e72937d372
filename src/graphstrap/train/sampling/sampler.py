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
from contextlib import closing

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.graph import ALWAYS
from graphstrap.graph.views import child_seed
from graphstrap.ops._triton.launch import IS_AVAILABLE
from graphstrap.train.sampling import draw_triton
from graphstrap.train.sampling.draw import NOT_FOUND, Drawn, Frontier, NeighborIndex, draw_edges
from graphstrap.train.sampling.fused import FusedSampler
from graphstrap.train.sampling.subgraph import Found, Hop, assemble, make_batch

FanOuts = Sequence[int | Mapping[str, int]]

SAMPLING_BRANCH = 1_000_033


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
        self, graph: Graph, fan_outs: FanOuts, *, disjoint: bool = False, by_time: bool = False, unbiased: bool = True
    ) -> None:
        if by_time and not disjoint:
            raise InputError("sampling by time is per root: set sampling.disjoint = true with sampling.by_time")
        self.graph, self.disjoint, self.by_time, self.unbiased = graph, disjoint, by_time, unbiased
        self.index = self._make_index()
        self.fan_outs = [_fan_out_row(graph, entry) for entry in fan_outs]
        # The relations that any hop draws from, None for all; the others are as if they were not there.
        is_drawn = [any(column) for column in zip(*self.fan_outs, strict=True)]
        self.relations = None if all(is_drawn) else [relation for relation, drawn in enumerate(is_drawn) if drawn]
        self.places_table: Tensor | None = None
        self.fused: FusedSampler | None = None
        if not disjoint:
            places = torch.full((graph.num_nodes,), NOT_FOUND, dtype=torch.int32, device=graph.device)
            self.places_table = places
            if graph.device.type == "cuda" and FusedSampler.can(graph, self.fan_outs):
                self.fused = FusedSampler(graph, [row[0] for row in self.fan_outs], places=places, unbiased=unbiased)

    def _make_index(self) -> NeighborIndex:
        return NeighborIndex.of(self.graph, with_times=self.by_time)

    def sample(self, roots: Tensor, *, seed: int, step: int = 0, are_distinct: bool = False) -> Graph:
        """The batch around these nodes, without features or labels: see `Gatherer`.

        `are_distinct` says that no root comes twice, which need not be checked then.
        """
        roots = roots.to(self.graph.device)
        step_seed = child_seed(seed, SAMPLING_BRANCH, step)
        if self.fused is not None and are_distinct and self.fused.has_room(len(roots)):
            return make_batch(self.graph, num_roots=len(roots), **self.fused.sample(roots, step_seed))
        owners = torch.arange(len(roots), device=roots.device) if self.disjoint else None
        limits = self._time_limits(roots) if self.by_time else None
        num_nodes, check = self.graph.num_nodes, not are_distinct
        with closing(Found(roots, owners, places=self.places_table, num_nodes=num_nodes, check=check)) as found:
            hops = []
            for hop, fan_outs in enumerate(self.fan_outs):
                nodes, owners = found.frontier
                hop_seed = child_seed(step_seed, hop)
                seeds = [hop_seed, *(child_seed(hop_seed, relation) for relation in range(self.index.num_relations))]
                drawn = self._draw(Frontier(nodes, owners, roots, _of_owners(limits, owners)), fan_outs, seeds)
                places = found.add(drawn.sources, None if owners is None else owners.index_select(0, drawn.rows))
                hops.append(Hop(drawn, places))
            missing = self._missing_degrees(found, hops, limits) if self.unbiased else None
            return self._assemble(found, hops, num_roots=len(roots), missing_degrees=missing)

    def _time_limits(self, roots: Tensor) -> Tensor:
        """(B,) the newest time that a root's subgraph may reach; a root without a time sees everything."""
        assert self.index.times is not None
        times = self.index.times.index_select(0, roots)
        return torch.where(times == ALWAYS, torch.iinfo(torch.int64).max, times)

    def _draw(self, frontier: Frontier, fan_outs: list[int], seeds: list[int]) -> Drawn:
        """The edges of a hop; see `draw_edges`."""
        by_triton = frontier.nodes.is_cuda and IS_AVAILABLE and max(fan_outs) <= draw_triton.MAX_WIDTH
        way = draw_triton.draw_edges if by_triton else draw_edges
        return way(self.index, frontier, fan_outs, seeds=seeds, with_factors=self.unbiased)

    def _missing_degrees(self, found: Found, hops: list[Hop], limits: Tensor | None) -> Tensor:
        """(N,) the degrees of nodes that have no edges in the batch, 0 for all others."""
        only_the_last_lack_edges = all(all(row) for row in self.fan_outs)
        nodes, owners = found.frontier if only_the_last_lack_edges else found.nodes
        degrees = self._degrees_of(nodes, _of_owners(limits, owners))
        missing = torch.cat([degrees.new_zeros(found.num_nodes - len(degrees)), degrees])
        if len(degrees) == found.num_nodes and hops:
            counts = torch.cat([hop.drawn.counts for hop in hops])
            missing[: len(counts)].masked_fill_(counts > 0, 0.0)
        return missing

    def _degrees_of(self, nodes: Tensor, before: Tensor | None) -> Tensor:
        """(F,) how many edges of the relations that are sampled go into each node, or what they weigh."""
        return self.index.degrees(nodes, before, self.relations)

    def _assemble(self, found: Found, hops: list[Hop], *, num_roots: int, missing_degrees: Tensor | None) -> Graph:
        return assemble(self.graph, found, hops, num_roots=num_roots, missing_degrees=missing_degrees)


def _of_owners(limits: Tensor | None, owners: Tensor | None) -> Tensor | None:
    """(F,) the limit of each node's root."""
    return None if limits is None or owners is None else limits.index_select(0, owners)


def _fan_out_row(graph: Graph, entry: int | Mapping[str, int]) -> list[int]:
    """One hop's fan-out for every relation of a graph."""
    if isinstance(entry, int):
        row = [entry] * graph.num_relations
    else:
        unknown = [name for name in entry if name not in ("*", *graph.edge_type_names)]
        if unknown:
            known = ", ".join(graph.edge_type_names) or "none"
            raise InputError(f"there is no edge type {unknown[0]!r}: this graph has {known}")
        names = graph.edge_type_names or ("*",) * graph.num_relations
        row = [entry.get(name, entry.get("*", 0)) for name in names]
    if min(row) < 0:
        raise InputError(f"fan-outs are numbers from 0 up, got {entry!r}")
    return row
