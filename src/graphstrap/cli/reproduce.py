"""graphstrap reproduce: a table of the paper, our numbers beside its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as ScreenTable

from graphstrap.cli import _options as o
from graphstrap.io.atomic import atomic_write


def reproduce(
    table: Annotated[str, typer.Argument(help="table-3, table-4, table-5 or small-datasets.")],
    datasets: Annotated[str | None, typer.Option(help="Graphs, separated by commas [default: the table's].")] = None,
    methods: Annotated[str | None, typer.Option(help="Rows, separated by commas [default: the table's].")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds a row [default: 20 for the paper's own rows, else 5].", min=1)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes on a CPU: short training, no results.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Compute cells that the ledger holds already, too.")] = False,
    memory_limit: Annotated[str | None, typer.Option(help="Imitate a smaller device, such as 16GB.")] = None,
    ledger: Annotated[Path, typer.Option(help="Where finished cells are kept.")] = Path("runs/ledger.jsonl"),
    to: Annotated[Path | None, typer.Option(help="Folder for the table as Markdown and CSV.")] = None,
    device: o.Device = "auto",
    quiet: o.Quiet = False,
) -> None:
    """Compute the cells that are missing, then show the table. Finished cells are never computed twice."""
    from graphstrap.reproduce.ledger import Ledger
    from graphstrap.reproduce.memory import parse_bytes
    from graphstrap.reproduce.render import LEGEND, quick_notice, to_csv, to_grid, to_markdown
    from graphstrap.reproduce.run import fill_ledger
    from graphstrap.reproduce.tables import chosen_variants, find_table, make_cells

    wanted = find_table(table)
    variants = chosen_variants(wanted, o.names(methods))
    graphs = list(o.names(datasets) or wanted.datasets)
    kept = Ledger(ledger)
    fill_ledger(
        wanted,
        kept,
        variants=variants,
        datasets=graphs,
        num_seeds=seeds,
        quick=quick,
        again=again,
        device=device,
        memory_limit=None if memory_limit is None else parse_bytes(memory_limit),
        note=lambda text: o.note(text, quiet=quiet),
        progress=not quiet,
    )
    cells = list(make_cells(wanted, kept, variants=variants, datasets=graphs, quick=quick))
    console = Console()
    if quick:
        console.print(quick_notice(quick), style="bold")
    for protocol in dict.fromkeys(cell.protocol for cell in cells):
        header, lines = to_grid(cells, protocol=protocol)
        screen = ScreenTable(*header, title=f"{wanted.title}; protocol {protocol}, accuracy in %")
        for line in lines:
            screen.add_row(*line)
        console.print(screen)
    console.print(LEGEND)
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
        stem = f"{table}-quick" if quick else table
        for suffix, text in ((".md", to_markdown(wanted, cells, quick=quick)), (".csv", to_csv(cells))):
            with atomic_write(to / f"{stem}{suffix}") as temporary:
                temporary.write_text(text, encoding="utf-8")
        console.print(f"written: {to / stem}.md and .csv")
