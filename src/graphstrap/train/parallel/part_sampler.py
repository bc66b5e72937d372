"""Sampling from a graph in parts: each worker draws for the nodes that it owns, whoever asks.

    hop:    every frontier node goes to its owner, with its root (and the root's time) where draws depend on that;
            the owner draws, by the hashes that the sampler of the whole graph draws by, and sends edges back

Draws are functions of global ids, so the batch is the one that the whole store gives, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.keep import child_seed
from graphstrap.io.parts import Part
from graphstrap.train.parallel.exchange import Answer, Exchange
from graphstrap.train.sampling.draw import Drawn, Rows, draw_edges, sort_rows
from graphstrap.train.sampling.sampler import (
    SAMPLING_BRANCH,
    FanOuts,
    Sampler,
    fan_out_row,
    leaves_out,
    missing_degrees,
    sampled_relations,
)
from graphstrap.train.sampling.subgraph import NOT_FOUND, Found, Hop, assemble

NO_LIMIT = torch.iinfo(torch.int32).max
_EDGE_COLUMNS = ("edge_types", "edge_weights", "edge_times", "edge_columns")


@dataclass(frozen=True, eq=False)
class PartRows(Rows):
    """The rows of one part, asked for by the numbers of nodes in the whole graph."""

    nodes: Tensor
    source_times: Tensor | None

    @classmethod
    def of_part(cls, part: Part, *, with_times: bool) -> PartRows:
        own, codes = part.own, part.source_time_codes if with_times else None
        ends, order = sort_rows(own, part.num_relations, None if codes is None else lambda edges: codes[edges])
        assert own.node_ids is not None
        return cls(own.indptr, ends, order, own.indices, None, own.node_ids, codes)

    def segments(self, nodes: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return super().segments(self.places_of(nodes), before)

    def places_of(self, nodes: Tensor) -> Tensor:
        """The rows of these nodes, which are all of this part."""
        return torch.searchsorted(self.nodes, nodes)

    def _times_at(self, edges: Tensor) -> Tensor:
        assert self.source_times is not None
        return self.source_times.index_select(0, edges)


class PartSampler(Sampler):
    """`Sampler` where each worker has one part; all of them must call `sample` equally often."""

    def __init__(
        self,
        part: Part,
        fan_outs: FanOuts,
        exchange: Exchange,
        *,
        disjoint: bool = False,
        by_time: bool = False,
        unbiased: bool = True,
    ) -> None:
        if by_time and part.time_codes is None:
            raise InputError("sampling by time needs a time for every node: give a time column, or by_time = false")
        self.part, self.exchange, self.by_time = part, exchange, by_time
        self.graph, self.disjoint, self.unbiased = part, disjoint, unbiased
        self.rows = self._own_rows = PartRows.of_part(part, with_times=by_time)
        self.fan_outs = [fan_out_row(part, entry) for entry in fan_outs]
        self.relations = sampled_relations(self.fan_outs)
        self.places_table = None
        if not disjoint:
            self.places_table = torch.full((part.num_nodes,), NOT_FOUND, dtype=torch.int32)
        weights = part.own.edge_weights
        self.weight_sums: Tensor | None = None
        self._weight_starts = None
        if unbiased and weights is not None and (by_time or self.relations is not None):
            self._weight_starts = self.rows.weight_starts(weights)
        elif unbiased and weights is not None:
            self.weight_sums = torch.segment_reduce(weights, "sum", offsets=part.own.indptr)

    def sample(self, roots: Tensor, *, seed: int, step: int = 0, are_distinct: bool = False) -> Graph:
        """As the sampler of the whole graph, but without the nodes' times: see `PartGatherer`."""
        owners = torch.arange(len(roots)) if self.disjoint else None
        step_seed = child_seed(seed, SAMPLING_BRANCH, step)
        before = self._limits(roots) if self.by_time else None
        check = not are_distinct
        with Found(roots, owners, places=self.places_table, num_nodes=self.part.num_nodes, check=check) as found:
            hops: list[Hop] = []
            columns: list[list[Tensor]] = []
            frontier, num_edges = slice(0, len(roots)), 0
            for hop, fan_outs in enumerate(self.fan_outs):
                nodes, owners = found.nodes(frontier)
                drawn, more = self._ask(nodes, owners, roots, before, fan_outs, child_seed(step_seed, hop))
                places = found.add(drawn.sources, None if owners is None else owners.index_select(0, drawn.rows))
                numbers = torch.arange(num_edges, num_edges + len(drawn.edges))
                hops.append(Hop(drawn.counts, places, numbers, drawn.factors))
                columns.append([drawn.edges, *more])
                num_edges += len(numbers)
                frontier = slice(frontier.stop, found.num_nodes)
            missing = None
            if self.unbiased:
                nodes, owners = found.nodes(None if leaves_out(self.fan_outs) else frontier)
                degrees = self._ask_degrees(nodes, owners, before)
                missing = missing_degrees(degrees, hops, num_nodes=found.num_nodes)
            ids, *rest = (torch.cat(parts) for parts in zip(*columns, strict=True))
            known: dict[str, Any] = {**dict.fromkeys(_EDGE_COLUMNS), **dict(zip(self._names, rest, strict=True))}
            drawn_edges = replace(self.part, **known)
            batch = assemble(drawn_edges, found, hops, num_roots=len(roots), missing_degrees=missing)
        assert batch.edge_ids is not None
        return replace(batch, edge_ids=ids.index_select(0, batch.edge_ids))

    @property
    def _names(self) -> list[str]:
        return [name for name in _EDGE_COLUMNS if getattr(self.part.own, name) is not None]

    def _owners(self, nodes: Tensor) -> Tensor:
        return self.part.part_of.index_select(0, nodes).long()

    # ---- asking ------------------------------------------------------------------------------------------------------

    def _limits(self, roots: Tensor) -> Tensor:
        """(B,) the time code that a root's subgraph may reach; a root without a time sees everything."""
        codes = self.exchange.ask(self._owners(roots), [roots], self._tell_times).columns[0].long()
        return torch.where(codes == 0, NO_LIMIT, codes)

    def _ask(
        self,
        nodes: Tensor,
        owners: Tensor | None,
        roots: Tensor,
        before: Tensor | None,
        fan_outs: list[int],
        seed: int,
    ) -> tuple[Drawn, list[Tensor]]:
        """What is drawn for a frontier, and the columns of these edges."""
        questions = [nodes]
        if owners is not None:
            questions.append(roots.index_select(0, owners))
        if before is not None and owners is not None:
            questions.append(before.index_select(0, owners).int())
        seeds = [seed, *(child_seed(seed, relation) for relation in range(self.rows.num_relations))]
        answer = self.exchange.ask(self._owners(nodes), questions, lambda asked: self._draw_for(asked, fan_outs, seeds))
        edges, sources, *rest = answer.columns
        factors = rest.pop(0) if self.unbiased else None
        assert answer.counts is not None
        counts = answer.counts.long()
        rows = torch.repeat_interleave(torch.arange(len(nodes)), counts)
        return Drawn(counts, edges, sources.long(), rows, factors), rest

    def _ask_degrees(self, nodes: Tensor, owners: Tensor | None, before: Tensor | None) -> Tensor:
        """(F,) how many edges of the relations that are sampled go into each node, or what they weigh."""
        questions = [nodes]
        if before is not None and owners is not None:
            questions.append(before.index_select(0, owners).int())
        return self.exchange.ask(self._owners(nodes), questions, self._tell_degrees).columns[0]

    # ---- answering ---------------------------------------------------------------------------------------------------

    def _draw_for(self, asked: list[Tensor], fan_outs: list[int], seeds: list[int]) -> Answer:
        nodes, own = asked[0], self.part.own
        drawn = draw_edges(
            self.rows,
            nodes,
            fan_outs,
            seeds=seeds,
            owners=torch.arange(len(nodes)) if self.disjoint else None,
            roots=asked[1] if self.disjoint else None,
            before=asked[2].long() if self.by_time else None,
            with_factors=self.unbiased,
        )
        places = self._own_rows.places_of(nodes)
        shift = self.part.first_edges.index_select(0, places) - own.indptr.index_select(0, places)
        columns = [drawn.edges + shift.index_select(0, drawn.rows), drawn.sources.to(own.indices.dtype)]
        if drawn.factors is not None:
            columns.append(drawn.factors)
        columns += [getattr(own, name).index_select(0, drawn.edges) for name in self._names]
        return Answer(drawn.counts.int(), columns)

    def _tell_times(self, asked: list[Tensor]) -> Answer:
        assert self.part.time_codes is not None
        places = self._own_rows.places_of(asked[0])
        return Answer(None, [self.part.time_codes.index_select(0, places)])

    def _tell_degrees(self, asked: list[Tensor]) -> Answer:
        if self.weight_sums is not None:
            places = self._own_rows.places_of(asked[0])
            return Answer(None, [self.weight_sums.index_select(0, places)])
        before = asked[1].long() if self.by_time else None
        return Answer(None, [self.rows.degrees(asked[0], before, self._weight_starts, self.relations)])
