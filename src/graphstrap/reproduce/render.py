"""A table as text for a terminal, as Markdown and as CSV: ours, the paper's number and the difference beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from graphstrap.reproduce.tables import Cell, Table
from graphstrap.reproduce.variants import QUICK_NEGATIVES, QUICK_STEPS, VARIANTS

LEGEND = (
    "Ours: mean ± standard deviation over seeds, each the mean of its splits (number of seeds). The paper's number and "
    "the difference follow; * marks rows that the authors measured themselves, ! a difference that Welch's test calls "
    "significant at 1 %. The paper's printed numbers match the protocol `reference`."
)


def quick_notice(quick: bool) -> str:
    return (
        f"QUICK: at most {QUICK_STEPS} steps and {QUICK_NEGATIVES} negatives, one seed, 3 splits. No results: "
        "run without --quick for those."
        if quick
        else ""
    )


def cell_text(cell: Cell) -> str:
    """`93.44 ± 0.09 (20)`, or why there is nothing."""
    if cell.mean is None:
        return cell.note
    spread = f" ± {cell.std:.2f}" if cell.num_seeds > 1 else ""
    return f"{cell.mean:.2f}{spread} ({cell.num_seeds})"


def paper_text(cell: Cell) -> str:
    """`93.17 ± 0.30, +0.27`."""
    if cell.paper is None:
        return ""
    difference = "" if cell.difference is None else f", {cell.difference:+.2f}{'!' if cell.is_significant else ''}"
    return f"{cell.paper.text}{difference}"


def row_title(cell: Cell) -> str:
    star = "*" if cell.paper is not None and cell.paper.is_starred else ""
    return VARIANTS[cell.variant].title + star


def to_grid(cells: Sequence[Cell], *, protocol: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of one protocol: a row for each variant, two columns for each graph."""
    mine = [cell for cell in cells if cell.protocol == protocol]
    datasets = list(dict.fromkeys(cell.dataset for cell in mine))
    header = ["method", *(title for dataset in datasets for title in (dataset, "paper"))]
    lines = []
    for variant in dict.fromkeys(cell.variant for cell in mine):
        by_dataset = {cell.dataset: cell for cell in mine if cell.variant == variant}
        title = next((row_title(c) for c in by_dataset.values() if row_title(c).endswith("*")), None)
        line = [title or VARIANTS[variant].title]
        for dataset in datasets:
            cell = by_dataset[dataset]
            line += [cell_text(cell), paper_text(cell)]
        lines.append(line)
    return header, lines


def to_markdown(table: Table, cells: Sequence[Cell], *, quick: bool) -> str:
    parts = [f"## {table.title} (`graphstrap reproduce {table.name}`)", ""]
    if quick:
        parts += [f"**{quick_notice(quick)}**", ""]
    for protocol in dict.fromkeys(cell.protocol for cell in cells):
        header, lines = to_grid(cells, protocol=protocol)
        parts += [f"Protocol `{protocol}`, accuracy in %:", "", _line(header), _line(["---"] * len(header))]
        parts += [*map(_line, lines), ""]
    return "\n".join([*parts, LEGEND, ""])


def to_csv(cells: Sequence[Cell]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = ("method", "dataset", "protocol", "mean", "std", "seeds", "note", "paper", "paper_std", "difference", "p")
    writer.writerow(names)
    for cell in cells:
        paper = cell.paper
        numbers = (None, None) if paper is None else (paper.mean, paper.std)
        about = (cell.variant, cell.dataset, cell.protocol)
        ours = (cell.mean, cell.std, cell.num_seeds, cell.note)
        writer.writerow([*about, *ours, *numbers, cell.difference, cell.p_value])
    return buffer.getvalue()


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"
