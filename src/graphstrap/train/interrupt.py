"""Ctrl-C and SIGTERM, noticed between steps: the step in hand is finished, so what is saved is whole.

Python hands signals to the main thread only. Training in another thread, as in a worker of Ray, is told of them by
`pass_on`.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

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
