"""Pictures: accuracies beside the paper's, memory over the number of nodes, the course of training, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphstrap.io.files import atomic_write
from graphstrap_lab.reproduce.curves import Curve
from graphstrap_lab.reproduce.tables import Cell
from graphstrap_lab.reproduce.variants import VARIANTS

OURS, PAPER = "#2a6f97", "#c9ada7"
COLOURS = {"grace": "#c1666b", "bgrl": "#2a6f97"}


def plot_accuracies(cells: Sequence[Cell], path: Path) -> None:
    """A panel for each graph, a line for each method: ours with its deviation, the paper's hollow beside it. The
    protocol is the first of the graph's, `reference` where there are several."""
    first = dict(reversed([(cell.dataset, cell.protocol) for cell in cells]))
    shown = [cell for cell in cells if cell.protocol == first[cell.dataset]]
    datasets = [d for d in first if any(c.dataset == d and c.mean is not None for c in shown)]
    datasets.sort(key=[cell.dataset for cell in cells].index)
    variants = list(dict.fromkeys(cell.variant for cell in shown))
    figure, panels = _panels(len(datasets), width=1.6 + 2.4 * len(datasets), height=1.2 + 0.26 * len(variants))
    for axes, dataset in zip(panels, datasets, strict=True):
        for cell in (cell for cell in shown if cell.dataset == dataset):
            place = -variants.index(cell.variant)
            if cell.paper is not None and cell.paper.mean is not None:
                _dot(axes, cell.paper.mean, place - 0.15, cell.paper.std, colour=PAPER, filled=False)
            if cell.mean is not None:
                _dot(axes, cell.mean, place + 0.15, cell.std, colour=OURS, filled=True)
        axes.set_ylim(0.5 - len(variants), 0.5)
        axes.set_title(dataset, fontsize=10)
        axes.set_xlabel(f"accuracy in %, {first[dataset]}", fontsize=8)
        axes.set_yticks([-index for index in range(len(variants))], [VARIANTS[v].title for v in variants])
        axes.tick_params(labelsize=8, labelleft=dataset == datasets[0])
        axes.grid(axis="x", color="0.92", zorder=0)
    _label(panels[0], [("ours", OURS, "o"), ("paper", PAPER, "o")])
    _save(figure, path)


def plot_memory(
    points: Mapping[str, Sequence[tuple[int, float, bool]]], exponents: Mapping[str, float | None], path: Path
) -> None:
    """Gigabytes over nodes, both logarithmic; by method: (nodes, bytes, whether the graph is a real one)."""
    figure, (axes,) = _panels(1, width=6.4, height=4.4)
    for variant, values in points.items():
        colour, exponent = COLOURS.get(variant, "0.4"), exponents.get(variant)
        made = sorted((n, b / 1e9) for n, b, is_real in values if not is_real)
        label = VARIANTS[variant].title + ("" if exponent is None else f": grows as N^{exponent:.2f}")
        axes.plot([n for n, _ in made], [b for _, b in made], color=colour, marker="o", ms=4, label=label)
        real = [(n, b / 1e9) for n, b, is_real in values if is_real]
        axes.scatter([n for n, _ in real], [b for _, b in real], color=colour, marker="*", s=80, zorder=3)
    axes.scatter([], [], color="0.4", marker="*", s=80, label="the paper's graphs")
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="peak memory of a training step, GB")
    axes.legend(frameon=False)
    _save(figure, path)


def plot_curves(curves: Mapping[tuple[str, str], Curve], path: Path) -> None:
    """Loss, spread and mean norm over the part of training that is done, a line for each graph and method."""
    from matplotlib import colormaps

    figure, panels = _panels(3, width=12.0, height=3.8)
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
    _save(figure, path)


def plot_courses(
    courses: Mapping[tuple[str, str], Sequence[Mapping[str, Sequence[float]]]], path: Path, *, measure: str
) -> None:
    """Accuracy over the part of training that is done: a panel for each graph, a line for each method, by (graph,
    method), the mean over seeds in a band of one standard deviation."""
    import numpy as np

    graphs = list(dict.fromkeys(graph for graph, _ in courses))
    figure, panels = _panels(len(graphs), width=1.0 + 5.4 * len(graphs), height=4.2)
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
    _save(figure, path)


def plot_entropies(histograms: Mapping[tuple[str, str], Sequence[float]], path: Path) -> None:
    """A row of panels for each graph, a panel for each method, by (graph, method): the share of nodes in each bin of
    entropies from 0 down; the panels of a row have one scale."""
    from graphstrap_lab.reproduce.entropies import BIN_WIDTH

    datasets = list(dict.fromkeys(dataset for dataset, _ in histograms))
    variants = list(dict.fromkeys(variant for _, variant in histograms))
    figure, grid = _grid_of_panels(len(datasets), len(variants))
    for panels, dataset in zip(grid, datasets, strict=True):
        own = {variant: shares for (name, variant), shares in histograms.items() if name == dataset}
        lowest, highest = max(map(len, own.values())), max(map(max, own.values()))
        for axes, variant in zip(panels, variants, strict=True):
            shares = own.get(variant, [])
            places = [-BIN_WIDTH * (index + 0.5) for index in range(len(shares))]
            axes.bar(places, shares, width=BIN_WIDTH, color=COLOURS.get(variant.split("-")[0], "0.4"))
            if not shares:
                axes.text(0.5, 0.5, "not computed", transform=axes.transAxes, ha="center", fontsize=9, color="0.5")
            axes.axvline(0.0, color="black", linewidth=0.8, linestyle=":")
            axes.set(xlim=(-BIN_WIDTH * (lowest + 1), BIN_WIDTH), ylim=(0.0, 1.05 * highest))
            axes.set_title(f"{dataset}: {VARIANTS[variant].title}", fontsize=9)
        panels[0].set_ylabel("share of nodes")
    for axes in grid[-1]:
        axes.set_xlabel("entropy of attention - uniform")
    _save(figure, path)


def _dot(axes: Any, x: float, y: float, spread: float | None, *, colour: str, filled: bool) -> None:
    axes.errorbar(
        [x], [y], xerr=[spread or 0.0], fmt="o", ms=4, color=colour, mfc=colour if filled else "white", zorder=2
    )


def _label(axes: Any, entries: Sequence[tuple[str, str, str]]) -> None:
    for text, colour, marker in entries:
        axes.plot([], [], color=colour, marker=marker, linestyle="", ms=4, label=text)
    axes.legend(frameon=False, fontsize=8, loc="best")


def _panels(number: int, *, width: float, height: float) -> tuple[Any, list[Any]]:
    figure, (panels,) = _grid_of_panels(1, number, width=width, height=height)
    return figure, panels


def _grid_of_panels(
    num_rows: int, num_columns: int, *, width: float | None = None, height: float | None = None
) -> tuple[Any, list[list[Any]]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (width or 3.4 * num_columns, height or 0.5 + 2.1 * num_rows)
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    grid = [list(row) for row in figure.subplots(num_rows, num_columns, squeeze=False)]
    for axes in (axes for row in grid for axes in row):
        axes.spines[["top", "right"]].set_visible(False)
    return figure, grid


def _save(figure: Any, path: Path) -> None:
    """A PNG or an SVG, by the name of the file; the same numbers give the same bytes."""
    import matplotlib as mpl

    kind = path.suffix.removeprefix(".")
    metadata = {"Software": None} if kind == "png" else {"Date": None}
    with mpl.rc_context({"svg.hashsalt": "graphstrap"}), atomic_write(path) as temporary:
        figure.savefig(temporary, format=kind, metadata=metadata)
