"""graphstrap fit: train on a dataset or on two tables, and leave a run folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Exit, Option

from graphstrap.cli import _options as o
from graphstrap.errors import InputError

if TYPE_CHECKING:
    from graphstrap.api.estimator import Embedder
    from graphstrap.graph import Graph
    from graphstrap.io.source import Source

_MOST_SHOWN = 12  # names of features
_SUPERVISED = "GRAPHSTRAP_SUPERVISED"  # in the environment of training that is started again where it is killed


@o.with_table_options
def fit(
    context: Context,
    source: Annotated[str | None, Argument(help="A dataset's name (see `datasets`), an .npz file or a store.")] = None,
    run: Annotated[Path | None, Option(help="The run folder to make.")] = None,
    edges: o.Edges = None,
    nodes: o.Nodes = None,
    method: Annotated[str | None, Option(help="The method to train [default: the recipe's, mostly bgrl-cca].")] = None,
    recipe: Annotated[str | None, Option(help="A recipe's name or a TOML file [default: made from the graph].")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Replace a setting: train.steps=2000.")] = None,
    seed: Annotated[int, Option(help="Fixes weights and views.", min=0)] = 0,
    seeds: Annotated[
        int, Option(help="Train this many models at once, of seeds SEED, SEED + 1, ...", min=1, max=1000)
    ] = 1,
    folds: Annotated[
        int | None,
        Option(help="Semi-supervised: train this many models, each without another part of the labels.", min=2),
    ] = None,
    folds_of: Annotated[
        str | None, Option(help="What is cut into folds: val, or all (train and val) [default: val if there is].")
    ] = None,
    precision: Annotated[
        str | None, Option(help="auto, fp32, tf32 or bf16 [default: the recipe's, mostly auto].")
    ] = None,
    from_: Annotated[Path | None, Option("--from", help="Start from another run's weights and recipe.")] = None,
    send_to: Annotated[
        list[str] | None, Option(help="Also send metrics to tensorboard:FOLDER or mlflow[:EXPERIMENT].")
    ] = None,
    restarts: Annotated[
        int, Option(help="Train in a process of its own; go on where it is killed, at most so often.", min=0)
    ] = 0,
    device: o.Device = "auto",
    workers: o.NumWorkers = 1,
    engine: o.Engine = "torch",
    quiet: o.Quiet = False,
    **columns: Any,
) -> None:
    """Train on a graph without looking at its labels; everything lands in a run folder."""
    from graphstrap.api.ensemble import fit_seeds, seed_folders
    from graphstrap.api.estimator import Embedder
    from graphstrap.io.source import Source
    from graphstrap.ops import resolve_device
    from graphstrap.run.folder import Run
    from graphstrap.run.recipe import Recipe, load_recipe
    from graphstrap.run.settings import parse_settings
    from graphstrap.train.log import make_sinks
    from graphstrap.train.parallel.workers import is_worker, joined, num_restarts

    if context.args:
        raise InputError(f"fit takes one source, got {context.args[0]} too: give tables with --edges and --nodes")
    if run is None:
        raise InputError("name the run folder to make: --run DIR")
    if run.exists() and num_restarts():  # workers began it, and one of them was killed
        from graphstrap.cli.resume import resume

        resume(context, run, quiet=quiet)
        return
    if run.exists() and not is_worker():
        raise InputError(f"run folder {run} exists: choose another --run, or go on with `graphstrap resume {run}`")
    if restarts and not is_worker() and _SUPERVISED not in os.environ:
        same = ["--workers", str(workers), "--engine", engine, *(["--quiet"] if quiet else [])]
        raise Exit(supervise(context.obj, run=run, restarts=restarts, options=same))
    if seeds > 1 and from_ is not None:
        raise InputError("--seeds trains fresh models, --from starts from given weights: choose one of them")
    if recipe is not None and from_ is not None:
        raise InputError("--from takes the other run's recipe: leave out --recipe, replace single settings by --set")
    if seeds > 1 and send_to:
        raise InputError("--send-to shows one model's metrics, --seeds trains several: choose one of them")
    if folds is not None and (seeds > 1 or from_ is not None or send_to or workers > 1):
        raise InputError("--folds trains fresh models one by one: leave out --seeds, --from, --send-to and --workers")
    if folds_of is not None and folds is None:
        raise InputError("--folds-of says what --folds cuts: give both")
    settings = parse_settings(set_ or []) | ({} if method is None else {"method.name": method})
    if precision is not None:
        settings["train.precision"] = precision
    on = resolve_device(device)
    (Recipe() if recipe in (None, "default") else load_recipe(recipe)).with_settings(settings)  # or refused
    where = Source(source, edges, nodes, o.table_options(columns))
    earlier = None if from_ is None else Embedder.load(from_)
    chosen = (recipe or "default") if earlier is None else earlier.recipe_
    estimator = Embedder(recipe=chosen, settings=settings, seed=seed, device=device)
    if folds is not None:
        _fit_folds(estimator, where, run, number=folds, part=folds_of, quiet=quiet)
        return
    o.launched(context, workers, engine=engine, run=run, on_gpus=on.type == "cuda")
    with joined(on) as several:
        quiet = quiet or not several.is_first
        mirrors = make_sinks(send_to or [] if several.is_first else [])
        graph = where.load_for(several.rank, several.size)

        def announce(chosen: Recipe, reasons: list[str]) -> None:
            for line in (*_describe(graph, chosen.encoder.name), *(f"  {reason}" for reason in reasons)):
                o.note(line, quiet=quiet)

        options: dict[str, Any] = {"run": run, "source": where.to_dict(), "announce": announce}
        options |= {"progress": not quiet, "workers": several}
        with o.resumable(run, quiet=not several.is_first):
            if seeds > 1:
                fit_seeds(estimator, graph, seeds=range(seed, seed + seeds), **options)
            else:
                estimator.fit(graph, **options, start_from=earlier, mirrors=mirrors)
    if several.is_first:
        runs = [Run.open(one) for one in (seed_folders(run) if seeds > 1 else [run])]
        models = "" if seeds == 1 else f"{seeds} models, "
        is_trained = runs[0].recipe.method_class.is_trained
        done = f"trained {runs[0].recipe.train.steps} steps{o.last_loss(runs)}" if is_trained else "nothing to train"
        print(f"{run}: {models}{done}")
        if any(spread is not None and spread < 0.01 for spread in (one.last_logged("spread") for one in runs)):
            o.note("warning: all nodes are embedded nearly alike: are the features constant, or the graph very small?")
        verb = f"embed {run} --to embeddings.parquet" if seeds == 1 else f"evaluate {run}"
        o.note(f"next: graphstrap {verb}", quiet=quiet)


def _fit_folds(estimator: Embedder, where: Source, run: Path, *, number: int, part: str | None, quiet: bool) -> None:
    """Train a model for each fold, one after the other."""
    from graphstrap.api.ensemble import begin_folds, fold_folders, resume_folds
    from graphstrap.run.folder import Run, removed_if_refused

    graph = where.load()
    for line in _describe(graph):
        o.note(line, quiet=quiet)
    begin_folds(estimator, where, graph, run=run, number=number, part=part)
    with o.resumable(run), removed_if_refused(run, [Run.open(one) for one in fold_folders(run)]):
        runs = resume_folds(run, graph, progress=not quiet)
    print(f"{run}: {number} folds, trained {runs[0].recipe.train.steps} steps each{o.last_loss(runs)}")
    o.note(f"next: graphstrap predict {run} --to labels.parquet", quiet=quiet)


def _describe(graph: Graph, encoder: str | None = None) -> Iterator[str]:
    """Lines that say what was read: which columns are features, so that a label among them is seen; whether there are
    labels; which columns of edges the encoder does not read."""
    yield str(graph)
    yield str(graph.cleaning)
    if graph.feature_names:
        shown = ", ".join(graph.feature_names[:_MOST_SHOWN])
        more = len(graph.feature_names) - _MOST_SHOWN
        labels = "none" if graph.labels is None else f"{graph.num_classes} classes"
        yield f"features: {shown}{f' and {more:,} more' if more > 0 else ''}; labels: {labels}"
    if encoder is not None and graph.edge_column_names:
        from graphstrap.run.recipe import ENCODERS

        if not ENCODERS.get(encoder).reads_edges:
            names = ", ".join(graph.edge_column_names)
            yield (
                f"note: {encoder} does not read the edges' {names}: take --set encoder.name=gat or mpnn, or make one "
                "the weight by --weight-column"
            )


def supervise(arguments: list[str], *, run: Path, restarts: int, options: Sequence[str] = ()) -> int:
    """Run `graphstrap ARGUMENTS`, and go on from the last checkpoint, by `resume` with these options, each time that a
    signal ends it; the exit code.

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
        command = [*start, "resume", str(run), *options] if has_run else command
    o.note(f"training was ended by {signal.Signals(-code).name}: go on with `graphstrap resume {run}`")
    return 128 - code


def _run(command: list[str]) -> int:
    """The exit code, negative where a signal ended it. SIGTERM goes on to it; Ctrl-C reaches it by itself."""
    from graphstrap.train.parallel.workers import PARENT

    process = subprocess.Popen(command, env={**os.environ, PARENT: str(os.getpid()), _SUPERVISED: "1"})

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.terminate()

    before = signal.signal(signal.SIGTERM, pass_on), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
