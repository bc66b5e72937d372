"""graphstrap bench: steps against plain PyG, growth with the graph, products against their floors, the main table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphstrap.cli import _options as o

# Each verb imports what it needs, so that --help comes at once.

bench = typer.Typer(
    help="Measure speed, memory and accuracy on this machine.", no_args_is_help=True, rich_markup_mode=None
)

Names = Annotated[list[str] | None, typer.Argument(metavar="DATASET", help="Datasets, as after --datasets.")]
Datasets = Annotated[
    list[str] | None, typer.Option(help="Datasets, separated by commas or spaces [default: the paper's on this disk].")
]
Precision = Annotated[str | None, typer.Option(help="auto, fp32, tf32 or bf16 [default: the recipe's].")]
Rounds = Annotated[int, typer.Option(help="How many times each is timed; the median counts.", min=1)]
To = Annotated[Path | None, typer.Option(help="Also write the rows, hardware and versions to this JSON file.")]


@bench.command()
def step(
    names: Names = None,
    datasets: Datasets = None,
    device: o.Device = "auto",
    precision: Precision = None,
    rounds: Rounds = 7,
    baseline_tf32: Annotated[bool, typer.Option("--baseline-tf32", help="Let plain PyG use TF32, too.")] = False,
    to: To = None,
    as_json: o.AsJson = False,
) -> None:
    """Time and peak memory of a training step, ours against plain PyG, in turn in one process."""
    from graphstrap.ops import resolve_device
    from graphstrap_lab.bench.graphs import default_names
    from graphstrap_lab.bench.record import command_line
    from graphstrap_lab.bench.step import compare_steps

    place = resolve_device(device)
    chosen = _given(datasets, names) or default_names(place)
    options: dict[str, Any] = {"precision": precision, "rounds": rounds, "baseline_tf32": baseline_tf32}
    result = _Result("step", command_line("step", datasets=chosen, device=place.type, **options), to)
    for name in chosen:
        o.note(f"{name}: ours and plain PyG take turns")
        result.add([compare_steps(name, device=place, **options)])
    result.show(as_json=as_json)


@bench.command()
def scale(
    device: o.Device = "auto",
    max_nodes: Annotated[int | None, typer.Option(help="Stop beyond so many nodes.", min=1)] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Stop before so much memory [default: what there is].")] = None,
    features: Annotated[int, typer.Option(help="Feature columns.", min=1)] = 128,
    hidden: Annotated[int, typer.Option(help="Width of the hidden layer.", min=1)] = 256,
    embedding: Annotated[int, typer.Option(help="Width of the embedding.", min=1)] = 128,
    precision: Precision = None,
    rounds: Rounds = 5,
    to: To = None,
    as_json: o.AsJson = False,
) -> None:
    """Step time and memory while a graph with hubs and 16 edges a node doubles, until it no longer fits."""
    from graphstrap.ops import resolve_device
    from graphstrap_lab.bench.record import command_line
    from graphstrap_lab.bench.scale import ScaleSettings, fit_slopes, measure_growth

    place = resolve_device(device)
    settings = ScaleSettings(features, hidden, embedding, precision=precision, rounds=rounds)
    limits = {"max_nodes": max_nodes, "max_bytes": max_bytes}
    widths = {"features": features, "hidden": hidden, "embedding": embedding, "precision": precision}
    command = command_line("scale", device=place.type, **limits, **widths, rounds=rounds)
    result = _Result("scale", command, to, slopes=fit_slopes([]))
    for row in measure_growth(settings, device=place, note=o.note, **limits):
        o.note(f"{row['num_nodes']:,} nodes: {row['step_ms']:.1f} ms, {row['peak_bytes']:,} bytes")
        result.add([row], slopes=fit_slopes([*result.rows, row]))
    result.show(as_json=as_json)


@bench.command()
def ops(
    names: Names = None,
    datasets: Datasets = None,
    device: o.Device = "auto",
    precision: Precision = None,
    rounds: Rounds = 7,
    to: To = None,
    as_json: o.AsJson = False,
) -> None:
    """Each part of a step against its floor: bytes over measured bandwidth, FLOPs over measured rate."""
    from dataclasses import asdict

    from graphstrap.ops import resolve_device
    from graphstrap_lab.bench.graphs import default_names
    from graphstrap_lab.bench.ops import measure_parts, measure_rates
    from graphstrap_lab.bench.record import command_line

    place = resolve_device(device)
    chosen = _given(datasets, names) or default_names(place)
    command = command_line("ops", datasets=chosen, device=place.type, precision=precision, rounds=rounds)
    result = _Result("ops", command, to)
    o.note("measuring how fast this machine copies and multiplies")
    rates = measure_rates(place)
    result.rest["rates"] = asdict(rates)
    for name in chosen:
        o.note(f"{name}: each part of a step in turn")
        result.add(measure_parts(name, device=place, rates=rates, rounds=rounds, precision=precision))
    result.show(as_json=as_json)


@bench.command()
def table(
    names: Names = None,
    datasets: Datasets = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0, 1, ... of each dataset.", min=1)] = 3,
    together: Annotated[
        int | None, typer.Option(help="Seeds in one program [default: all on CUDA, 1 on a CPU].", min=1)
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe's name [default: the dataset's own].")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps [default: the recipe's].", min=1)] = None,
    device: o.Device = "auto",
    precision: Precision = None,
    to: Annotated[
        Path | None, typer.Option(help="The ledger of the rows; those in it are not repeated [default: reproduce's].")
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Train by the paper's recipes and evaluate, as `reproduce` does, in one timed run."""
    from graphstrap.ops import resolve_device
    from graphstrap_lab.bench.graphs import is_on_disk, precision_settings
    from graphstrap_lab.bench.record import command_line
    from graphstrap_lab.bench.table import PAPER_GRAPHS, measure_table
    from graphstrap_lab.reproduce.cells import Filling
    from graphstrap_lab.reproduce.ledger import Ledger

    chosen = _given(datasets, names) or [name for name in PAPER_GRAPHS if is_on_disk(name)]
    how = Filling(device=resolve_device(device).type, together=together, note=o.note, warn=o.note)
    options: dict[str, Any] = {"device": how.device, "together": together, "recipe": recipe, "steps": steps}
    command = command_line("table", datasets=chosen, seeds=seeds, **options, precision=precision)
    settings = precision_settings(precision) | ({} if steps is None else {"train.steps": steps})
    _check_place(to)
    ledger = Ledger(to or Path("runs/ledger.jsonl"))
    ledger.check_writable()
    result = _Result("table", command)
    for rows in measure_table(
        chosen, ledger=ledger, how=how, num_seeds=seeds, recipe=recipe, settings=settings, command=command
    ):
        o.note(f"{len(rows)} of {seeds} seeds are in {ledger.path}")
        result.add(rows)
    result.show(as_json=as_json)


def _given(datasets: list[str] | None, names: list[str] | None) -> list[str]:
    """Names after --datasets, also several in a row or separated by commas."""
    return [name for text in [*(datasets or []), *(names or [])] for name in (o.names(text) or ())]


def _check_place(to: Path | None) -> None:
    """A file that cannot be written shows before anything is measured."""
    from graphstrap.io.files import check_folder

    if to is not None:
        check_folder(to)


class _Result:
    """Rows as they come in. The file, where one is asked for, always holds all of them."""

    def __init__(self, bench: str, command: str, to: Path | None = None, **rest: Any) -> None:
        _check_place(to)
        self.bench, self.command, self.to, self.rest = bench, command, to, rest
        self.rows: list[dict[str, Any]] = []

    def add(self, rows: list[dict[str, Any]], **rest: Any) -> None:
        from graphstrap_lab.bench.record import write_record

        self.rows += rows
        self.rest |= rest
        if self.to is not None:
            write_record(self.to, bench=self.bench, command=self.command, rows=self.rows, **self.rest)

    def show(self, *, as_json: bool) -> None:
        from graphstrap_lab.bench.show import GRIDS

        if as_json:
            o.print_json(self.rows)
        else:
            GRIDS[self.bench]({"rows": self.rows, **self.rest}).print(width=140)
