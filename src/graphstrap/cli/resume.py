"""graphstrap resume: go on with an interrupted run, exactly where it was cut."""

from __future__ import annotations

import typer

from graphstrap.cli import _options as o
from graphstrap.estimator import BGRL
from graphstrap.run import Run
from graphstrap.seeds import resume_seeds, seed_folders
from graphstrap.source import Source
from graphstrap.train import InterruptedTrainingError


def resume(folder: o.RunFolder, quiet: o.Quiet = False) -> None:
    """Go on with an interrupted run; on the same machine the result is the uninterrupted run's, bit for bit."""
    runs = [Run.open(one) for one in seed_folders(folder) or [folder]]
    if all(run.is_finished for run in runs):
        print(f"{folder}: finished already")
        return
    graph = Source.from_dict(runs[0].info["source"]).load()
    try:
        if seed_folders(folder):
            resume_seeds(folder, graph, progress=not quiet)
        else:
            BGRL.resume(folder, graph, progress=not quiet)
    except InterruptedTrainingError as stop:
        o.note(f"{stop}, saved: go on with `graphstrap resume {folder}`")
        raise typer.Exit(130) from stop
    loss = sum(run.metrics()[-1]["loss"] for run in runs) / len(runs)
    print(f"{folder}: trained {runs[0].recipe.train.steps} steps, loss {loss:.4f}")
