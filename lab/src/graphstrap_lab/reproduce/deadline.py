"""Stopping before a time limit, and going on: nothing is begun that is known to take longer than is left, and what is
under way when the time is up is given up. Finished groups of cells are in the ledger by then; long training lives in a
run folder until it is done, and the next command goes on with it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from graphstrap.api.estimator import Embedder
from graphstrap.graph import Graph
from graphstrap.run.folder import Run
from graphstrap_lab.reproduce.ledger import Ledger

Records = Sequence[Mapping[str, Any]]


class TimeUpError(Exception):
    """The time that was given is over."""


class Deadline:
    """So many minutes from now; None for no limit."""

    def __init__(self, minutes: float | None) -> None:
        self._end = None if minutes is None else time.monotonic() + 60.0 * minutes

    @property
    def seconds_left(self) -> float:
        return float("inf") if self._end is None else self._end - time.monotonic()

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """TimeUpError is raised within the block when the time is up (by SIGALRM: in the main thread, on Unix)."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._end is None or not is_main or not hasattr(signal, "setitimer"):
            yield
            return
        before = signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, self.seconds_left))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)


def expected_seconds(ledger: Ledger, *, num_seeds: int, **cell: str) -> float:
    """How long so many seeds of a cell (dataset, variant, settings, device) will take, by what the ledger says of it; 0
    where it says nothing."""
    rows = [row for row in ledger.find(**cell) if "train_seconds" in row]
    seconds = [row["train_seconds"] + row.get("evaluate_seconds", 0.0) for row in rows]
    return num_seeds * max(seconds, default=0.0)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TimeUpError


def fit_or_go_on(
    estimator: Embedder, graph: Graph, *, folder: Path | None, progress: bool = False
) -> tuple[Embedder, Records, bool]:
    """The fitted estimator, what was logged in all sessions, and whether this was not the first of them.

    The folder stays: whoever has noted the result removes it. None is for training that is not kept.
    """
    if folder is None or not folder.exists():
        estimator.fit(graph, run=folder, source={"dataset": graph.name}, progress=progress)
        return estimator, estimator.metrics_, False
    run = Run.open(folder)
    if not run.is_finished:
        Embedder.resume(folder, graph, progress=progress)
    return Embedder.load(folder, device=estimator.device), run.metrics(), True


def training_seconds(records: Records) -> float:
    """By the logged speed of all sessions."""
    steps = [(now["step"] - before["step"], now) for before, now in pairwise([{"step": 0}, *records])]
    seconds: float = sum(number / record["steps_per_second"] for number, record in steps if number > 0)
    return round(seconds, 1)
