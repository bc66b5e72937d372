"""One training step: views, loss, gradient, optimiser, moving average; called directly, or captured as a CUDA graph.

At ten thousand nodes a GPU step is bound by the launching of its kernels. Captured, all of them are one launch; what
changes from step to step (view seeds, learning rate, the step itself) lives in device tensors that are filled before
each replay. The steps of several models are captured together, on parallel lanes: one model's small kernels fill the
gaps of another's, and each computes exactly what it would alone.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

from graphstrap.graph import Graph, View
from graphstrap.graph.many import GraphBatches
from graphstrap.graph.views import child_seed
from graphstrap.nn.methods import Method
from graphstrap.ops.adamw import AdamW
from graphstrap.ops.precision import computing_in, has_part_of_a_gpu, resolve_precision
from graphstrap.run.recipe import Recipe, TrainRecipe
from graphstrap.train.batches import Prefetcher
from graphstrap.train.centrality import adaptive_specs

# Views draw from their own branch of a run's seed, apart from the initial weights.
_VIEW_BRANCH = 1_000_003
_WARMUP_STEPS = 3
_MAX_LANES = 10

Result = tuple[Tensor, dict[str, Tensor]]
Batches = Prefetcher | GraphBatches  # of every step, where steps do not see the whole graph


class EagerStep:
    """Calls the method and the optimiser directly, on the whole graph or on a batch."""

    def __init__(
        self, method: Method, graph: Graph, *, recipe: Recipe, seed: int, batches: Batches | None = None
    ) -> None:
        self.method, self.graph, self.recipe, self.seed, self.batches = method, graph, recipe, seed, batches
        views, self.specs = recipe.views, recipe.views.specs()
        if views.centrality != "none":
            self.specs = adaptive_specs(
                graph, self.specs, centrality=views.centrality, max_drop_prob=views.max_drop_prob
            )
        self.optimizer = make_optimizer(self.method, recipe)
        self.device = next(self.method.parameters()).device
        self.precision = resolve_precision(recipe.train.precision, self.device)

    def __call__(self, step: Any, seeds: Any = None) -> Result:
        """Take a step. A capture gives its number and the seeds of its views as tensors, and sets the rate itself."""
        batch = self.graph
        if seeds is None:
            seeds = draw_seeds(len(self.specs), seed=self.seed, step=step)
            self.optimizer.rate, batch = self.rate(step), self.batch(step)
        self.method.train()
        views = [View(spec, seeds[index]) for index, spec in enumerate(self.specs)]
        with computing_in(self.precision, self.device):
            loss, stats = self.method.loss(batch, views)
            self.optimizer.forget_gradients()
            torch.autograd.backward(loss)
        loss = self.share_gradients(loss.detach(), batch)
        self.optimizer.step()
        self.method.after_step(step)
        return loss, stats

    def share_gradients(self, loss: Tensor, batch: Graph) -> Tensor:
        """Replace gradients and loss by those of all workers; a worker of its own has nothing to replace."""
        return loss

    def batch(self, step: int) -> Graph:
        return self.graph if self.batches is None else self.batches(step)

    def rate(self, step: int) -> float:
        return learning_rate_at(step, self.recipe.train)

    def close(self) -> None:
        """End what makes batches ahead."""
        if self.batches is not None:
            self.batches.close()


def draw_seeds(num_views: int, *, seed: int, step: int) -> list[int]:
    """The seeds of a training step's views. The same (seed, step) gives the same ones, resumed or not."""
    return [child_seed(seed, _VIEW_BRANCH, step, index) for index in range(num_views)]


def learning_rate_at(step: int, train: TrainRecipe) -> float:
    """Linear from 0 to the full rate over the warm-up, then along a half cosine down to 0 at the last step (the paper's
    appendix), or constant (most baselines)."""
    if step < train.warmup_steps:
        return train.learning_rate * step / train.warmup_steps
    if train.schedule == "constant":
        return train.learning_rate
    progress = (step - train.warmup_steps) / max(1, train.steps - train.warmup_steps)
    return train.learning_rate * (1.0 + math.cos(math.pi * min(1.0, progress))) / 2.0


def make_optimizer(module: nn.Module, recipe: Recipe) -> AdamW:
    """AdamW over what learns."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return AdamW(learned, rate=recipe.train.learning_rate, weight_decay=recipe.train.weight_decay)


class CapturedStep(EagerStep):
    """The same step as one CUDA graph. The first call captures, without moving any weight; every call replays."""

    def __call__(self, step: Any, seeds: Any = None) -> Result:
        return self._alone.replay(step)[0] if seeds is None else super().__call__(step, seeds)

    @cached_property
    def _alone(self) -> _Capture:
        return _Capture([self])

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """What runs inside moves no weight, statistic or moment; optimiser state that it makes starts from zero."""
        before = {name: tensor.clone() for name, tensor in self._state().items()}
        yield
        with torch.no_grad():
            for name, tensor in self._state().items():
                if name in before:
                    tensor.copy_(before[name])
                else:
                    tensor.zero_()

    def _state(self) -> dict[str, Tensor]:
        state = {f"module.{name}": tensor for name, tensor in self.method.state_dict().items()}
        for index, moments in enumerate(self.optimizer.state.values()):
            state |= {f"optimizer.{index}.{name}": tensor for name, tensor in moments.items()}
        return state


def capture_together(steps: Sequence[EagerStep]) -> Callable[[int], list[Result]] | None:
    """The steps of several models on one graph as one program; None where each is taken by itself.

    That is so on a CPU, and on part of a GPU, where models side by side came out wrong (docs/LOG.md).
    """
    captured = [one for one in steps if isinstance(one, CapturedStep)]
    if len(captured) < len(steps) or len(captured) == 1 or has_part_of_a_gpu():
        return None
    return _Capture(captured).replay


class _Capture:
    """One CUDA graph of the steps of one or more models of one recipe."""

    def __init__(self, steps: Sequence[CapturedStep]) -> None:
        self.steps = steps
        device = steps[0].graph.device
        self._seeds = torch.zeros(len(steps), len(steps[0].specs), dtype=torch.int64, device=device)
        self._step = torch.zeros((), dtype=torch.int64, device=device)
        self._rate = torch.zeros((), device=device)
        for one in steps:
            one.optimizer.rate = self._rate
        self._fill(1)
        lanes = _lanes(len(steps))
        lane_of = [lanes[k % len(lanes)] for k in range(len(steps))]
        for k, one in enumerate(steps):
            with one.unmoved():
                for _ in range(_WARMUP_STEPS):
                    self._run(k, lane_of[k])
                torch.cuda.current_stream().wait_stream(lane_of[k])
        self._graph = torch.cuda.CUDAGraph()
        with _no_garbage_collection(), torch.cuda.graph(self._graph):
            self._results = [self._run(k, lane) for k, lane in enumerate(lane_of)]
            for lane in lanes:
                torch.cuda.current_stream().wait_stream(lane)

    def _run(self, k: int, lane: torch.cuda.Stream) -> Result:
        """A step on its own lane: what cuBLAS keeps for a stream must not be made in the capture."""
        lane.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(lane):
            return self.steps[k](self._step, self._seeds[k])

    def _fill(self, step: int) -> None:
        """Write what a step needs into the tensors that the capture reads."""
        seeds = [draw_seeds(len(one.specs), seed=one.seed, step=step) for one in self.steps]
        self._seeds.copy_(torch.tensor(seeds), non_blocking=True)
        self._step.fill_(step)
        self._rate.fill_(self.steps[0].rate(step))

    def replay(self, step: int) -> list[Result]:
        self._fill(step)
        self._graph.replay()
        return self._results


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """An earlier capture that is thrown away while another is recorded would spoil it."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _lanes(num_steps: int) -> list[torch.cuda.Stream]:
    """As many as give each the same number of steps."""
    steps_a_lane = math.ceil(num_steps / _MAX_LANES)
    return [_lane(index) for index in range(math.ceil(num_steps / steps_a_lane))]


@cache
def _lane(index: int) -> torch.cuda.Stream:
    """The same ones for all captures: every new stream keeps a workspace of its own."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]
