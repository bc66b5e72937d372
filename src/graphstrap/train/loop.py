"""The training loop: the only one. It knows steps, logs and checkpoints, and nothing of what a method computes. One
model or many: many train side by side on the same graph, each with a seed and a run folder of its own."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from graphstrap.errors import InterruptedTrainingError
from graphstrap.graph import Graph
from graphstrap.graph.many import GraphBatches
from graphstrap.nn.methods import Method
from graphstrap.ops.memory import keep_freed_memory
from graphstrap.run.recipe import Recipe
from graphstrap.train.batches import make_batches
from graphstrap.train.console import Interrupt, TrainingBar
from graphstrap.train.log import Clock, MetricsLog, MetricsSink, RunFolder
from graphstrap.train.step import CapturedStep, EagerStep, capture_together

Evaluate = Callable[[Method], dict[str, float]]
MakeStep = Callable[..., EagerStep]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingJob:
    """A model to train: its method, its seed, where it is saved, how it is evaluated, where else its metrics go."""

    method: Method
    seed: int
    run: RunFolder | None = None
    evaluate: Evaluate | None = None
    sinks: Sequence[MetricsSink] = ()


def make_step(method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> EagerStep:
    """A captured step on CUDA, an eager one elsewhere or where GRAPHSTRAP_CAPTURE=0 asks for it. Steps on sampled
    batches, on some of many graphs, or by an encoder that was added, differ in shape, and a CUDA graph cannot: they are
    eager."""
    if recipe.sampling.fan_outs:
        device = next(method.parameters()).device
        batches = make_batches(graph, recipe=recipe, seed=seed, device=device)
        return EagerStep(method, graph, recipe=recipe, seed=seed, batches=batches)
    why_eager, graph_batches = "", None
    if recipe.train.graphs_per_step not in (0, graph.num_graphs):
        graph_batches = GraphBatches(graph, num_drawn=recipe.train.graphs_per_step, seed=seed)
        why_eager = "train.graphs_per_step draws other graphs each time"
    elif not getattr(method.online, "is_captured", True):
        why_eager = "an added encoder gets other edges each time"
    elif os.environ.get("GRAPHSTRAP_CAPTURE") == "0":
        why_eager = "GRAPHSTRAP_CAPTURE=0"
    if graph.device.type == "cuda":
        if not why_eager:
            return CapturedStep(method, graph, recipe=recipe, seed=seed)
        logger.warning("steps are not captured as a CUDA graph: %s", why_eager)
    return EagerStep(method, graph, recipe=recipe, seed=seed, batches=graph_batches)


def train_together(
    jobs: Sequence[TrainingJob],
    graph: Graph,
    *,
    recipe: Recipe,
    progress: bool = False,
    make_step: MakeStep = make_step,
    interrupt: Interrupt | None = None,
) -> list[list[dict[str, Any]]]:
    """Train every model in place, each as it would be trained alone, from its run's last checkpoint if it has one.
    Returns the metrics of each that were logged.

    Everything random in a step is a function of (seed, step), so a resumed run is the uninterrupted run, bit for bit.
    `make_step(method, graph, recipe=, seed=)` makes what is called at every step; `interrupt` says when to stop.
    """
    keep_freed_memory()
    with ExitStack() as at_exit:
        interrupt = at_exit.enter_context(interrupt or Interrupt())  # before anything is written: a signal then saves
        for job in jobs:
            if job.run is not None:
                at_exit.enter_context(job.run.locked())
        clock = Clock()
        sessions = []
        for job in jobs:
            step = make_step(job.method, graph, recipe=recipe, seed=job.seed)
            at_exit.callback(step.close)
            sessions.append(_Session(job, step, clock))
        start, num_steps = max(session.start for session in sessions), recipe.train.steps
        bar = at_exit.enter_context(TrainingBar(num_steps, start=start, shown=progress))
        for session in sessions:
            session.catch_up(start)  # an interruption may have found some of them saved and others not
        replay = capture_together([session.step for session in sessions]) if start < num_steps else None
        for number in range(start + 1, num_steps + 1):
            results = replay(number) if replay else [session.step(number) for session in sessions]
            is_last = interrupt.requested  # asked once: a signal that comes later is obeyed after the next step
            for session, (loss, stats) in zip(sessions, results, strict=True):
                session.record(number, loss, stats, save_now=is_last)
            bar.show(number, loss=sessions[0].log.loss, speed=sessions[0].log.speed)
            if is_last and number < num_steps:
                raise InterruptedTrainingError(number, terminated=interrupt.terminated)
    return [session.log.records for session in sessions]


class _Session:
    """One model's training from its last checkpoint on: its step, its log, its next checkpoints."""

    def __init__(self, job: TrainingJob, step: EagerStep, clock: Clock) -> None:
        self.job, self.step, self.clock = job, step, clock
        self.start = 0 if job.run is None else job.run.restore(step.method, step.optimizer)
        self.log = MetricsLog(job.run, start=self.start, clock=clock, sinks=job.sinks)
        self._saved_at = time.monotonic()

    def catch_up(self, last: int) -> None:
        for number in range(self.start + 1, last + 1):
            loss, stats = self.step(number)
            self.record(number, loss, stats, save_now=number == last)

    def record(self, number: int, loss: Tensor, stats: dict[str, Tensor], *, save_now: bool) -> None:
        """Evaluate, log and save what is due after a step."""
        job, log, settings = self.job, self.log, self.step.recipe.train
        save_now = save_now or number == settings.steps
        evaluate = job.evaluate if _is_due(number, settings.evaluate_every, settings.steps) else None
        if evaluate is not None or number == 1 or _is_due(number, settings.log_every, settings.steps):
            values = {"learning_rate": self.step.rate(number)}
            if evaluate is not None:
                with self.clock.stopped(after=loss):
                    values |= evaluate(job.method)
            log.note(number, loss, stats, values)
        if save_now:
            log.flush()
        if job.run is not None and (save_now or time.monotonic() - self._saved_at >= settings.checkpoint_seconds):
            log.check(float(loss), number)
            log.flush()
            job.run.checkpoint(self.step.method, self.step.optimizer, number)
            self._saved_at = time.monotonic()


def _is_due(number: int, every: int, last: int) -> bool:
    return every > 0 and (number % every == 0 or number == last)
