"""The training loop: the only one. It knows steps, schedules, logs and checkpoints, and nothing of what a method
computes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.methods import Method
from graphstrap.recipe import Recipe, TrainRecipe
from graphstrap.run import Run
from graphstrap.train.interrupt import Interrupt
from graphstrap.train.memory import keep_freed_memory
from graphstrap.train.monitor import monitor_embeddings
from graphstrap.train.progress import TrainingBar
from graphstrap.train.step import make_step

Evaluate = Callable[[Method], dict[str, float]]


class InterruptedTrainingError(Exception):
    """Stopped by Ctrl-C or SIGTERM, after saving where a run folder was given."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class DivergedError(Exception):
    """The loss is no longer a number. The last checkpoint is from before."""


def train(
    method: Method,
    graph: Graph,
    *,
    recipe: Recipe,
    seed: int,
    run: Run | None = None,
    evaluate: Evaluate | None = None,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Train in place, from the run's last checkpoint if it has one. Returns the metrics that were logged.

    Everything random in a step is a function of (seed, step), so a resumed run is the uninterrupted run, bit for bit.
    """
    keep_freed_memory()
    settings = recipe.train
    take_step = make_step(method, graph, recipe=recipe, seed=seed)
    module, optimizer = take_step.module, take_step.optimizer
    start = 0 if run is None else run.restore(module, optimizer)
    log = _Log(settings, run, start)
    with TrainingBar(settings.steps, start=start, shown=progress) as bar, Interrupt() as interrupt:
        for step in range(start + 1, settings.steps + 1):
            loss, stats = take_step(step)
            last = step == settings.steps
            evaluation_is_due = evaluate is not None and _is_due(step, settings.evaluate_every, settings.steps)
            if evaluation_is_due or _is_due(step, settings.log_every, settings.steps) or step == 1:
                extra = evaluate(method) if evaluate is not None and evaluation_is_due else {}
                log.write(step, loss, stats, {"learning_rate": take_step.learning_rate, **extra})
                bar.update(step, loss=log.records[-1]["loss"], speed=log.speed)
            bar.update(step)
            if run is not None and (last or interrupt.requested or log.checkpoint_is_due()):
                _raise_if_diverged(float(loss), step)
                run.checkpoint(module, optimizer, step)
                log.checkpoint_done()
            if interrupt.requested and not last:
                raise InterruptedTrainingError(step)
    return log.records


def _is_due(step: int, every: int, last: int) -> bool:
    return every > 0 and (step % every == 0 or step == last)


def _raise_if_diverged(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise DivergedError(
            f"the loss became {loss} by step {step}: try a lower train.learning_rate or encoder.norm=batch; "
            "the last checkpoint, if any, is from before"
        )


class _Log:
    """Metrics of this session, and the clock that says when a checkpoint is due."""

    def __init__(self, settings: TrainRecipe, run: Run | None, start: int) -> None:
        self.records: list[dict[str, Any]] = []
        self.speed = 0.0
        self._settings, self._run = settings, run
        self._last_step, self._last_time = start, time.monotonic()
        self._last_checkpoint = time.monotonic()

    def write(self, step: int, loss: Tensor, stats: dict[str, Tensor], extra: dict[str, float]) -> None:
        value = float(loss)
        _raise_if_diverged(value, step)
        now = time.monotonic()
        self.speed = (step - self._last_step) / max(1e-9, now - self._last_time)
        self._last_step, self._last_time = step, now
        record: dict[str, Any] = {"step": step, "loss": value}
        if "embedding" in stats:
            record |= monitor_embeddings(stats["embedding"])
        record |= extra
        record["steps_per_second"] = round(self.speed, 3)
        self.records.append(record)
        if self._run is not None:
            self._run.log(record)

    def checkpoint_is_due(self) -> bool:
        return time.monotonic() - self._last_checkpoint >= self._settings.checkpoint_seconds

    def checkpoint_done(self) -> None:
        self._last_checkpoint = time.monotonic()
