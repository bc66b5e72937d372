"""A table as text: ours, the paper's number and the difference beside it, and below what each cell took."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.tables import SELDOM_AT_HAND, Cell, Table, find_rows, how_to_get, make_cells
from graphstrap_lab.reproduce.variants import QUICK_NEGATIVES, QUICK_STEPS, VARIANTS

LEGEND = "Ours: mean ± standard deviation over seeds, each the mean of its splits (number of seeds)."
PAPER_LEGEND = (
    " The paper's number and the difference follow; * marks rows that the authors measured themselves (deviations of "
    "single splits, not of means over splits as ours), ! a difference that Welch's two-sided t-test calls significant "
    "at 1 %, from the means, deviations and numbers of runs (the paper's: 20, assumed of rows that it copied, too)."
)


@dataclass(frozen=True)
class Grid:
    """A table of text with the line above it."""

    caption: str
    header: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Report:
    """Everything that is shown of a table: text, numbers and, where there is something to draw, a picture."""

    table: Table
    quick: bool
    grids: list[Grid]
    notes: list[str]
    csv: str
    draw: Callable[[Path], None] | None = None  # a PNG or an SVG, by the name of the file


def quick_notice(report: Report) -> str:
    """What was cut short, in one line; "" where nothing was."""
    if not report.quick:
        return ""
    seeds = "one seed unless more were asked for"
    what = f"at most {QUICK_STEPS} steps and {QUICK_NEGATIVES} negatives, {seeds}, 3 splits"
    if report.table.kind == "memory":
        what = "smaller generated graphs, and steps of at most 6 GB"
    if report.table.kind == "entropy":
        what = f"30 steps of GATs with heads of 16, 16 and 32, {seeds}"
    if report.table.kind == "learning":
        what = f"at most {QUICK_STEPS} steps, narrow GATs, {seeds}"
    if report.table.kind == "mag":
        what = f"20 steps of narrow layers on a small synthetic graph, {seeds}"
    return f"QUICK: {what}. No results: run without --quick for those."


def report_accuracies(
    table: Table,
    ledger: Ledger,
    *,
    variants: Sequence[str],
    datasets: Sequence[str],
    quick: bool,
    memory_limit: int | None = None,
) -> Report:
    """A table of accuracies from what the ledger holds."""
    from graphstrap_lab.reproduce.plots import plot_accuracies

    limits: dict[str, Any] = {"quick": quick, "memory_limit": memory_limit}
    cells = list(make_cells(table, ledger, variants=variants, datasets=datasets, **limits))
    rows = {(v, d): find_rows(ledger, v, d, **limits) for v in variants for d in datasets}
    grids = [
        Grid(f"Protocol `{protocol}`, in %", *to_grid(cells, protocol=protocol))
        for protocol in dict.fromkeys(cell.protocol for cell in cells)
    ]
    found = [row for own in rows.values() for row in own]
    if found:
        grids.append(_cost_grid(rows, variants=variants, datasets=datasets))
    legend = LEGEND + PAPER_LEGEND * any(cell.paper is not None for cell in cells)
    notes = [legend, *absent_notes(found, datasets), *([computed_on(found)] if found else [])]
    has_numbers = any(cell.mean is not None for cell in cells)
    draw = (lambda path: plot_accuracies(cells, path)) if has_numbers else None
    return Report(table, quick, grids, notes, to_csv(cells, rows), draw)


def absent_notes(rows: Sequence[Row], datasets: Sequence[str]) -> list[str]:
    """How to get the graphs that seldom are at hand and of which there is nothing at all."""
    computed = {row["dataset"] for row in rows}
    return [how_to_get(name) for name in datasets if name in SELDOM_AT_HAND and name not in computed]


def computed_on(rows: Sequence[Row]) -> str:
    """Hardware, PyTorch and source of the cells, the most frequent first."""
    places = Counter(
        (
            row.get("hardware", "unknown hardware"),
            row.get("versions", {}).get("torch", "?"),
            (row.get("git") or {}).get("sha", "unknown")[:7] + ("+" if (row.get("git") or {}).get("changed") else ""),
        )
        for row in rows
    )
    parts = [
        f"{hardware}, PyTorch {torch}, source {sha} ({n} cell{'s' if n > 1 else ''})"
        for (hardware, torch, sha), n in places.most_common()
    ]
    return "Computed on " + "; ".join(parts) + ". A + marks a source with uncommitted changes."


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
    is_theirs = cell.paper is not None and cell.paper.is_starred and not VARIANTS[cell.variant].family
    star = "*" if is_theirs else ""
    return VARIANTS[cell.variant].title + star


def to_grid(cells: Sequence[Cell], *, protocol: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of one protocol: a row for each variant, two columns for each graph."""
    mine = [cell for cell in cells if cell.protocol == protocol]
    datasets = list(dict.fromkeys(cell.dataset for cell in mine))
    has_paper = any(cell.paper is not None for cell in mine)
    header = ["method", *(title for dataset in datasets for title in ((dataset, "paper") if has_paper else (dataset,)))]
    lines = []
    for variant in dict.fromkeys(cell.variant for cell in mine):
        by_dataset = {cell.dataset: cell for cell in mine if cell.variant == variant}
        title = next((row_title(c) for c in by_dataset.values() if row_title(c).endswith("*")), None)
        line = [title or VARIANTS[variant].title]
        for dataset in datasets:
            cell = by_dataset[dataset]
            line += [cell_text(cell), paper_text(cell)] if has_paper else [cell_text(cell)]
        lines.append(line)
    return header, lines


def _cost_grid(rows: dict[tuple[str, str], list[Row]], *, variants: Sequence[str], datasets: Sequence[str]) -> Grid:
    lines = [
        [VARIANTS[v].title, *(_cost_text(rows[v, d]) for d in datasets)]
        for v in variants
        if any("train_seconds" in row for d in datasets for row in rows[v, d])
    ]
    has_supervised = any(VARIANTS[v].kind.startswith("supervised-") for v in variants)
    networks = " (supervised rows: of a network for each split and protocol)" if has_supervised else ""
    caption = f"Seconds of training a seed{networks} and peak memory, of the program that trained most seeds together"
    return Grid(caption, ["method", *datasets], lines)


def _cost_text(rows: Sequence[Row]) -> str:
    """`3.1 s; 0.44 GB, 20 seeds`."""
    costs = _costs(rows)
    if not costs:
        return ""
    text = f"{costs['train_seconds']:.1f} s"
    if costs["peak_bytes"]:
        number = costs["seeds_together"]
        text += f"; {costs['peak_bytes'] / 1e9:.2f} GB, {number} seed{'s' if number > 1 else ''}"
    return text


def _costs(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean seconds and the memory of the seeds that were trained with most others; nothing where none was."""
    timed = [row for row in rows if "train_seconds" in row]
    if not timed:
        return {}
    together = max(row.get("seeds_together", 1) for row in timed)
    timed = [row for row in timed if row.get("seeds_together", 1) == together]
    return {
        "train_seconds": round(float(np.mean([row["train_seconds"] for row in timed])), 3),
        "evaluate_seconds": round(float(np.mean([row.get("evaluate_seconds", 0.0) for row in timed])), 3),
        "peak_bytes": max(row.get("peak_bytes") or 0 for row in timed) or None,
        "seeds_together": together,
    }


def to_markdown(report: Report, *, picture: str = "") -> str:
    """The report under a heading; `picture` is the address of its plot."""
    parts = [f"## {report.table.title} (`graphstrap reproduce {report.table.name}`)", ""]
    return "\n".join([*parts, body_to_markdown(report, picture=picture), ""])


def body_to_markdown(report: Report, *, picture: str = "") -> str:
    """The report without its heading."""
    parts = [f"**{quick_notice(report)}**", ""] if report.quick else []
    for grid in report.grids:
        parts += [f"{grid.caption}:", "", _line(grid.header), _line(["---"] * len(grid.header))]
        parts += [*map(_line, grid.lines), ""]
    if picture:
        parts += [f"![{report.table.title}]({picture})", ""]
    return "\n".join([*parts, "\n\n".join(report.notes)])


def to_csv(cells: Sequence[Cell], rows: dict[tuple[str, str], list[Row]]) -> str:
    """One line for each cell and protocol, its costs as `_costs` gives them."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = ("method", "dataset", "protocol", "mean", "std", "seeds", "note", "paper", "paper_std", "difference", "p")
    costs = ("train_seconds", "evaluate_seconds", "peak_bytes", "seeds_together", "hardware", "settings")
    writer.writerow([*names, *costs])
    for cell in cells:
        paper = cell.paper
        numbers = (None, None) if paper is None else (paper.text if paper.mean is None else paper.mean, paper.std)
        about = (cell.variant, cell.dataset, cell.protocol)
        ours = (cell.mean, cell.std if cell.num_seeds > 1 else None, cell.num_seeds, cell.note)
        own = rows[cell.variant, cell.dataset]
        last = {**(own[-1] if own else {}), **_costs(own)}
        took = [last.get(name) for name in costs]
        writer.writerow([*about, *ours, *numbers, cell.difference, cell.p_value, *took])
    return buffer.getvalue()


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"
