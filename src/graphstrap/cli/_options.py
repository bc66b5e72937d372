"""Options that several verbs share, and how a run folder is opened."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from graphstrap.api.ensemble import fold_folders
from graphstrap.api.estimator import BGRL
from graphstrap.api.seeds import seed_folders
from graphstrap.errors import InputError
from graphstrap.evaluation.protocols import PROTOCOLS
from graphstrap.graph import Graph
from graphstrap.io.source import Source
from graphstrap.run.folder import Run
from graphstrap.train.parallel.partition import load_for
from graphstrap.train.parallel.ray import launch_on_ray
from graphstrap.train.parallel.workers import ALONE, Workers, is_worker, launch

RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder that `graphstrap fit` made.")]
Edges = Annotated[str | None, typer.Option(help="Edge table: CSV or Parquet, or a glob of several files.")]
Nodes = Annotated[str | None, typer.Option(help="Node table: an id column, feature columns, label, split, type.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
NumWorkers = Annotated[
    int, typer.Option("--workers", help="Processes on this host that share the work (see docs/parallel.md).", min=1)
]
Engine = Annotated[str, typer.Option(help="What starts the workers: torch, or ray (extra `ray`).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no notes.")]

IgnoreColumns = Annotated[str | None, typer.Option(help="Columns to leave out, separated by commas.")]
IgnoreUnknownNodes = Annotated[bool, typer.Option("--ignore-unknown-nodes", help="Drop edges that name unknown nodes.")]


def launched(context: typer.Context, num_workers: int) -> None:
    """Where several workers are asked for and this is none of them yet: run the same command in each, and leave."""
    if num_workers > 1 and not is_worker():
        raise typer.Exit(launch(context.find_root().obj, num_workers))


def launched_by(engine: str, context: typer.Context, num_workers: int, *, run: Path, on: torch.device) -> None:
    """`launched`, by torchrun's launcher or by Ray."""
    if engine not in ("torch", "ray"):
        raise InputError(f"--engine is torch or ray, got {engine!r}")
    if engine == "torch":
        launched(context, num_workers)
    elif not is_worker():
        from graphstrap.cli._app import run as run_command

        work = partial(run_command, context.find_root().obj)
        raise typer.Exit(launch_on_ray(work, run=run, num_workers=num_workers, on_gpus=on.type == "cuda"))


def names(text: str | None) -> tuple[str, ...] | None:
    """`"a, b"` to `("a", "b")`."""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def note(text: str, *, quiet: bool = False) -> None:
    """A line for the person at the terminal, on stderr."""
    if not quiet:
        print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


def last_loss(runs: Sequence[Run]) -> str:
    """`, loss 0.1234`: the mean of what the runs have logged last; nothing where a log is gone."""
    losses = [loss for run in runs if (loss := run.last_logged("loss")) is not None]
    return f", loss {sum(losses) / len(losses):.4f}" if losses else ""


def load_graph_of(
    run: Run, *, quiet: bool = False, loaded: dict[Source, Graph] | None = None, workers: Workers = ALONE
) -> Graph:
    """The graph that a run was trained on, as it is now; of one in parts, the part of each of several workers. What is
    in `loaded` is not loaded again, whatever fold of its labels a run leaves out."""
    source, loaded = Source.from_dict(run.info["source"], run=run.folder), {} if loaded is None else loaded
    whole = replace(source, fold=None, options=source.options.of_a_run())
    if whole not in loaded:
        loaded[whole] = whole.load() if workers.size == 1 else load_for(whole, workers)
    graph = loaded[whole]
    if not graph.has_fingerprint(run.info["graph"]["fingerprint"]):
        note(f"note: the graph has changed since {run.folder} was trained; this is the graph as it is now", quiet=quiet)
    return graph if source.fold is None else source.fold(graph)


def check_protocols(protocols: Sequence[str]) -> None:
    """Refuse a name that is no protocol, before anything is read."""
    for name in protocols:
        if name not in (*PROTOCOLS, "links"):
            known = f"{', '.join(PROTOCOLS)}, or links (which trains anew)"
            raise InputError(f"--protocol must be one of {known}, got {name!r}")


def check_one_run(folder: Path) -> None:
    """Refuse a folder of several runs."""
    several = seed_folders(folder) or fold_folders(folder)
    if several:
        raise InputError(
            f"{folder} holds {len(several)} runs, one for each seed or fold: name one, such as {several[0]}"
        )


def open_run(
    folder: Path, *, device: str, quiet: bool = False, loaded: dict[Source, Graph] | None = None
) -> tuple[BGRL, Graph]:
    """A finished run's model and graph; for `loaded` see `load_graph_of`."""
    check_one_run(folder)
    run = Run.open(folder)
    model = BGRL.load(folder, device=device)
    return model, load_graph_of(run, quiet=quiet, loaded=loaded)
