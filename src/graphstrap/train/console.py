"""Training and its terminal: the progress bar on stderr, and Ctrl-C and SIGTERM, which are obeyed between steps.

A signal lets the step in hand finish, so that what is saved is whole. Python hands signals to the main thread only;
training in another thread, as in a worker of Ray, is told of them by `pass_on`.
"""

from __future__ import annotations

import signal
import sys
import threading
from importlib.util import find_spec
from types import FrameType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def can_be_watched() -> bool:
    """Whether someone can watch a bar move: in a terminal, or in a notebook that has what it takes to draw one."""
    return sys.stderr.isatty() or (Console(stderr=True).is_jupyter and find_spec("ipywidgets") is not None)


class TrainingBar(Progress):
    """Step, loss, steps a second, time left; nothing where it is not shown."""

    def __init__(self, total_steps: int, *, start: int = 0, shown: bool = True) -> None:
        super().__init__(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]} steps/s"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._task = self.add_task("training", total=total_steps, completed=start, loss="-", speed="-")

    def show(self, step: int, *, loss: float, speed: float) -> None:
        self.update(self._task, completed=step, loss=f"{loss:.4f}", speed=f"{speed:.1f}")


_listening: set[Interrupt] = set()
_passed_on: list[int] = []


def pass_on(number: int) -> None:
    """Tell training in threads, which is under way or will begin in this process, that this signal has come."""
    _passed_on.append(number)
    for interrupt in tuple(_listening):
        interrupt._notice(number, None)


class Interrupt:
    """While entered, the first signal sets `requested`; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.requested = False
        self.terminated = False  # by SIGTERM, as a scheduler does
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._notice)
        else:
            _listening.add(self)
            for passed_on in _passed_on[:1]:
                self._notice(passed_on, None)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        _listening.discard(self)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested, self.terminated = True, self.terminated or number == signal.SIGTERM
