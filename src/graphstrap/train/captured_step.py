"""The training step captured once as a CUDA graph and replayed; and which steps can be.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.nn.encoders.from_pyg import FromPyG
from graphstrap.nn.methods import Method
from graphstrap.ops.precision import has_part_of_a_gpu
from graphstrap.run.recipe import Recipe
from graphstrap.train.step import DrawnStep, EagerStep, Result, SampledStep
from graphstrap.train.views import draw_seeds

_WARMUP_STEPS = 3
_MAX_LANES = 10
logger = logging.getLogger(__name__)


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
    """The steps of several models on one graph: on CUDA one captured program, elsewhere one after the other; and on
    part of a GPU, where models side by side came out wrong (docs/LOG.md)."""

    def __init__(self, steps: Sequence[EagerStep]) -> None:
        self.steps = steps
        self._captured: _Capture | None = None

    def __call__(self, step: int) -> list[Result]:
        captured = [one for one in self.steps if isinstance(one, CapturedStep)]
        if len(captured) < len(self.steps) or len(captured) == 1 or has_part_of_a_gpu():
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
            one.optimizer.rate = self._rate
        self._fill(1)
        main = torch.cuda.current_stream()
        lanes = _lanes(len(steps))
        for k, one in enumerate(steps):
            before, lane = one.snapshot(), lanes[k % len(lanes)]
            lane.wait_stream(main)
            with torch.cuda.stream(lane):  # its own: what cuBLAS keeps for a stream must not be made in the capture
                for _ in range(_WARMUP_STEPS):
                    one.run(self._seeds[k], self._step, one.graph)
            main.wait_stream(lane)
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
