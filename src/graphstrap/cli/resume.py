"""graphstrap resume: go on with an interrupted run, exactly where it was cut."""

from __future__ import annotations

import typer

from graphstrap.cli import _options as o
from graphstrap.estimator import BGRL
from graphstrap.run import Run
from graphstrap.source import Source
from graphstrap.train import InterruptedTrainingError


def resume(folder: o.RunFolder, quiet: o.Quiet = False) -> None:
    """Go on with an interrupted run; on the same machine the result is the uninterrupted run's, bit for bit."""
    run = Run.open(folder)
    if run.is_finished:
        print(f"{folder}: finished already")
        return
    graph = Source.from_dict(run.info["source"]).load()
    try:
        estimator = BGRL.resume(folder, graph, progress=not quiet)
    except InterruptedTrainingError as stop:
        o.note(f"{stop}, saved: go on with `graphstrap resume {folder}`")
        raise typer.Exit(130) from stop
    print(f"{folder}: trained {estimator.recipe_.train.steps} steps, loss {run.metrics()[-1]['loss']:.4f}")
