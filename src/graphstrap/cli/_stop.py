"""Ctrl-C and SIGTERM where a verb does not save by itself, as training does: it cleans up, and says so."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

import typer

from graphstrap.train import InterruptedTrainingError


class Terminated(KeyboardInterrupt):
    """SIGTERM, on the way of Ctrl-C: temporary files go, locks are let go of."""


def stoppable(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, ended by a signal with one sentence and the usual exit code."""

    @functools.wraps(verb)
    def run(*arguments: object, **options: object) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        terminated = False  # remembered: on its way through a library the exception may become another

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal terminated
            terminated = True
            raise Terminated

        before = signal.signal(signal.SIGTERM, terminate) if in_main else None
        try:
            verb(*arguments, **options)
        except InterruptedTrainingError as stop:  # noticed by training, which ended a step first
            print(f"graphstrap: {stop}", file=sys.stderr)
            raise typer.Exit(130) from stop
        except KeyboardInterrupt as stop:
            print("graphstrap: stopped; no half-written file is left", file=sys.stderr)
            raise typer.Exit(143 if terminated else 130) from stop
        finally:
            if in_main:
                signal.signal(signal.SIGTERM, before)

    return run
