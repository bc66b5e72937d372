"""Training in a process of its own that is started again where it is killed, as by a system out of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from graphstrap.cli import _options as o
from graphstrap.parallel import PARENT


def supervise(arguments: list[str], *, run: Path, restarts: int) -> int:
    """Run `graphstrap ARGUMENTS`, and go on from the last checkpoint each time that a signal ends it; the exit code.

    Training that ends by itself, well or not, is not started again: the same mistake would only be made twice. Nor
    does it outlive this process. Several workers are started again by their own launcher first.
    """
    start = [sys.executable, "-m", "graphstrap"]
    command = [*start, *arguments]
    for left in range(restarts, -1, -1):
        code = _run(command)
        if code == 128 + signal.SIGKILL:  # its workers were killed more often than their launcher goes along with
            code = -signal.SIGKILL
        if code >= 0:
            return code
        has_run = any((run / name).exists() for name in ("run.json", "seeds.json", "folds.json"))
        if left:
            o.note(f"training was ended by {signal.Signals(-code).name}: it goes on, {left} restarts left")
        command = [*start, "resume", str(run), *_passed_on(arguments)] if has_run else command
    o.note(f"training was ended by {signal.Signals(-code).name}: go on with `graphstrap resume {run}`")
    return 128 - code


def _passed_on(arguments: list[str]) -> list[str]:
    """Those options of `fit` that `resume` has too."""
    kept = []
    for place, argument in enumerate(arguments):
        if argument in ("--quiet", "-q") or argument.startswith(("--workers=", "--engine=")):
            kept.append(argument)
        elif argument in ("--workers", "--engine"):
            kept += arguments[place : place + 2]
    return kept


def without_restarts(arguments: list[str]) -> list[str]:
    """The command line of the worker."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument != "--restarts" and not argument.startswith("--restarts="):
            kept.append(argument)
        skip = argument == "--restarts"
    return kept


def _run(command: list[str]) -> int:
    """The exit code, negative where a signal ended it. SIGTERM goes on to it; Ctrl-C reaches it by itself."""
    process = subprocess.Popen(command, env={**os.environ, PARENT: str(os.getpid())})

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.terminate()

    before = signal.signal(signal.SIGTERM, pass_on), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
