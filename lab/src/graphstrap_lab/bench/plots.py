"""Pictures of measurements: a step's time and memory beside plain PyG's, and how both grow with the graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphstrap.io.files import atomic_write
from graphstrap_lab.bench.cells import Record
from graphstrap_lab.bench.scale import SLOPE_FROM

OURS, BASELINE = "#2a6f97", "#c9ada7"


def plot_steps(record: Record, path: Path) -> None:
    """Two panels of bars, time and memory; the figures say how many times less ours is."""
    rows = record["rows"]
    figure, (left, right) = _panels(width=2.2 + 1.7 * len(rows))
    names = [row["dataset"].replace("amazon-", "").replace("coauthor-", "") for row in rows]
    _paired_bars(left, names, [row["ours_ms"] for row in rows], [row["baseline_ms"] for row in rows])
    left.set_ylabel("milliseconds a step")
    megabytes = [[row[f"{side}_bytes"] / 2**20 for row in rows] for side in ("ours", "baseline")]
    _paired_bars(right, names, *megabytes)
    right.set_ylabel("peak memory, MiB")
    left.legend(frameon=False, loc="upper left")
    _save(figure, path)


def plot_growth(record: Record, path: Path) -> None:
    """Time and memory over nodes, both axes logarithmic, beside a line of slope 1 through the last point."""
    rows, slopes = record["rows"], record["slopes"]
    figure, (left, right) = _panels(width=9.0)
    nodes = [row["num_nodes"] for row in rows]
    _grow(left, nodes, [row["step_ms"] for row in rows], label="milliseconds a step", slope=slopes["time"])
    gigabytes = [row["peak_bytes"] / 2**30 for row in rows]
    _grow(right, nodes, gigabytes, label="peak memory, GiB", slope=slopes["memory"])
    _save(figure, path)


PLOTS: dict[str, Callable[[Record, Path], None]] = {"step": plot_steps, "scale": plot_growth}


def _paired_bars(axes: Any, names: list[str], mine: list[float], theirs: list[float]) -> None:
    places = range(len(names))
    axes.bar([p + 0.2 for p in places], mine, width=0.38, color=OURS, label="Graphstrap")
    axes.bar([p - 0.2 for p in places], theirs, width=0.38, color=BASELINE, label="plain PyG")
    for place, small, large in zip(places, mine, theirs, strict=True):
        axes.annotate(f"{large / small:.1f}×", (place + 0.2, small), ha="center", va="bottom", fontsize=9)
    axes.set_xticks(list(places), names)
    axes.margins(y=0.2)  # room for the legend


def _grow(axes: Any, nodes: list[int], values: list[float], *, label: str, slope: float | None) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.plot(nodes, [values[-1] * n / nodes[-1] for n in nodes], color=BASELINE, linestyle="--", label="N^1.00")
    axes.plot(nodes, values, color=OURS, marker="o", label="measured" if slope is None else f"measured, N^{slope:.2f}")
    if slope is not None:
        axes.axvline(SLOPE_FROM, color="0.8", linewidth=0.8, zorder=0)  # the slope is fitted to the right of it
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("nodes, 16 edges each")
    axes.set_ylabel(label)
    axes.legend(frameon=False, loc="lower right")


def _panels(*, width: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(7.0, width), 3.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _save(figure: Any, path: Path) -> None:
    with atomic_write(path) as temporary:
        figure.savefig(temporary)
