"""What is shown of a table: grids of text, notes, CSV and a picture, from what the ledger holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphstrap_lab.grid import OURS, Grid, make_panels, save_figure
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.tables import SELDOM_AT_HAND, Table, how_to_get
from graphstrap_lab.reproduce.variants import QUICK_NEGATIVES, QUICK_STEPS, VARIANTS

METHOD_COLOURS = {"grace": "#c1666b", "bgrl": OURS}
_SEEDS = "one seed unless more were asked for"
_QUICK = {
    "memory": "smaller generated graphs, and steps of at most 6 GB",
    "entropy": f"30 steps of GATs with heads of 16, 16 and 32, {_SEEDS}",
    "learning": f"at most {QUICK_STEPS} steps, narrow GATs, {_SEEDS}",
    "mag": f"20 steps of narrow layers on a small synthetic graph, {_SEEDS}",
}
_QUICK_OTHERS = f"at most {QUICK_STEPS} steps and {QUICK_NEGATIVES} negatives, {_SEEDS}, 3 splits"


@dataclass(frozen=True)
class Asked:
    """Rows and columns of a table that are to be shown, and how their cells were computed.

    Args:
        device: of table 1, where its memory was measured: "cpu" or "cuda".
    """

    table: Table
    ledger: Ledger
    variants: Sequence[str]
    datasets: Sequence[str]
    quick: bool = False
    device: str = "cpu"
    memory_limit: int | None = None

    def rows(self, find: Callable[..., list[Row]]) -> dict[tuple[str, str], list[Row]]:
        """By (graph, method), as `Work.find` finds them."""
        return {(d, v): find(self.ledger, v, d, quick=self.quick) for d in self.datasets for v in self.variants}

    def why_empty(self, dataset: str, rows: Sequence[Row], *, usual: str = "not computed") -> str:
        """What stands in a cell without a number."""
        if dataset in SELDOM_AT_HAND and not self.ledger.find(dataset=dataset):
            usual = "no data here"
        return next((str(row["oom"]) for row in rows if row.get("oom")), usual)

    def lines(
        self,
        rows: Mapping[tuple[str, str], Sequence[Row]],
        texts: Callable[[list[Row]], list[str]],
        *,
        of: str,
        num_columns: int,
    ) -> list[list[str]]:
        """A line for each method on each graph: the texts of its rows that have `of`, or why there is none."""
        lines = []
        for (dataset, variant), own in rows.items():
            computed = [row for row in own if row.get(of)]
            empty = [self.why_empty(dataset, own), *([""] * (num_columns - 1))]
            lines.append([dataset, VARIANTS[variant].title, *(texts(computed) if computed else empty)])
        return lines

    def report(
        self,
        grids: list[Grid],
        *,
        notes: Sequence[str],
        rows: Sequence[Row],
        csv: str,
        draw: Callable[[Path], None] | None,
    ) -> Report:
        """With notes on graphs of which there is nothing at all, and on where the rows were computed."""
        computed = {row["dataset"] for row in rows}
        absent = [how_to_get(name) for name in self.datasets if name in SELDOM_AT_HAND and name not in computed]
        places = [computed_on(rows)] if rows else []
        return Report(self.table, self.quick, grids, [*notes, *absent, *places], csv, draw)


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
    what = _QUICK.get(report.table.kind, _QUICK_OTHERS)
    return f"QUICK: {what}. No results: run without --quick for those."


def computed_on(rows: Sequence[Row]) -> str:
    """Hardware, PyTorch and source of the cells, the most frequent first."""
    places: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        git: Mapping[str, str] = row.get("git") or {}
        source = git.get("sha", "unknown")[:7] + ("+" if git.get("changed") else "")
        places[row.get("hardware", "unknown hardware"), row.get("versions", {}).get("torch", "?"), source] += 1
    parts = [
        f"{hardware}, PyTorch {torch}, source {sha} ({n} cell{'s' if n > 1 else ''})"
        for (hardware, torch, sha), n in places.most_common()
    ]
    return "Computed on " + "; ".join(parts) + ". A + marks a source with uncommitted changes."


def plot_courses(
    courses: Mapping[tuple[str, str], Sequence[Mapping[str, Sequence[float]]]], path: Path, *, measure: str
) -> None:
    """Accuracy over the part of training that is done: a panel for each graph, a line for each method, by (graph,
    method), the mean over seeds in a band of one standard deviation."""
    graphs = list(dict.fromkeys(graph for graph, _ in courses))
    figure, (panels,) = make_panels(1, len(graphs), width=1.0 + 5.4 * len(graphs), height=4.2)
    for axes, graph in zip(panels, graphs, strict=True):
        for title, curves in ((title, curves) for (name, title), curves in courses.items() if name == graph):
            alike = [curve["accuracy"] for curve in curves if list(curve["step"]) == list(curves[0]["step"])]
            done = [step / curves[0]["step"][-1] for step in curves[0]["step"]]
            mean, spread = np.mean(alike, axis=0), np.std(alike, axis=0, ddof=1 if len(alike) > 1 else 0)
            (line,) = axes.plot(done, mean, linewidth=1.4, label=f"{title} ({len(alike)})")
            axes.fill_between(done, mean - spread, mean + spread, color=line.get_color(), alpha=0.18, linewidth=0)
        axes.set_title(graph, fontsize=10)
        axes.set(xlabel="part of training", ylabel=measure)
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def to_markdown(report: Report, *, picture: str = "") -> str:
    """The report under a heading; `picture` is the address of its plot."""
    parts = [f"## {report.table.title} (`graphstrap reproduce {report.table.name}`)", ""]
    return "\n".join([*parts, body_to_markdown(report, picture=picture), ""])


def body_to_markdown(report: Report, *, picture: str = "") -> str:
    """The report without its heading."""
    parts = [f"**{quick_notice(report)}**"] if report.quick else []
    for grid in report.grids:
        parts += [f"{grid.caption}:", grid.to_markdown()]
    if picture:
        parts.append(f"![{report.table.title}]({picture})")
    return "\n\n".join([*parts, *report.notes])
