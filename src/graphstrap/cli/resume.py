"""graphstrap resume: go on with an interrupted run, exactly where it was cut."""

from __future__ import annotations

from typer import Context

from graphstrap.cli import _options as o
from graphstrap.errors import InputError


def resume(
    context: Context, folder: o.RunFolder, workers: o.NumWorkers = 1, engine: o.Engine = "torch", quiet: o.Quiet = False
) -> None:
    """Go on with an interrupted run; on the same machine the result is the uninterrupted run's, bit for bit."""
    from graphstrap.api.ensemble import fold_folders, resume_folds, resume_seeds, seed_folders
    from graphstrap.api.estimator import Embedder
    from graphstrap.io.source import Source
    from graphstrap.ops import resolve_device
    from graphstrap.run.folder import Run
    from graphstrap.train.parallel.workers import joined

    folds, seeds = fold_folders(folder), seed_folders(folder)
    runs = [Run.open(one) for one in folds or seeds or [folder]]
    if all(run.is_finished for run in runs):
        print(f"{folder}: finished already")
        return
    if folds and workers > 1:
        raise InputError("folds are trained one by one: leave out --workers")
    on = resolve_device(runs[0].info["device"])
    o.launched(context, workers, engine=engine, run=folder, on_gpus=on.type == "cuda")
    with joined(on) as several, o.resumable(folder, quiet=not several.is_first):
        source = Source.from_dict(runs[0].info["source"], run=runs[0].folder)
        progress = several.is_first and not quiet
        if folds:
            resume_folds(folder, progress=progress)
        elif seeds:
            resume_seeds(folder, source.load_for(several.rank, several.size), progress=progress, workers=several)
        else:
            Embedder.resume(folder, source.load_for(several.rank, several.size), progress=progress, workers=several)
    if several.is_first:
        print(f"{folder}: trained {runs[0].recipe.train.steps} steps{o.last_loss(runs)}")
