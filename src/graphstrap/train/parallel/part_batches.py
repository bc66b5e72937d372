"""Batches of a graph in parts: which roots a worker takes, who samples for them, and how making them ahead ends.

A worker's batches are made in step with those of all others: each step takes the same number of exchanges everywhere.
So when training stops, after the same step on all workers, what was begun ahead is finished, not thrown away: another
worker may be waiting for this one's answers. Where a worker fails, the others are waiting in vain; its thread is left
behind, and its process ends, which ends theirs.

Each worker draws for the nodes of its own part, whoever asks:

    hop:    every frontier node goes to its owner, with its root (and the root's time) where draws depend on that;
            the owner draws, by the hashes that the sampler of the whole graph draws by, and sends edges back

Draws are functions of global ids, so the batch is the one that the whole store gives, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.parts import Part
from graphstrap.run.recipe import Recipe
from graphstrap.train.batches import BatchMaker, Prefetcher, choose_roots, sampler_flags
from graphstrap.train.parallel.exchange import Answer, Exchange, PartGatherer
from graphstrap.train.parallel.workers import BackgroundThread, Workers
from graphstrap.train.sampling.draw import NO_TIMES, Drawn, Frontier, NeighborIndex, draw_edges, sort_rows
from graphstrap.train.sampling.sampler import FanOuts, Sampler
from graphstrap.train.sampling.subgraph import Found, Hop, assemble

_SECONDS_TO_FINISH = 15.0
NO_LIMIT = torch.iinfo(torch.int32).max
_EDGE_COLUMNS = ("edge_types", "edge_weights", "edge_times", "edge_columns")


def make_part_batches(
    part: Part, *, recipe: Recipe, seed: int, device: torch.device, workers: Workers
) -> PartPrefetcher:
    """Batches of a graph in parts, whose own rows are scaled when they are read: `FeatureTransform.when_read`. Every
    worker calls this, and asks for the same steps."""
    exchange = Exchange(workers)
    if recipe.method_class.learns_labels:  # roots are chosen by whether they have a label
        part = replace(part, labels=_who_has_labels(part, workers))
        check_roots(part, recipe, workers)
    make = BatchMaker(
        part,
        recipe=recipe,
        seed=seed,
        device=device,
        share=partial(by_part, part=part) if recipe.sampling.roots == "owner" else workers.share,
        sampler=PartSampler(part, recipe.sampling.by_hop(), exchange, **sampler_flags(recipe)),
        fill=PartGatherer(part, exchange, device=device, num_hot=recipe.sampling.hot_nodes).fill,
    )
    depth = recipe.sampling.prefetch
    return PartPrefetcher(make, exchange, last_step=recipe.train.steps, device=device, depth=depth)


def check_roots(graph: Graph, recipe: Recipe, workers: Workers) -> None:
    """Whether every worker gets a root at every step: a mean over none is no number."""
    num_roots = len(choose_roots(graph, recipe, seed=0)(1))
    if num_roots < workers.size:
        raise InputError(
            f"a step has {num_roots} of this graph's nodes for roots, too few roots for {workers.size} workers: start "
            f"fewer, or raise sampling.batch_size, which is {recipe.sampling.batch_size}"
        )


def by_part(roots: Tensor, *, part: Part) -> Tensor:
    """As many roots as `Workers.share` gives, those of the worker's own part first; the roots that a part has too many
    of go, in order, to the workers that have too few."""
    size = part.num_parts
    owners = part.part_of.index_select(0, roots).long()
    wanted = (len(roots) - torch.arange(size) + size - 1) // size
    counts = torch.bincount(owners, minlength=size)
    order = torch.sort(owners, stable=True).indices
    places = torch.arange(len(roots)) - (counts.cumsum(0) - counts).index_select(0, owners[order])
    is_over = places >= wanted.index_select(0, owners[order])
    takers = torch.repeat_interleave(torch.arange(size), (wanted - counts).clamp(min=0))
    taken_by = owners.clone()
    taken_by[order[is_over].sort().values] = takers
    return roots[taken_by == part.number]


def check_shared(part: Graph, recipe: Recipe, workers: Workers) -> None:
    """Whether these workers can train this recipe on this graph, which may be in parts."""
    if not recipe.sampling.fan_outs:
        raise InputError("several workers share the roots of sampled batches: give --set sampling.fan_outs=[10,10]")
    if not isinstance(part, Part):
        if recipe.sampling.roots == "owner":
            raise InputError("sampling.roots=owner is for graphs in parts, and this one is whole: set it to turn")
        return
    if part.num_parts != workers.size:
        raise InputError(
            f"the graph is in {part.num_parts} parts, and there are {workers.size} workers: start as many as parts, "
            "or partition it anew"
        )
    if recipe.views.centrality != "none":
        raise InputError(
            f"views.centrality={recipe.views.centrality} looks at the whole graph, which no worker has: set it to none"
        )
    encoder = recipe.encoder
    if (encoder.norm, encoder.batch_norm_statistics) == ("batch", "recalibrated") and (
        not recipe.encoder_class.is_layered or getattr(recipe.method, "label_inputs", False)
    ):
        raise InputError(
            f"encoder.batch_norm_statistics=recalibrated takes a pass of {encoder.name} over the whole graph, which no "
            "worker has: set it to running"
        )
    if recipe.train.evaluate_every:
        raise InputError(
            "train.evaluate_every embeds the whole graph, which no worker has: set it to 0, and evaluate the run"
        )


class PartPrefetcher(Prefetcher):
    """`Prefetcher` whose `close` finishes what was begun, for those who wait for it."""

    _start = BackgroundThread

    def __init__(self, make: Callable[[int], Graph], exchange: Exchange, **options: Any) -> None:
        super().__init__(make, **options)
        self._exchange = exchange

    def close(self) -> None:
        wait(self._waiting.values(), timeout=_SECONDS_TO_FINISH)  # what failed has failed for nobody any more
        self._waiting.clear()
        if self._worker is not None:
            self._worker.shutdown()
        self._exchange.close()


def _who_has_labels(part: Part, workers: Workers) -> Tensor:
    """(N,) int8: 0 for a node of any part that has a label to learn from, otherwise -1."""
    own = part.own
    assert own.labels is not None
    assert own.node_ids is not None
    has_label = torch.zeros(part.num_nodes, dtype=torch.int8)
    has_label[own.node_ids[own.labels >= 0]] = 1
    return workers.add(has_label) - 1


class PartSampler(Sampler):
    """`Sampler` where each worker has one part; all of them must call `sample` equally often.

    Batches have no times of nodes: `PartGatherer` gives them.
    """

    def __init__(self, part: Part, fan_outs: FanOuts, exchange: Exchange, **options: bool) -> None:
        self.part, self.exchange = part, exchange
        self._names = [name for name in _EDGE_COLUMNS if getattr(part.own, name) is not None]
        super().__init__(part, fan_outs, **options)

    def _make_index(self) -> NeighborIndex:
        own, times = self.part.own, self.part.source_time_codes if self.by_time else None
        if self.by_time and times is None:
            raise InputError(NO_TIMES)
        ends, order = sort_rows(own, self.part.num_relations, None if times is None else lambda edges: times[edges])
        sources, weights = own.indices, own.edge_weights
        return NeighborIndex(own.indptr, ends, order, sources, None, weights, nodes=own.node_ids, source_times=times)

    # ---- asking ------------------------------------------------------------------------------------------------------

    def _time_limits(self, roots: Tensor) -> Tensor:
        """(B,) the newest time code that a root's subgraph may reach; a root without a time sees everything."""
        codes = self.exchange.ask(self._owners(roots), [roots], self._answer_times).columns[0].long()
        return torch.where(codes == 0, NO_LIMIT, codes)

    def _draw(self, frontier: Frontier, fan_outs: list[int], seeds: list[int]) -> Drawn:
        nodes, owners, roots, before = frontier
        questions = [nodes]
        if owners is not None and roots is not None:
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
        nodes, own, frontier = asked[0], self.part.own, Frontier(asked[0])
        if self.disjoint:
            before = asked[2].long() if self.by_time else None
            frontier = Frontier(nodes, torch.arange(len(nodes)), asked[1], before)
        drawn = draw_edges(self.index, frontier, fan_outs, seeds=seeds, with_factors=self.unbiased)
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
