"""graphstrap resume: go on with an interrupted run, exactly where it was cut."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from graphstrap.api.ensemble import fold_folders, resume_folds
from graphstrap.api.estimator import BGRL
from graphstrap.api.seeds import resume_seeds, seed_folders
from graphstrap.cli import _options as o
from graphstrap.errors import InputError, InterruptedTrainingError
from graphstrap.io.source import Source
from graphstrap.ops import resolve_device
from graphstrap.run.folder import Run
from graphstrap.train.parallel.partition import load_for
from graphstrap.train.parallel.workers import Workers, joined


def resume(
    context: typer.Context,
    folder: o.RunFolder,
    workers: o.NumWorkers = 1,
    engine: o.Engine = "torch",
    quiet: o.Quiet = False,
) -> None:
    """Go on with an interrupted run; on the same machine the result is the uninterrupted run's, bit for bit."""
    folds = fold_folders(folder)
    runs = [Run.open(one) for one in folds or seed_folders(folder) or [folder]]
    if all(run.is_finished for run in runs):
        print(f"{folder}: finished already")
        return
    if folds and workers > 1:
        raise InputError("folds are trained one by one: leave out --workers")
    on = resolve_device(runs[0].info["device"])
    o.launched_by(engine, context, workers, run=folder, on=on)
    with joined(on) as several:
        resume_runs(folder, runs, workers=several, quiet=quiet)


def resume_runs(folder: Path, runs: Sequence[Run], *, workers: Workers, quiet: bool) -> None:
    """Load the graph of these runs, the one, the seeds or the folds of a folder, and go on with them."""
    quiet = quiet or not workers.is_first
    source = Source.from_dict(runs[0].info["source"], run=runs[0].folder)
    try:
        if fold_folders(folder):
            resume_folds(folder, progress=not quiet)
        elif seed_folders(folder):
            resume_seeds(folder, load_for(source, workers), progress=not quiet, workers=workers)
        else:
            BGRL.resume(folder, load_for(source, workers), progress=not quiet, workers=workers)
    except InterruptedTrainingError as stop:
        o.note(f"{stop}, saved: go on with `graphstrap resume {folder}`", quiet=not workers.is_first)
        raise typer.Exit(stop.exit_code) from stop
    if not workers.is_first:
        return
    print(f"{folder}: trained {runs[0].recipe.train.steps} steps{o.last_loss(runs)}")
