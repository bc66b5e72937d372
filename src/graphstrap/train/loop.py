"""The training loop: the only one. It knows steps, schedules, logs and checkpoints, and nothing of what a method
computes. One model or many: many train side by side on the same graph, each with a seed and a run folder of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from graphstrap.errors import DivergedError, InterruptedTrainingError
from graphstrap.graph import Graph
from graphstrap.nn.methods import Method
from graphstrap.ops.memory import keep_freed_memory
from graphstrap.run.recipe import Recipe
from graphstrap.train.captured_step import StepsTogether, make_step
from graphstrap.train.console import Interrupt, TrainingBar
from graphstrap.train.log import Clock, Journal, Log, Mirror
from graphstrap.train.step import EagerStep

Evaluate = Callable[[Method], dict[str, float]]
MakeStep = Callable[..., EagerStep]


@dataclass(frozen=True)
class Trainee:
    """A model to train: its method, its seed, where it is saved, how it is evaluated, who else gets metrics."""

    method: Method
    seed: int
    run: Journal | None = None
    evaluate: Evaluate | None = None
    mirrors: Sequence[Mirror] = ()


def train(
    method: Method,
    graph: Graph,
    *,
    recipe: Recipe,
    seed: int,
    run: Journal | None = None,
    evaluate: Evaluate | None = None,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Train in place, from the run's last checkpoint if it has one. Returns the metrics that were logged.

    Everything random in a step is a function of (seed, step), so a resumed run is the uninterrupted run, bit for bit.
    """
    return train_together([Trainee(method, seed, run, evaluate)], graph, recipe=recipe, progress=progress)[0]


def train_together(
    trainees: Sequence[Trainee],
    graph: Graph,
    *,
    recipe: Recipe,
    progress: bool = False,
    make_step: MakeStep = make_step,
    interrupt: Interrupt | None = None,
) -> list[list[dict[str, Any]]]:
    """Train every model, each as it would be trained alone. Returns the metrics of each.

    `make_step(method, graph, recipe=, seed=)` makes what is called at every step; `interrupt` says when to stop.
    """
    keep_freed_memory()
    with ExitStack() as at_exit:
        interrupt = at_exit.enter_context(interrupt or Interrupt())  # before anything is written: a signal then saves
        for trainee in trainees:
            if trainee.run is not None:
                at_exit.enter_context(trainee.run.locked())
        clock = Clock()
        courses = [_Course(trainee, graph, recipe, make_step, clock) for trainee in trainees]
        take_steps = StepsTogether([course.take_step for course in courses])
        start, steps = max(course.start for course in courses), recipe.train.steps
        bar = at_exit.enter_context(TrainingBar(steps, start=start, shown=progress))
        for course in courses:
            at_exit.callback(course.take_step.close)
        for course in courses:
            course.catch_up(start)  # an interruption may have found some of them saved and others not
        for step in range(start + 1, steps + 1):
            results = take_steps(step)
            is_last = interrupt.requested  # asked once: who is told later than this is saved after the next step
            for course, (loss, stats) in zip(courses, results, strict=True):
                course.record(step, loss, stats, save_now=is_last)
            bar.update(step, loss=courses[0].log.loss, speed=courses[0].log.speed)
            if is_last and step < steps:
                raise InterruptedTrainingError(step, terminated=interrupt.terminated)
    return [course.log.records for course in courses]


class _Course:
    """One model's way through training: its step, its log, its checkpoints."""

    def __init__(self, trainee: Trainee, graph: Graph, recipe: Recipe, make_step: MakeStep, clock: Clock) -> None:
        self.trainee, self.settings, self.clock = trainee, recipe.train, clock
        self.take_step = make_step(trainee.method, graph, recipe=recipe, seed=trainee.seed)
        module, optimizer = self.take_step.module, self.take_step.optimizer
        self.start = 0 if trainee.run is None else trainee.run.restore(module, optimizer)
        self.log = Log(trainee.run, start=self.start, check=_raise_if_diverged, clock=clock, mirrors=trainee.mirrors)

    def catch_up(self, step: int) -> None:
        for missed in range(self.start + 1, step + 1):
            loss, stats = self.take_step(missed)
            self.record(missed, loss, stats, save_now=missed == step)

    def record(self, step: int, loss: Tensor, stats: dict[str, Tensor], *, save_now: bool) -> None:
        """Log and save what is due after a step."""
        settings, trainee = self.settings, self.trainee
        last = step == settings.steps
        evaluate = trainee.evaluate if _is_due(step, settings.evaluate_every, settings.steps) else None
        if evaluate is not None or _is_due(step, settings.log_every, settings.steps) or step == 1:
            extra: dict[str, float] = {}
            if evaluate is not None:
                with self.clock.stopped(after=loss):
                    extra = evaluate(trainee.method)
            self.log.note(step, loss, stats, {"learning_rate": self.take_step.rate(step), **extra})
        if last or save_now:
            self.log.settle()
        if trainee.run is not None and (last or save_now or self.log.seconds_since_save >= settings.checkpoint_seconds):
            self.log.check(float(loss), step)
            self.log.settle()
            trainee.run.checkpoint(self.take_step.module, self.take_step.optimizer, step)
            self.log.saved()


def _is_due(step: int, every: int, last: int) -> bool:
    return every > 0 and (step % every == 0 or step == last)


def _raise_if_diverged(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise DivergedError(
            f"the loss became {loss} by step {step}: try a lower train.learning_rate or encoder.norm=batch; "
            "the last checkpoint, if any, is from before"
        )
