"""One training step: views, loss, gradient, optimiser, moving average. Eager, or captured once as a CUDA graph and
replayed.

At ten thousand nodes a GPU step is bound by the launching of its kernels. Captured, all of them are one launch; what
changes from step to step (view seeds, learning rate, the step itself) lives in device tensors that are filled before
each replay. The steps of several models are captured together, on parallel lanes: one model's small kernels fill the
gaps of another's, and each computes exactly what it would alone.
"""

from __future__ import annotations

import gc
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphstrap.encoders.from_pyg import FromPyG
from graphstrap.graph import Graph
from graphstrap.many_graphs import GraphBatches
from graphstrap.methods import Method
from graphstrap.recipe import Recipe
from graphstrap.sampling import Prefetcher
from graphstrap.train.batches import make_batches
from graphstrap.train.precision import computing_in, resolve_precision
from graphstrap.train.schedule import learning_rate_at
from graphstrap.view import View, ViewSpec
from graphstrap.views import adaptive_specs, draw_seeds

Result = tuple[Tensor, dict[str, Tensor]]

_WARMUP_STEPS = 3
_MAX_LANES = 10
logger = logging.getLogger(__name__)


class EagerStep:
    """Calls the method and the optimiser directly."""

    def __init__(self, method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> None:
        self.method, self.graph, self.recipe, self.seed = method, graph, recipe, seed
        self.module = cast(nn.Module, method)
        self.specs = view_specs(recipe, graph)
        self.optimizer = make_optimizer(self.module, recipe)
        self.device = next(self.module.parameters()).device
        self.precision = resolve_precision(recipe.train.precision, self.device)

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def __call__(self, step: int) -> Result:
        rate = self.rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return self.run(draw_seeds(len(self.specs), seed=self.seed, step=step), step, self.batch(step))

    def batch(self, step: int) -> Graph:
        """What a step learns from: the whole graph."""
        return self.graph

    def close(self) -> None:
        """Nothing runs in the background."""

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        train = self.recipe.train
        return learning_rate_at(
            step,
            base=train.learning_rate,
            warmup_steps=train.warmup_steps,
            total_steps=train.steps,
            schedule=train.schedule,
        )

    def run(self, seeds: Any, step: int | Tensor, batch: Graph) -> Result:
        """The step itself, for views of these seeds."""
        self.module.train()
        views = [View(spec, seeds[index]) for index, spec in enumerate(self.specs)]
        with computing_in(self.precision, self.device):
            loss, stats = self.method.loss(batch, views)
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
        loss = self.gradients_made(loss.detach(), batch)
        self.optimizer.step()
        self.method.after_step(step)
        return loss, stats

    def gradients_made(self, loss: Tensor, batch: Graph) -> Tensor:
        """What happens to gradients and loss before they are used: nothing."""
        return loss


class DrawnStep(EagerStep):
    """The same step on some whole graphs of many, other ones every time."""

    def __init__(self, method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> None:
        super().__init__(method, graph, recipe=recipe, seed=seed)
        self._batches = GraphBatches(graph, num_drawn=recipe.train.graphs_per_step, seed=seed)

    def batch(self, step: int) -> Graph:
        return self._batches(step)


class SampledStep(EagerStep):
    """The same step on a batch of its own, made while the step before runs; with `share`, around some of its roots.
    `batches` gives others than those of the graph."""

    def __init__(
        self,
        method: Method,
        graph: Graph,
        *,
        recipe: Recipe,
        seed: int,
        share: Callable[[Tensor], Tensor] | None = None,
        batches: Prefetcher | None = None,
    ) -> None:
        super().__init__(method, graph, recipe=recipe, seed=seed)
        self.batches = batches or make_batches(graph, recipe=recipe, seed=seed, device=self.device, share=share)

    def batch(self, step: int) -> Graph:
        return self.batches(step)

    def close(self) -> None:
        self.batches.close()


class CapturedStep(EagerStep):
    """The same step as one CUDA graph. The first call captures, without moving any weight; every call replays."""

    def __init__(self, method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> None:
        super().__init__(method, graph, recipe=recipe, seed=seed)
        self._captured: _Capture | None = None

    def __call__(self, step: int) -> Result:
        if self._captured is None:
            self._captured = _Capture([self])
        return self._captured.replay(step)[0]

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of every weight, statistic and moment."""
        return {name: tensor.clone() for name, tensor in self._state().items()}

    def restore(self, before: dict[str, Tensor]) -> None:
        """What warming up has moved goes back; optimiser state that it made starts from zero."""
        with torch.no_grad():
            for name, tensor in self._state().items():
                if name in before:
                    tensor.copy_(before[name])
                else:
                    tensor.zero_()

    def _state(self) -> dict[str, Tensor]:
        state = {f"module.{name}": tensor for name, tensor in self.module.state_dict().items()}
        for index, moments in enumerate(self.optimizer.state.values()):
            state |= {f"optimizer.{index}.{name}": tensor for name, tensor in moments.items()}
        return state


class StepsTogether:
    """The steps of several models on one graph: on CUDA one captured program, elsewhere one after the other."""

    def __init__(self, steps: Sequence[EagerStep]) -> None:
        self.steps = steps
        self._captured: _Capture | None = None

    def __call__(self, step: int) -> list[Result]:
        captured = [one for one in self.steps if isinstance(one, CapturedStep)]
        if len(captured) < len(self.steps) or len(captured) == 1:
            return [one(step) for one in self.steps]
        if self._captured is None:
            self._captured = _Capture(captured)
        return self._captured.replay(step)


class _Capture:
    """One CUDA graph of the steps of one or more models of one recipe."""

    def __init__(self, steps: Sequence[CapturedStep]) -> None:
        self.steps = steps
        device = steps[0].graph.device
        self._seeds = torch.zeros(len(steps), len(steps[0].specs), dtype=torch.int64, device=device)
        self._step = torch.zeros((), dtype=torch.int64, device=device)
        self._rate = torch.zeros((), device=device)
        for one in steps:
            for group in one.optimizer.param_groups:
                group["lr"] = self._rate
        self._fill(1)
        main = torch.cuda.current_stream()
        lanes = _lanes(len(steps))
        for k, one in enumerate(steps):
            before = one.snapshot()
            lanes[0].wait_stream(main)
            with torch.cuda.stream(lanes[0]):
                for _ in range(_WARMUP_STEPS):
                    one.run(self._seeds[k], self._step, one.graph)
            main.wait_stream(lanes[0])
            one.restore(before)
        self._graph = torch.cuda.CUDAGraph()
        with _no_garbage_collection(), torch.cuda.graph(self._graph):
            main = torch.cuda.current_stream()
            self._results = [self._record(k, lanes[k % len(lanes)], main) for k in range(len(steps))]
            for lane in lanes:
                main.wait_stream(lane)

    def _record(self, k: int, lane: torch.cuda.Stream, main: torch.cuda.Stream) -> Result:
        lane.wait_stream(main)
        with torch.cuda.stream(lane):
            return self.steps[k].run(self._seeds[k], self._step, self.steps[k].graph)

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


def make_step(method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> EagerStep:
    """A captured step on CUDA, an eager one elsewhere or where GRAPHSTRAP_CAPTURE=0 asks for it. Steps on sampled
    batches, on some of many graphs, or by an encoder that was added, differ in shape, and a CUDA graph cannot: they are
    eager."""
    if recipe.sampling.fan_outs:
        return SampledStep(method, graph, recipe=recipe, seed=seed)
    if recipe.train.graphs_per_step not in (0, graph.num_graphs):
        if graph.device.type == "cuda":
            logger.warning("steps are not captured as a CUDA graph: train.graphs_per_step draws other graphs each time")
        return DrawnStep(method, graph, recipe=recipe, seed=seed)
    if graph.device.type != "cuda":
        return EagerStep(method, graph, recipe=recipe, seed=seed)
    if isinstance(method.online, FromPyG):
        logger.warning("steps are not captured as a CUDA graph: an added encoder gets other edges each time")
        return EagerStep(method, graph, recipe=recipe, seed=seed)
    if os.environ.get("GRAPHSTRAP_CAPTURE") == "0":
        logger.warning("steps are not captured as a CUDA graph: GRAPHSTRAP_CAPTURE=0")
        return EagerStep(method, graph, recipe=recipe, seed=seed)
    return CapturedStep(method, graph, recipe=recipe, seed=seed)


def view_specs(recipe: Recipe, graph: Graph) -> list[ViewSpec]:
    """How strongly each view of this graph is perturbed."""
    views = recipe.views
    if views.centrality == "none":
        return views.specs()
    return adaptive_specs(graph, views.specs(), centrality=views.centrality, max_drop_prob=views.max_drop_prob)


def make_optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW over what learns. On CUDA its learning rate and step live in device tensors."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    on_cuda = learned[0].is_cuda
    rate = torch.tensor(recipe.train.learning_rate, device=learned[0].device) if on_cuda else recipe.train.learning_rate
    return torch.optim.AdamW(learned, lr=rate, weight_decay=recipe.train.weight_decay, fused=True, capturable=on_cuda)
