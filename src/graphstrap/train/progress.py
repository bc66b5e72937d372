"""The progress bar: step, loss, steps a second, time left. On stderr, and silent when asked to be."""

from __future__ import annotations

from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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
