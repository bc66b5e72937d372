"""The progress bar: step, loss, steps a second, time left. On stderr, and silent when asked to be.

Where nobody said whether it is to be shown, it is where someone can watch it move: not in logs, scripts or tests.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def can_be_watched() -> bool:
    """Whether stderr is a terminal, or this is a notebook that has what it takes to draw a bar."""
    return sys.stderr.isatty() or (Console(stderr=True).is_jupyter and find_spec("ipywidgets") is not None)


class TrainingBar:
    """A context manager around a rich progress bar."""

    def __init__(self, total_steps: int, *, start: int = 0, shown: bool = True) -> None:
        self._progress = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]} steps/s"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._task = self._progress.add_task("training", total=total_steps, completed=start, loss="-", speed="-")

    def update(self, step: int, *, loss: float | None = None, speed: float | None = None) -> None:
        shown: dict[str, Any] = {}
        if loss is not None:
            shown["loss"] = f"{loss:.4f}"
        if speed is not None:
            shown["speed"] = f"{speed:.1f}"
        self._progress.update(self._task, completed=step, **shown)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
