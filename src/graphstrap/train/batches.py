"""The batches that a recipe asks for: which roots, what is sampled around them, made ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.keep import child_seed
from graphstrap.methods import READS_EDGES
from graphstrap.recipe import Recipe, num_labelled_roots
from graphstrap.sampling import Gatherer, Prefetcher, Sampler, roots_at

# What of a GPU's free memory a graph may take before it stays on the host.
_MOST_OF_MEMORY = 0.6

Share = Callable[[Tensor], Tensor]


class Filler(Protocol):
    """What gives a batch its features and labels."""

    def fill(self, batch: Graph) -> Graph: ...


def make_batches(
    graph: Graph, *, recipe: Recipe, seed: int, device: torch.device, share: Share | None = None
) -> Prefetcher:
    """Batches of a prepared graph, each a function of (seed, step); with `share`, around some of the step's roots."""
    make = BatchMaker(graph, recipe=recipe, seed=seed, device=device, share=share)
    return Prefetcher(make, last_step=recipe.train.steps, device=device, depth=recipe.sampling.prefetch)


class BatchMaker:
    """Makes the batch of a step: roots, what is sampled around them, and what these nodes have. `sampler` and
    `gatherer` where others than the graph's own are to do it."""

    def __init__(
        self,
        graph: Graph,
        *,
        recipe: Recipe,
        seed: int,
        device: torch.device,
        share: Share | None = None,
        sampler: Sampler | None = None,
        gatherer: Filler | None = None,
    ) -> None:
        self.seed, self.share = seed, share
        self.sampler = sampler or make_sampler(graph, recipe)
        self.gatherer = gatherer or Gatherer(graph, device=device, num_hot=recipe.sampling.hot_nodes)
        self.roots = choose_roots(graph, recipe, seed)

    def sample(self, step: int) -> Graph:
        """The batch without features and labels."""
        roots = self.roots(step) if self.share is None else self.share(self.roots(step))
        return self.sampler.sample(roots, seed=self.seed, step=step, are_distinct=True)

    def __call__(self, step: int) -> Graph:
        return self.gatherer.fill(self.sample(step))


def choose_roots(graph: Graph, recipe: Recipe, seed: int) -> Callable[[int], Tensor]:
    """The roots of a step, as many at every one of them."""
    if recipe.method.name == "semi-supervised":
        return _mixed_roots(graph, recipe, seed)
    size, candidates = recipe.sampling.batch_size, _candidates(graph, recipe)
    return lambda step: roots_at(step, candidates=candidates, batch_size=size, seed=seed)


def _candidates(graph: Graph, recipe: Recipe) -> Tensor | int:
    """The nodes that roots are drawn from, or how many there are where all are."""
    wanted = recipe.sampling.root_types
    unknown = [name for name in wanted if name not in graph.node_types]
    if unknown:
        raise InputError(f"sampling.root_types names {unknown[0]!r}, but nodes are of {', '.join(graph.node_types)}")
    if not wanted:
        return graph.num_nodes
    bounds = zip(graph.node_types, pairwise(graph.type_offsets), strict=True)
    return torch.cat([torch.arange(first, last) for name, (first, last) in bounds if name in wanted])


def _mixed_roots(graph: Graph, recipe: Recipe, seed: int) -> Callable[[int], Tensor]:
    """Labelled roots, then `unlabelled_ratio` times as many without a label, of node types that have labels at all."""
    labelled, unlabelled = _by_label(graph)
    size, num_labelled = recipe.sampling.batch_size, num_labelled_roots(recipe)

    def choose(step: int) -> Tensor:
        first = roots_at(step, candidates=labelled, batch_size=num_labelled, seed=child_seed(seed, 0))
        rest = min(size - num_labelled, len(unlabelled))
        if rest == 0:
            return first
        return torch.cat([first, roots_at(step, candidates=unlabelled, batch_size=rest, seed=child_seed(seed, 1))])

    return choose


def _by_label(graph: Graph) -> tuple[Tensor, Tensor]:
    assert graph.labels is not None
    has_label = graph.labels.cpu() >= 0
    is_candidate = torch.zeros_like(has_label)
    for first, last in pairwise(graph.type_offsets):
        is_candidate[first:last] = bool(has_label[first:last].any())
    return has_label.nonzero().squeeze(1), (is_candidate & ~has_label).nonzero().squeeze(1)


def make_sampler(graph: Graph, recipe: Recipe) -> Sampler:
    """The sampler of a recipe's training and inference. Encoders that take an edge's weight for one of its features get
    edges as they are."""
    return Sampler(graph, recipe.sampling.by_hop(), **sampler_flags(recipe))


def sampler_flags(recipe: Recipe) -> dict[str, bool]:
    settings = recipe.sampling
    unbiased = settings.unbiased and recipe.encoder.name not in READS_EDGES
    return {"disjoint": settings.disjoint, "by_time": settings.by_time, "unbiased": unbiased}


def place_graph(graph: Graph, recipe: Recipe, device: torch.device) -> Graph:
    """The graph where training is to find it: on the device, or on the host where it would not fit or the recipe says
    so. Without sampling it must be on the device."""
    storage = recipe.sampling.storage
    if not recipe.sampling.fan_outs:
        return graph.to(device).with_readable_features()
    if device.type == "cpu" or storage == "device":
        return graph.to(device)
    if storage == "host" or graph.num_bytes > _MOST_OF_MEMORY * torch.cuda.mem_get_info(device)[0]:
        return graph
    return graph.to(device)
