"""Sampling from a graph in parts: each worker draws for the nodes of its own part, whoever asks.

    hop:    every frontier node goes to its owner, with its root (and the root's time) where draws depend on that;
            the owner draws, by the hashes that the sampler of the whole graph draws by, and sends edges back

Draws are functions of global ids, so the batch is the one that the whole store gives, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.parts import Part
from graphstrap.train.parallel.exchange import Answer, Exchange
from graphstrap.train.sampling.draw import NO_TIMES, Drawn, NeighborIndex, draw_edges, sort_rows
from graphstrap.train.sampling.sampler import FanOuts, Sampler
from graphstrap.train.sampling.subgraph import Found, Hop, assemble

NO_LIMIT = torch.iinfo(torch.int32).max
_EDGE_COLUMNS = ("edge_types", "edge_weights", "edge_times", "edge_columns")


class PartSampler(Sampler):
    """`Sampler` where each worker has one part; all of them must call `sample` equally often.

    Batches have no times of nodes: `PartGatherer` gives them.
    """

    def __init__(self, part: Part, fan_outs: FanOuts, exchange: Exchange, **options: bool) -> None:
        self.part, self.exchange = part, exchange
        self._names = [name for name in _EDGE_COLUMNS if getattr(part.own, name) is not None]
        super().__init__(part, fan_outs, **options)
        self._weights = part.own.edge_weights

    def _make_index(self) -> NeighborIndex:
        own, times = self.part.own, self.part.source_time_codes if self.by_time else None
        if self.by_time and times is None:
            raise InputError(NO_TIMES)
        ends, order = sort_rows(own, self.part.num_relations, None if times is None else lambda edges: times[edges])
        return NeighborIndex(own.indptr, ends, order, own.indices, None, nodes=own.node_ids, source_times=times)

    # ---- asking ------------------------------------------------------------------------------------------------------

    def _time_limits(self, roots: Tensor) -> Tensor:
        """(B,) the newest time code that a root's subgraph may reach; a root without a time sees everything."""
        codes = self.exchange.ask(self._owners(roots), [roots], self._answer_times).columns[0].long()
        return torch.where(codes == 0, NO_LIMIT, codes)

    def _draw(self, nodes: Tensor, fan_outs: list[int], **more: Any) -> Drawn:
        owners, roots, before, seeds = more["owners"], more["roots"], more["before"], more["seeds"]
        questions = [nodes]
        if owners is not None:
            questions.append(roots.index_select(0, owners))
        if before is not None:
            questions.append(before.int())
        answer = self.exchange.ask(
            self._owners(nodes), questions, lambda asked: self._answer_edges(asked, fan_outs, seeds)
        )
        edges, sources, *columns = answer.columns
        factors = columns.pop(0) if self.unbiased else None
        assert answer.counts is not None
        counts = answer.counts.long()
        rows = torch.repeat_interleave(torch.arange(len(nodes)), counts)
        return Drawn(counts, edges, sources.long(), rows, factors, columns)

    def _degrees_of(self, nodes: Tensor, before: Tensor | None) -> Tensor:
        questions = [nodes] if before is None else [nodes, before.int()]
        return self.exchange.ask(self._owners(nodes), questions, self._answer_degrees).columns[0]

    def _assemble(self, found: Found, hops: list[Hop], **more: Any) -> Graph:
        """The batch as if the drawn edges were all there are; then with their ids in the whole graph."""
        ids = torch.cat([hop.drawn.edges for hop in hops])
        columns = [torch.cat(of_hops) for of_hops in zip(*(hop.drawn.columns or [] for hop in hops), strict=True)]
        numbers = torch.split(torch.arange(len(ids)), [len(hop.drawn.edges) for hop in hops])
        hops = [Hop(hop.drawn._replace(edges=own), hop.places) for hop, own in zip(hops, numbers, strict=True)]
        known: dict[str, Any] = {**dict.fromkeys(_EDGE_COLUMNS), **dict(zip(self._names, columns, strict=True))}
        drawn_edges = replace(self.part, **known)
        batch = assemble(drawn_edges, found, hops, **more)
        assert batch.edge_ids is not None
        return replace(batch, edge_ids=ids.index_select(0, batch.edge_ids))

    def _owners(self, nodes: Tensor) -> Tensor:
        return self.part.part_of.index_select(0, nodes).long()

    # ---- answering ---------------------------------------------------------------------------------------------------

    def _answer_edges(self, asked: list[Tensor], fan_outs: list[int], seeds: list[int]) -> Answer:
        nodes, own = asked[0], self.part.own
        drawn = draw_edges(
            self.index,
            nodes,
            fan_outs,
            seeds=seeds,
            owners=torch.arange(len(nodes)) if self.disjoint else None,
            roots=asked[1] if self.disjoint else None,
            before=asked[2].long() if self.by_time else None,
            with_factors=self.unbiased,
        )
        places = self.index.places_of(nodes)
        shift = self.part.first_edges.index_select(0, places) - own.indptr.index_select(0, places)
        columns = [drawn.edges + shift.index_select(0, drawn.rows), drawn.sources.to(own.indices.dtype)]
        if drawn.factors is not None:
            columns.append(drawn.factors)
        columns += [getattr(own, name).index_select(0, drawn.edges) for name in self._names]
        return Answer(drawn.counts.int(), columns)

    def _answer_times(self, asked: list[Tensor]) -> Answer:
        assert self.part.time_codes is not None
        return Answer(None, [self.part.time_codes.index_select(0, self.index.places_of(asked[0]))])

    def _answer_degrees(self, asked: list[Tensor]) -> Answer:
        return Answer(None, [super()._degrees_of(asked[0], asked[1].long() if self.by_time else None)])
