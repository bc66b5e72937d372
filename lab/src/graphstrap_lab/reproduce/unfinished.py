"""Long training that a time limit may cut: it lives in a run folder until it is done, and the next command goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from graphstrap.api.estimator import Embedder
from graphstrap.graph import Graph
from graphstrap.run.folder import Run

Records = Sequence[Mapping[str, Any]]


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
