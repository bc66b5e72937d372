"""graphstrap reproduce: a table or figure of the paper, our numbers beside its own."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphstrap.cli import _options as o
from graphstrap.errors import InputError

if TYPE_CHECKING:
    from graphstrap_lab.reproduce.render import Report


_TABLES = (
    "table-1 (memory), table-3, table-4, table-5 (ogbn-arxiv), table-6 (ppi), small-datasets, projector, "
    "training-curves, learning-curves, attention-entropy, mag-auxiliary, mag-unlabelled, mag-projector, mag-gcn, "
    "mag-frozen, or all."
)


def reproduce(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help=_TABLES)],
    datasets: Annotated[str | None, typer.Option(help="Graphs, separated by commas [default: the table's].")] = None,
    methods: Annotated[str | None, typer.Option(help="Rows, separated by commas [default: the table's].")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds a row [default: 20 for the paper's own rows, else 5].", min=1)
    ] = None,
    together: Annotated[
        int | None, typer.Option(help="Seeds in one program [default: what fits on CUDA, 1 on a CPU].", min=1)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes on a CPU: short training, no results.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Compute cells that the ledger holds already, too.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Compute nothing: show what the ledger holds.")] = False,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many; finished cells stay.", min=0.0)] = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="Imitate a smaller device, such as 16GB, and methods as first published.")
    ] = None,
    ledger: Annotated[Path, typer.Option(help="Where finished cells are kept.")] = Path("runs/ledger.jsonl"),
    to: Annotated[Path | None, typer.Option(help="Folder for the table as Markdown, CSV, PNG and SVG.")] = None,
    device: o.Device = "auto",
    workers: o.NumWorkers = 1,
    quiet: o.Quiet = False,
) -> None:
    """Compute the cells that are missing, then show the table. Finished cells are never computed twice."""
    from graphstrap.ops import resolve_device
    from graphstrap.ops.memory import parse_bytes
    from graphstrap.train.parallel.workers import joined
    from graphstrap_lab.reproduce.cells import Filling
    from graphstrap_lab.reproduce.deadline import Deadline
    from graphstrap_lab.reproduce.ledger import Ledger
    from graphstrap_lab.reproduce.reports import fill, make_report
    from graphstrap_lab.reproduce.tables import chosen_datasets, chosen_variants, find_tables

    limit, on = None if memory_limit is None else parse_bytes(memory_limit), resolve_device(device)
    wanted, asked = find_tables(table), (_names("--methods", methods), _names("--datasets", datasets))
    exactly = len(wanted) == 1
    chosen = [
        (
            one,
            {
                "variants": chosen_variants(one, asked[0], exactly=exactly),
                "datasets": chosen_datasets(one, asked[1], exactly=exactly, quick=quick),
            },
        )
        for one in wanted
    ]
    chosen = [(one, parts) for one, parts in chosen if all(parts.values())]
    if not chosen:
        raise InputError("no table has such methods on such graphs: name a table, which takes others than its own")
    if to is not None:
        _make_folder(to)
    o.launched(context, workers)
    with joined(on) as several:
        how = Filling(
            quick=quick,
            again=again,
            device=device,
            memory_limit=limit,
            together=together,
            deadline=Deadline(minutes),
            note=lambda text: o.note(text, quiet=quiet),
            warn=o.note,
            workers=several,
            unfinished=ledger.parent / "unfinished",
            progress=not quiet and sys.stderr.isatty() and several.is_first,
        )
        kept = Ledger(ledger)
        if not show:
            kept.check_writable()
        try:
            for one, parts in chosen:
                if not show and how.deadline.seconds_left > 0:
                    fill(one, kept, how, num_seeds=seeds, **parts)
        except KeyboardInterrupt:
            o.note(f"finished cells are in {ledger}: the same command goes on from there")
            raise
        several.wait_for_work()
    if not several.is_first:
        return
    kept = Ledger(ledger)  # with what other workers have added
    for one, parts in chosen:
        report = make_report(one, kept, quick=quick, device=on.type, memory_limit=limit, **parts)
        _print(report)
        if to is not None:
            _write(report, to)


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    names = o.names(text)
    if names == ():
        raise InputError(f"{option} names nothing: give names separated by commas, or leave it out for all")
    return names


def _make_folder(folder: Path) -> None:
    """Before anything is computed for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--to {folder} cannot be made a folder: {error.strerror or error}") from error


def _print(report: Report) -> None:
    from graphstrap_lab.grid import make_console
    from graphstrap_lab.reproduce.render import quick_notice

    console = make_console()
    if report.quick:
        console.print(quick_notice(report), style="bold", highlight=False)
    for grid in report.grids:
        replace(grid, caption=f"{report.table.title}. {grid.caption}:").print()
    for note in report.notes:
        console.print(note, markup=False, highlight=False)


def _write(report: Report, folder: Path) -> None:
    from graphstrap.io.files import atomic_write
    from graphstrap_lab.reproduce.render import to_markdown

    stem = f"{report.table.name}-quick" if report.quick else report.table.name
    picture = f"{stem}.png" if report.draw is not None else ""
    for suffix, text in ((".md", to_markdown(report, picture=picture)), (".csv", report.csv)):
        with atomic_write(folder / f"{stem}{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    suffixes = [".md", ".csv"]
    if report.draw is not None:
        for suffix in (".png", ".svg"):
            report.draw(folder / f"{stem}{suffix}")
            suffixes.append(suffix)
    o.note(f"written: {folder / stem} with {', '.join(suffixes)}")
