"""Options that several verbs share, and how verbs start workers and open run folders."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Exit, Option

from graphstrap.errors import InputError, InterruptedTrainingError
from graphstrap.evaluation.registry import PROTOCOLS

if TYPE_CHECKING:
    from graphstrap.api.estimator import Embedder
    from graphstrap.graph import Graph
    from graphstrap.io.columns import TableOptions
    from graphstrap.io.source import Source
    from graphstrap.run.folder import Run
    from graphstrap.train.parallel.workers import Workers

RunFolder = Annotated[Path, Argument(metavar="DIR", help="A run folder that `graphstrap fit` made.")]
Edges = Annotated[str | None, Option(help="Edge table: CSV or Parquet, or a glob of several files.")]
Nodes = Annotated[str | None, Option(help="Node table: an id column, feature columns, label, split, type.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON value.")]
NumWorkers = Annotated[
    int, Option("--workers", help="Processes on this host that share the work (see docs/parallel.md).", min=1)
]
Engine = Annotated[str, Option(help="What starts the workers: torch, or ray (extra `ray`).")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress bar, no notes.")]
IgnoreColumns = Annotated[str | None, Option(help="Columns to leave out, separated by commas.")]
Directed = Annotated[bool, Option("--directed", help="Keep edge directions instead of adding every reverse.")]
IgnoreUnknownNodes = Annotated[bool, Option("--ignore-unknown-nodes", help="Drop edges that name unknown nodes.")]
Header = Annotated[bool | None, Option(help="Whether the first line of a CSV file names columns [default: looks].")]
PROTOCOL_NAMES = f"{', '.join(PROTOCOLS)} (links trains anew)"  # for help texts


def launched(
    context: Context, num_workers: int, *, engine: str = "torch", run: Path | None = None, on_gpus: bool = False
) -> None:
    """Where several workers are asked for and this process is none of them: run the same command in each, and exit.
    The engine `ray` needs the run folder, and starts a single worker too."""
    if engine not in ("torch", "ray"):
        raise InputError(f"--engine is torch or ray, got {engine!r}")
    if engine == "torch" and num_workers == 1:
        return
    from graphstrap.train.parallel.workers import is_worker, launch

    arguments = context.find_root().obj
    if is_worker():
        return
    if engine == "torch":
        raise Exit(launch(arguments, num_workers))
    from graphstrap.cli._app import run as run_command
    from graphstrap.train.parallel.ray import launch_on_ray

    assert run is not None
    raise Exit(launch_on_ray(partial(run_command, arguments), run=run, num_workers=num_workers, on_gpus=on_gpus))


@contextmanager
def resumable(run: Path, *, quiet: bool = False) -> Iterator[None]:
    """Training that a signal stops says how to go on, and ends with the exit code of the stop."""
    try:
        yield
    except InterruptedTrainingError as stop:
        note(f"{stop}, saved: go on with `graphstrap resume {run}`", quiet=quiet)
        raise Exit(stop.exit_code) from stop


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
    """`, loss 0.1234`: the mean of the last losses in the runs' logs; "" if there are none."""
    losses = [loss for run in runs if (loss := run.last_logged("loss")) is not None]
    return f", loss {sum(losses) / len(losses):.4f}" if losses else ""


def load_graph_of(
    run: Run, *, quiet: bool = False, loaded: dict[Source, Graph] | None = None, workers: Workers | None = None
) -> Graph:
    """The graph that a run was trained on, as it is now; for a graph in parts, each of several workers gets its part.

    Graphs in `loaded` are not loaded again: runs that leave out different folds of the labels share one.
    """
    from graphstrap.io.source import Source

    source, loaded = Source.from_dict(run.info["source"], run=run.folder), {} if loaded is None else loaded
    whole = replace(source, fold=None, options=source.options.of_a_run())
    if whole not in loaded:
        if workers is None or workers.is_alone:
            loaded[whole] = whole.load()
        else:
            loaded[whole] = whole.load_for(workers.rank, workers.size)
    graph = loaded[whole]
    if not graph.has_fingerprint(run.info["graph"]["fingerprint"]):
        note(f"note: the graph has changed since {run.folder} was trained; this is the graph as it is now", quiet=quiet)
    return graph if source.fold is None else source.fold(graph)


def check_one_run(folder: Path) -> None:
    """Refuse a folder of several runs."""
    from graphstrap.api.ensemble import fold_folders, seed_folders

    several = seed_folders(folder) or fold_folders(folder)
    if several:
        raise InputError(f"{folder} holds {len(several)} runs, of seeds or folds: name one, such as {several[0]}")


def open_run(
    folder: Path,
    *,
    device: str,
    quiet: bool = False,
    loaded: dict[Source, Graph] | None = None,
    or_instant: bool = False,
) -> tuple[Embedder, Graph]:
    """A finished run's model and graph; for `loaded` see `load_graph_of`. `or_instant`: of an unfinished one, what it
    wrote before training."""
    from graphstrap.api.estimator import Embedder
    from graphstrap.run.folder import Run

    check_one_run(folder)
    run = Run.open(folder)
    model = load_instantly(run, device=device) if or_instant else Embedder.load(folder, device=device)
    return model, load_graph_of(run, quiet=quiet, loaded=loaded)


def load_instantly(run: Run, *, device: str) -> Embedder:
    """A run's model; while it trains, the one that needs no training, which is said."""
    from graphstrap.api.estimator import Embedder

    name = run.readable_model
    if name is None or run.is_finished:
        return Embedder.load(run.folder, device=device)
    note(f"note: {run.folder} is not trained yet: these are the columns of `instant`, features and their averages")
    return Embedder.load(run.folder, device=device, file_name=name)


# The options of tables: the field of TableOptions that each is, and what it says.
_OF_TABLES = {
    "source_column": ("source", "Edge column of source ids [default: `source`, `src` or `from`, or the first]."),
    "target_column": ("target", "Edge column of target ids [default: `target`, `dst` or `to`, or the second]."),
    "weight_column": ("weight", "Edge column of weights [default: `weight`]."),
    "edge_type_column": ("edge_type", "Edge column of types [default: `type`]."),
    "edge_time_column": ("time", "Edge column of times [default: `time`]."),
    "id_column": ("id", "Node column of ids [default: `id`, or the first]."),
    "label_column": ("label", "Node column of labels [default: `label`]."),
    "split_column": ("split", "Node column of train/val/test [default: `split`]."),
    "type_column": ("type", "Node column of types [default: `type`]."),
    "node_time_column": ("node_time", "Node column of times [default: `time`]."),
    "feature_columns": ("feature_columns", "Feature columns, separated by commas [default: all others]."),
}


def with_table_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Declare the options of tables, before the last option, for a verb that takes them as `**columns`."""
    declared: list[tuple[str, Any, Any]] = [  # the name of each, its type, its default
        *((name, Annotated[str | None, Option(help=text)], None) for name, (_, text) in _OF_TABLES.items()),
        ("ignore_columns", IgnoreColumns, None),
        ("directed", Directed, False),
        ("ignore_unknown_nodes", IgnoreUnknownNodes, False),
        ("header", Header, None),
    ]
    given, keyword = signature(verb, eval_str=True), Parameter.KEYWORD_ONLY
    columns = [Parameter(name, keyword, default=default, annotation=kind) for name, kind, default in declared]
    *first, last = [one for one in given.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    last = last.replace(kind=keyword)
    verb.__signature__ = given.replace(parameters=[*first, *columns, last])  # type: ignore[attr-defined]
    return verb


def table_options(columns: Mapping[str, Any]) -> TableOptions:
    """What the `**columns` of such a verb say."""
    from graphstrap.io.columns import TableOptions

    fields = {field: columns[name] for name, (field, _) in _OF_TABLES.items()}
    fields |= {"feature_columns": names(columns["feature_columns"])}
    fields |= {name: columns[name] for name in ("directed", "ignore_unknown_nodes", "header")}
    return TableOptions(**fields, ignore_columns=names(columns["ignore_columns"]) or ())
