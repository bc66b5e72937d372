"""The batches that a recipe asks for: which roots, what is sampled around them, made ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import block_tensors
from graphstrap.graph.views import child_seed
from graphstrap.run.recipe import Recipe
from graphstrap.train.sampling.draw import permuted
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer

_ROOTS_BRANCH = 1_000_037


def roots_at(step: int, *, candidates: Tensor | int, batch_size: int, seed: int) -> Tensor:
    """The roots of a step (from 1 up), all different; a function of (seed, step), as a resumed run needs it.

    Every epoch visits all candidates once, in an order of its own; the rest that does not fill a batch begins the next
    one, so every batch has the same size. No order is ever made: see `permuted`.

    Args:
        candidates: the nodes to choose from, or their number for 0, 1, 2, ...
    """
    size = candidates if isinstance(candidates, int) else len(candidates)
    if size == 0:
        raise InputError(
            "there are no nodes to be roots: choose other sampling.root_types, or give nodes of these types"
        )
    batch_size = min(batch_size, size)
    places = torch.arange((step - 1) * batch_size, step * batch_size)
    epochs = places // size
    chosen = torch.empty_like(places)
    for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
        is_now = epochs == epoch
        chosen[is_now] = permuted(places[is_now] % size, size=size, seed=child_seed(seed, _ROOTS_BRANCH, epoch))
    chosen = _without_repeats(chosen, size=size, seed=child_seed(seed, _ROOTS_BRANCH, step, 1))
    return chosen if isinstance(candidates, int) else candidates.cpu().index_select(0, chosen)


def _without_repeats(chosen: Tensor, *, size: int, seed: int) -> Tensor:
    """Where the end of one epoch and the beginning of the next have a node in common, another takes its place."""
    ordered, order = torch.sort(chosen, stable=True)
    repeated = order[1:][ordered[1:] == ordered[:-1]]
    if len(repeated) == 0:
        return chosen
    substitutes = permuted(torch.arange(min(size, len(chosen) + len(repeated))), size=size, seed=seed)
    unused = substitutes[~torch.isin(substitutes, chosen)]
    return chosen.index_copy(0, repeated, unused[: len(repeated)])


Made = tuple[Graph, "torch.cuda.Event | None"]


class Prefetcher:
    """Gives the batch of a step, while a thread makes those of the next steps.

    On CUDA the thread works on a stream of its own, and the stream that takes a batch waits for it. A batch is a
    function of its step, so nothing depends on who was faster.

    Args:
        make: makes the batch of a step.
        last_step: no batch is made for steps beyond.
        depth: how many batches to make ahead; 0 to make them when asked.
    """

    # Makes what `_work` is done by: anything with the `submit` and `shutdown` of an executor.
    _start: ClassVar[Callable[[], Any]] = partial(ThreadPoolExecutor, 1, thread_name_prefix="sampler")

    def __init__(self, make: Callable[[int], Graph], *, last_step: int, device: torch.device, depth: int = 2) -> None:
        self.make, self._last, self._device, self._depth = make, last_step, device, depth
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if self._stream is not None:  # what `make` works with may still be on its way
            self._stream.wait_stream(torch.cuda.current_stream(device))
        self._waiting: dict[int, Future[Made]] = {}
        self._worker = type(self)._start() if depth else None

    def __call__(self, step: int) -> Graph:
        if self._worker is None:
            return self.make(step)
        for ahead in range(step, min(step + self._depth, self._last) + 1):
            if ahead not in self._waiting:
                self._waiting[ahead] = self._worker.submit(self._work, ahead)
        for old in [s for s in self._waiting if s < step]:
            self._waiting.pop(old).cancel()
        batch, ready = self._waiting.pop(step).result()
        if ready is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(ready)
            for tensor in tensors_of(batch):
                tensor.record_stream(current)
        return batch

    def close(self) -> None:
        """Forget what was made ahead."""
        self._waiting.clear()
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)

    def _work(self, step: int) -> Made:
        if self._stream is None:
            return self.make(step), None
        with torch.cuda.stream(self._stream):
            batch = self.make(step)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(self._stream)
        return batch, ready


def tensors_of(batch: Graph) -> list[Tensor]:
    """Every tensor that a batch is made of."""
    columns = [getattr(batch, field.name) for field in fields(batch)]
    found = [column for column in columns if isinstance(column, Tensor)]
    return found + [tensor for block in batch.features for tensor in block_tensors(block)]


Share = Callable[[Tensor], Tensor]


def make_batches(
    graph: Graph, *, recipe: Recipe, seed: int, device: torch.device, share: Share | None = None
) -> Prefetcher:
    """Batches of a prepared graph, each a function of (seed, step); with `share`, around some of the step's roots."""
    make = BatchMaker(graph, recipe=recipe, seed=seed, device=device, share=share)
    return Prefetcher(make, last_step=recipe.train.steps, device=device, depth=recipe.sampling.prefetch)


class BatchMaker:
    """Makes the batch of a step: roots, what is sampled around them, and what these nodes have. `sampler` and `fill`
    where others than the graph's own are to do it."""

    def __init__(
        self,
        graph: Graph,
        *,
        recipe: Recipe,
        seed: int,
        device: torch.device,
        share: Share | None = None,
        sampler: Sampler | None = None,
        fill: Callable[[Graph], Graph] | None = None,
    ) -> None:
        self.seed, self.share = seed, share
        self.sampler = sampler or make_sampler(graph, recipe)
        self.fill = fill or Gatherer(graph, device=device, num_hot=recipe.sampling.hot_nodes).fill
        self.roots = choose_roots(graph, recipe, seed)

    def sample(self, step: int) -> Graph:
        """The batch without features and labels."""
        roots = self.roots(step) if self.share is None else self.share(self.roots(step))
        return self.sampler.sample(roots, seed=self.seed, step=step, are_distinct=True)

    def __call__(self, step: int) -> Graph:
        return self.fill(self.sample(step))


def choose_roots(graph: Graph, recipe: Recipe, seed: int) -> Callable[[int], Tensor]:
    """The roots of a step, as many at every one of them."""
    if recipe.method_class.learns_labels:
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
    assert graph.labels is not None
    has_label = graph.labels.cpu() >= 0
    is_candidate = torch.zeros_like(has_label)
    for first, last in pairwise(graph.type_offsets):
        is_candidate[first:last] = bool(has_label[first:last].any())
    labelled, unlabelled = (which.nonzero().squeeze(1) for which in (has_label, is_candidate & ~has_label))
    size, num_labelled = recipe.sampling.batch_size, recipe.method.num_labelled_roots(recipe.sampling.batch_size)

    def choose(step: int) -> Tensor:
        first = roots_at(step, candidates=labelled, batch_size=num_labelled, seed=child_seed(seed, 0))
        rest = min(size - num_labelled, len(unlabelled))
        if rest == 0:
            return first
        return torch.cat([first, roots_at(step, candidates=unlabelled, batch_size=rest, seed=child_seed(seed, 1))])

    return choose


def make_sampler(graph: Graph, recipe: Recipe) -> Sampler:
    """The sampler of a recipe's training and inference. Encoders that take an edge's weight for one of its features get
    edges as they are."""
    return Sampler(graph, recipe.sampling.by_hop(), **sampler_flags(recipe))


def sampler_flags(recipe: Recipe) -> dict[str, bool]:
    settings = recipe.sampling
    unbiased = settings.unbiased and not recipe.encoder_class.reads_edges
    return {"disjoint": settings.disjoint, "by_time": settings.by_time, "unbiased": unbiased}
