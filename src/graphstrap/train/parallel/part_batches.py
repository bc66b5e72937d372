"""Batches of a graph in parts: which roots a worker takes, who samples for them, and how making them ahead ends.

A worker's batches are made in step with those of all others: each step takes the same number of exchanges everywhere.
So when training stops, after the same step on all workers, what was begun ahead is finished, not thrown away: another
worker may be waiting for this one's answers. Where a worker fails, the others are waiting in vain; its thread is left
behind, and its process ends, which ends theirs.
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
from graphstrap.train.parallel.exchange import Exchange, PartGatherer
from graphstrap.train.parallel.part_sampler import PartSampler
from graphstrap.train.parallel.workers import BackgroundThread, Workers

_SECONDS_TO_FINISH = 15.0


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


def check_parts(part: Graph, recipe: Recipe, workers: Workers) -> None:
    """Whether these workers can train this recipe on this graph, which may be in parts."""
    if not isinstance(part, Part):
        if recipe.sampling.roots == "owner" and workers.size > 1:
            raise InputError("sampling.roots=owner is for graphs in parts, and this one is whole: set it to turn")
        return
    if part.num_parts != workers.size:
        raise InputError(
            f"the graph is in {part.num_parts} parts, and there are {workers.size} workers: start as many as parts, "
            "or partition it anew"
        )
    if not recipe.sampling.fan_outs:
        raise InputError("a graph in parts is trained on sampled batches: give --set sampling.fan_outs=[10,10]")
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

    def __init__(self, make: Callable[[int], Graph], exchange: Exchange, **options: Any) -> None:
        super().__init__(make, **options)
        self._exchange = exchange

    def _start(self) -> BackgroundThread:
        return BackgroundThread()

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
