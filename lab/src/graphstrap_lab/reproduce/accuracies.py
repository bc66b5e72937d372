"""Tables of accuracies: ours, the paper's number and the difference beside it, and below what each cell took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap_lab.grid import OURS, THEIRS, Grid, difference_text, make_panels, mean_text, save_figure, to_csv
from graphstrap_lab.reproduce.cells import CURVE_NAMES, ON_VALIDATION, Curve, protocols_of
from graphstrap_lab.reproduce.ledger import Ledger, Row, values_of
from graphstrap_lab.reproduce.render import Asked, Report
from graphstrap_lab.reproduce.run import ACCURACIES
from graphstrap_lab.reproduce.tables import Printed, has_printed, printed
from graphstrap_lab.reproduce.variants import VARIANTS, why_not

LEGEND = "Ours: mean ± standard deviation over seeds, each the mean of its splits (number of seeds)."
PAPER_LEGEND = (
    " The paper's number and the difference follow; * marks rows that the authors measured themselves (deviations of "
    "single splits, not of means over splits as ours), ! a difference that Welch's two-sided t-test calls significant "
    "at 1 %, from the means, deviations and numbers of runs (the paper's: 20, assumed of rows that it copied, too)."
)
_CURVES_LEGEND = (
    "Mean over the first seeds; spread is the standard deviation over nodes divided by the mean norm, 0 after a "
    "collapse. The paper prints its curves (figures 6 to 8) as pictures alone: the loss does not reach 0, the spread "
    "stays of the order of 1, and norms neither vanish nor grow without bound."
)
_PAPER_RUNS = 20
_COSTS = ("train_seconds", "evaluate_seconds", "peak_bytes", "seeds_together", "hardware", "settings")


@dataclass(frozen=True)
class Cell:
    """One cell: ours, of each seed, the paper's, and how they compare."""

    variant: str
    dataset: str
    protocol: str
    values: tuple[float, ...]
    note: str  # where there are no values: OOM, "not computed", "no data here", ...
    paper: Printed | None

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.values)) if self.values else None

    @property
    def std(self) -> float | None:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        if self.mean is None or self.paper is None or self.paper.mean is None:
            return None
        return self.mean - self.paper.mean

    @property
    def p_value(self) -> float | None:
        """Of Welch's two-sided test between ours and the paper's, where both have a spread."""
        if self.paper is None or self.paper.mean is None or not self.paper.std or not self.std:
            return None
        from scipy.stats import ttest_ind_from_stats

        theirs = (self.paper.mean, self.paper.std, _PAPER_RUNS)
        return float(ttest_ind_from_stats(self.mean, self.std, len(self.values), *theirs, equal_var=False).pvalue)

    @property
    def is_significant(self) -> bool:
        return self.p_value is not None and self.p_value < 0.01

    @property
    def text(self) -> str:
        """`93.44 ± 0.09 (20)`, or why there is nothing."""
        return f"{mean_text(self.values)} ({len(self.values)})" if self.values else self.note

    @property
    def paper_text(self) -> str:
        """`93.17 ± 0.30, +0.27`."""
        if self.paper is None:
            return ""
        difference = "" if self.difference is None else f", {self.difference:+.2f}{'!' if self.is_significant else ''}"
        return f"{self.paper.text}{difference}"


def find_rows(ledger: Ledger, variant: str, dataset: str, *, quick: bool, memory_limit: int | None = None) -> list[Row]:
    """The seeds of a row on a graph, as its settings are now; under a memory limit that it did not fit, those that say
    so."""
    if why_not(variant, dataset):
        return []
    rows = ACCURACIES.find(ledger, variant, dataset, quick=quick)
    refused = [row for row in rows if row.get("oom")]
    refused_here = [row for row in refused if row.get("memory_limit") == memory_limit]
    computed = [row for row in rows if not row.get("oom")]
    if memory_limit is not None and refused_here:
        return refused_here
    return computed or refused_here or refused


def make_cell(asked: Asked, variant: str, dataset: str, protocol: str) -> Cell:
    """A cell from what the ledger holds."""
    name = f"{asked.table.name}-validation" if protocol.endswith(ON_VALIDATION) else asked.table.name
    paper = printed(name, variant, dataset)
    if why_not(variant, dataset):
        return Cell(variant, dataset, protocol, (), why_not(variant, dataset), paper)
    rows = find_rows(asked.ledger, variant, dataset, quick=asked.quick, memory_limit=asked.memory_limit)
    values = tuple(values_of(rows, protocol).values())
    return Cell(variant, dataset, protocol, values, "" if values else asked.why_empty(dataset, rows), paper)


def report_accuracies(asked: Asked) -> Report:
    """A table of accuracies."""
    cells = list(_cells(asked))
    rows = asked.rows(partial(find_rows, memory_limit=asked.memory_limit))
    found = [row for v in asked.variants for d in asked.datasets for row in rows[d, v]]
    grids = [_accuracy_grid(cells, protocol) for protocol in dict.fromkeys(cell.protocol for cell in cells)]
    if found:
        grids.append(_cost_grid(rows, asked))
    if asked.table.name == "projector":
        grids.append(compare_rows(asked, "bgrl-projector", "bgrl"))
    legend = LEGEND + PAPER_LEGEND * any(cell.paper is not None for cell in cells)
    draw = partial(plot_accuracies, cells) if any(cell.values for cell in cells) else None
    return asked.report(grids, notes=[legend], rows=found, csv=_to_csv(cells, rows), draw=draw)


def _cells(asked: Asked) -> Iterator[Cell]:
    """Every cell of a table, under every protocol."""
    for variant in asked.variants:
        for dataset in asked.datasets:
            tested = protocols_of(dataset)
            validated = [one + ON_VALIDATION for one in tested] if has_printed(f"{asked.table.name}-validation") else []
            for protocol in (*tested, *validated):
                yield make_cell(asked, variant, dataset, protocol)


def row_title(cells: Sequence[Cell]) -> str:
    """Of the cells of a row; starred where the authors measured it themselves."""
    variant = VARIANTS[cells[0].variant]
    is_theirs = any(cell.paper is not None and cell.paper.is_starred for cell in cells) and not variant.family
    return variant.title + "*" * is_theirs


def _accuracy_grid(cells: Sequence[Cell], protocol: str) -> Grid:
    """One protocol: a row for each variant, two columns for each graph."""
    mine = [cell for cell in cells if cell.protocol == protocol]
    datasets = list(dict.fromkeys(cell.dataset for cell in mine))
    has_paper = any(cell.paper is not None for cell in mine)
    header = ["method", *(title for dataset in datasets for title in ((dataset, "paper") if has_paper else (dataset,)))]
    lines = []
    for variant in dict.fromkeys(cell.variant for cell in mine):
        row = [cell for cell in mine if cell.variant == variant]
        texts = [text for cell in row for text in ((cell.text, cell.paper_text) if has_paper else (cell.text,))]
        lines.append([row_title(row), *texts])
    return Grid(header, lines, f"Protocol `{protocol}`, in %")


def _cost_grid(rows: Mapping[tuple[str, str], Sequence[Row]], asked: Asked) -> Grid:
    lines = [
        [VARIANTS[v].title, *(_cost_text(rows[d, v]) for d in asked.datasets)]
        for v in asked.variants
        if any("train_seconds" in row for d in asked.datasets for row in rows[d, v])
    ]
    has_supervised = any(VARIANTS[v].kind.startswith("supervised-") for v in asked.variants)
    networks = " (supervised rows: of a network for each split and protocol)" if has_supervised else ""
    caption = f"Seconds of training a seed{networks} and peak memory, of the program that trained most seeds together"
    return Grid(["method", *asked.datasets], lines, caption)


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


def _to_csv(cells: Sequence[Cell], rows: Mapping[tuple[str, str], Sequence[Row]]) -> str:
    """One line for each cell and protocol, its costs as `_costs` gives them."""
    names = ("method", "dataset", "protocol", "mean", "std", "seeds", "note", "paper", "paper_std", "difference", "p")
    lines = []
    for cell in cells:
        paper, own = cell.paper, rows[cell.dataset, cell.variant]
        numbers = (None, None) if paper is None else (paper.text if paper.mean is None else paper.mean, paper.std)
        ours = (cell.mean, cell.std, len(cell.values), cell.note)
        last = {**(own[-1] if own else {}), **_costs(own)}
        took = [last.get(name) for name in _COSTS]
        about = (cell.variant, cell.dataset, cell.protocol)
        lines.append([*about, *ours, *numbers, cell.difference, cell.p_value, *took])
    return to_csv([*names, *_COSTS], lines)


def plot_accuracies(cells: Sequence[Cell], path: Path) -> None:
    """A panel for each graph, a line for each method: ours with its deviation, the paper's hollow beside it. The
    protocol is the first of the graph's, `reference` where there are several."""
    first = dict(reversed([(cell.dataset, cell.protocol) for cell in cells]))
    shown = [cell for cell in cells if cell.protocol == first[cell.dataset]]
    datasets = [d for d in first if any(c.dataset == d and c.values for c in shown)]
    datasets.sort(key=[cell.dataset for cell in cells].index)
    variants = list(dict.fromkeys(cell.variant for cell in shown))
    figure, (panels,) = make_panels(
        1, len(datasets), width=1.6 + 2.4 * len(datasets), height=1.2 + 0.26 * len(variants)
    )
    for axes, dataset in zip(panels, datasets, strict=True):
        for cell in (cell for cell in shown if cell.dataset == dataset):
            place = -variants.index(cell.variant)
            if cell.paper is not None and cell.paper.mean is not None:
                _dot(axes, cell.paper.mean, place - 0.15, cell.paper.std, colour=THEIRS, filled=False)
            if cell.mean is not None:
                _dot(axes, cell.mean, place + 0.15, cell.std, colour=OURS, filled=True)
        axes.set_ylim(0.5 - len(variants), 0.5)
        axes.set_title(dataset, fontsize=10)
        axes.set_xlabel(f"accuracy in %, {first[dataset]}", fontsize=8)
        axes.set_yticks([-index for index in range(len(variants))], [VARIANTS[v].title for v in variants])
        axes.tick_params(labelsize=8, labelleft=dataset == datasets[0])
        axes.grid(axis="x", color="0.92", zorder=0)
    for text, colour in (("ours", OURS), ("paper", THEIRS)):
        panels[0].plot([], [], color=colour, marker="o", linestyle="", ms=4, label=text)
    panels[0].legend(frameon=False, fontsize=8, loc="best")
    save_figure(figure, path)


def _dot(axes: Any, x: float, y: float, spread: float | None, *, colour: str, filled: bool) -> None:
    axes.errorbar(
        [x], [y], xerr=[spread or 0.0], fmt="o", ms=4, color=colour, mfc=colour if filled else "white", zorder=2
    )


def compare_rows(asked: Asked, one: str, other: str) -> Grid:
    """One row against another of ours, seed by seed, on the same splits: a line for each protocol, mean and deviation
    of the differences, ! where they are significant at 1 %."""
    lines = []
    for protocol in dict.fromkeys(protocol for dataset in asked.datasets for protocol in protocols_of(dataset)):
        texts = []
        for dataset in asked.datasets:
            mine, theirs = (
                values_of(find_rows(asked.ledger, name, dataset, quick=asked.quick), protocol) for name in (one, other)
            )
            differences = [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
            texts.append(difference_text(differences) or "not computed")
        lines.append([protocol, *texts])
    caption = (
        f"{VARIANTS[one].title} less {VARIANTS[other].title}, in points: mean ± standard deviation over seeds; ! by a "
        "paired t-test at 1 %"
    )
    return Grid(["protocol", *asked.datasets], lines, caption)


def report_curves(asked: Asked) -> Report:
    """The course of training, kept with the cells of the first few seeds: the paper's figures 6, 7 and 8."""
    rows = asked.rows(find_rows)
    curves = {key: curve for key, own in rows.items() if (curve := mean_curve(own)) is not None}
    shown = [row for key in curves for row in rows[key] if row.get("curve")]
    header = ["graph", "method", *(name.replace("_", " ") for name in CURVE_NAMES)]
    lines = asked.lines(rows, _course, of="curve", num_columns=len(CURVE_NAMES))
    grid = Grid(header, lines, "At the first step, half way and at the last")
    points = [
        [dataset, variant, step, *(f"{curve[name][i]:.5g}" if name in curve else "" for name in CURVE_NAMES)]
        for (dataset, variant), curve in curves.items()
        for i, step in enumerate(curve["step"])
    ]
    csv = to_csv(["dataset", "method", "step", *CURVE_NAMES], points)
    draw = partial(plot_curves, curves) if curves else None
    return asked.report([grid], notes=[_CURVES_LEGEND], rows=shown, csv=csv, draw=draw)


def mean_curve(rows: Sequence[Row]) -> Curve | None:
    """The mean over the rows that have a curve; None where none has."""
    curves = [row["curve"] for row in rows if row.get("curve")]
    if not curves:
        return None
    alike = [curve for curve in curves if curve["step"] == curves[0]["step"]]
    names = [name for name in CURVE_NAMES if all(name in curve for curve in alike)]
    means = {name: np.mean([curve[name] for curve in alike], axis=0).tolist() for name in names}
    return {"step": curves[0]["step"], **means}


def _course(rows: Sequence[Row]) -> list[str]:
    """`1.02, 0.31, 0.28` for each of the quantities."""
    curve = mean_curve(rows)
    assert curve is not None
    places = (0, len(curve["step"]) // 2, -1)
    return [", ".join(f"{curve[name][place]:.3g}" for place in places) if name in curve else "" for name in CURVE_NAMES]


def plot_curves(curves: Mapping[tuple[str, str], Curve], path: Path) -> None:
    """Loss, spread and mean norm over the part of training that is done, a line for each graph and method."""
    from matplotlib import colormaps

    figure, (panels,) = make_panels(1, 3, width=12.0, height=3.8)
    several = len({variant for _, variant in curves}) > 1
    datasets = list(dict.fromkeys(dataset for dataset, _ in curves))
    titles = {"loss": "loss", "spread": "spread: deviation over nodes / mean norm", "mean_norm": "mean norm"}
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        for (dataset, variant), curve in curves.items():
            done = [step / curve["step"][-1] for step in curve["step"]]
            colour = colormaps["tab10"](datasets.index(dataset) % 10)
            style = "--" if variant != "bgrl" else "-"
            label = f"{dataset}, {VARIANTS[variant].title}" if several else dataset
            axes.plot(done, curve[name], color=colour, linestyle=style, linewidth=1.2, label=label)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("part of training")
        axes.set_ylim(bottom=0.0)
    panels[1].legend(frameon=False, fontsize=7, ncols=2)
    save_figure(figure, path)
