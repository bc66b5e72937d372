"""Measurements as tables of text and as pictures: at the terminal, in docs/performance.md, docs/encoders.md and
docs/default-recipe.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap_lab.bench.scale import SLOPE_FROM
from graphstrap_lab.bench.table import table_grid
from graphstrap_lab.grid import OURS, THEIRS, Grid, make_panels, mean_text, paired_p_value, save_figure, size_text

Record = dict[str, Any]  # what `record.write_record` writes; here only its rows and what was measured beside them

_ADAMW = ("adamw", "adamw-reference")
_LEVEL = 0.05  # of the test whether `default` is above its baselines


def step_grid(record: Record) -> Grid:
    header = ("dataset", "precision", "ours, ms", "plain PyG, ms", "faster", "ours", "plain PyG", "smaller")
    lines = [
        (
            row["dataset"],
            row["precision"],
            f"{row['ours_ms']:.2f} ± {row['ours_ms_iqr']:.2f}",
            f"{row['baseline_ms']:.2f} ± {row['baseline_ms_iqr']:.2f}",
            f"{row['speedup']:.1f}×",
            size_text(row["ours_bytes"]),
            size_text(row["baseline_bytes"]),
            f"{row['baseline_bytes'] / row['ours_bytes']:.1f}×",
        )
        for row in record["rows"]
    ]
    note = "Median ± distance between the quartiles; peak memory of each side alone."
    return Grid(header, lines, note=note, num_texts=2)


def scale_grid(record: Record) -> Grid:
    header = ("nodes", "edges", "step, ms", "memory", "bytes a node")
    lines = [
        (
            f"{row['num_nodes']:,}",
            f"{row['num_edges']:,}",
            f"{row['step_ms']:.2f} ± {row['step_ms_iqr']:.2f}",
            size_text(row["peak_bytes"]),
            f"{row['peak_bytes'] / row['num_nodes']:,.0f}",
        )
        for row in record["rows"]
    ]
    slopes = record["slopes"]
    note = ""
    if slopes["time"] is not None:
        note = f"From 100,000 nodes up time grows as N^{slopes['time']:.2f} and memory as N^{slopes['memory']:.2f}."
    return Grid(header, lines, note=note, num_texts=0)


def ops_grid(record: Record) -> Grid:
    header = ("dataset", "part", "in a step", "ms", "GFLOP", "MB", "floor, ms", "times the floor")
    lines = [
        (
            row["dataset"],
            row["part"],
            str(row["per_step"]),
            f"{row['ms']:.3f}",
            f"{row['flops'] / 1e9:.2f}",
            f"{row['bytes'] / 1e6:.1f}",
            f"{row['floor_ms']:.3f}",
            f"{row['times_floor']:.1f}",
        )
        for row in record["rows"]
    ]
    rates = record["rates"]
    matrix = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in rates["flops_per_second"].items())
    memory, cache = (rates[f"{kind}_bytes_per_second"] / 1e9 for kind in ("memory", "cache"))
    held = f"{rates['cache_bytes'] / 2**20:.0f} MiB"
    note = f"Measured: memory {memory:,.0f} GB/s, cache ({held}) {cache:,.0f} GB/s, products {matrix}."
    return Grid(header, lines, note=note, num_texts=2)


def twitch_grid(record: Record) -> Grid:
    """`lab/benchmarks/twitch.py`: a row for each encoder; means over the countries that all of its columns know."""
    raw = {row["tested"]: row["auc"] for row in record["rows"] if "auc" in row}
    trained = [row for row in record["rows"] if "bgrl" in row and row["tested"] in raw]
    lines = []
    for encoder in dict.fromkeys(row["encoder"] for row in trained):
        own = {row["tested"]: row for row in trained if row["encoder"] == encoder}
        by_country = (f"{np.mean(own[country]['bgrl']):.2f}" if country in own else "" for country in raw)
        plain = f"{np.mean([raw[country] for country in own]):.2f}"
        over_seeds = [np.mean([row[key] for row in own.values()], axis=0) for key in ("random_init", "bgrl")]
        lines.append((encoder, plain, *map(mean_text, over_seeds), *by_country))
    note = "ROC AUC in %: means over countries ± standard deviation over seeds; then BGRL's by the country tested."
    return Grid(("encoder", "raw features", "random init", "BGRL", *raw), lines, note=note, num_texts=1)


def arxiv_grid(record: Record) -> Grid:
    """`lab/benchmarks/arxiv_like.py`: a row for each method; time and memory where it had the GPU to itself."""
    header = ("method", "steps", "`adamw` val", "test", "`adamw-reference` val", "test", "seconds", "peak memory")
    lines: list[tuple[str, ...]] = []
    for row in record["rows"]:
        if "refused" in row:
            lines.append((row["method"], row["refused"], *[""] * 6))
            continue
        scores = (f"{row[f'{protocol} {part}']:.2f}" for protocol in _ADAMW for part in ("val", "test"))
        alone = row.get("alone_on_the_gpu", True) and {"train_seconds", "peak_bytes"} <= set(row)
        cost = (f"{row['train_seconds']:.0f}", size_text(row["peak_bytes"])) if alone else ("", "")
        lines.append((row["method"], f"{row['steps']:,}", *scores, *cost))
    note = (
        "Accuracy in % on validation and test nodes of a synthetic graph: whether training finds what was planted. "
        "Seconds and memory of methods that had the GPU to themselves."
    )
    return Grid(header, lines, note=note, num_texts=1)


def defaults_grid(record: Record) -> Grid:
    """`lab/benchmarks/defaults.py`: a row for each graph, `default` beside raw features and random init."""
    rows = record["rows"]
    header = ("graph", "raw features", "random init", "`default`", "over the better", "verdict")
    lines, found = [], []
    for row in rows:
        difference, verdict = verdict_of(row)
        found.append(verdict)
        texts = (
            "none" if row[key] is None else mean_text(np.ravel(row[key])) for key in ("raw", "random_init", "bgrl")
        )
        lines.append((row["graph"], *texts, f"{difference:+.2f}", verdict))
    counts = [f"{found.count(word)} {word}" for word in ("above both", "within noise of the better", "below")]
    seeds = sorted({len(row["bgrl"]) for row in rows})
    note = (
        f"Mean ± standard deviation over {' or '.join(map(str, seeds))} seeds; {', '.join(counts)}, by a paired t-test "
        f"over seeds at {_LEVEL:.0%}. Random init has the same own features beside it as `default`."
    )
    if any(row["raw"] is not None and np.size(row["raw"]) == 1 for row in rows) and seeds != [1]:
        note += " Raw features without a deviation have many columns and are of the first seed's splits alone."
    return Grid(header, lines, note=note)


def verdict_of(row: Record) -> tuple[float, str]:
    """How far `default` is over the better of raw features and random init, and what a paired two-sided t-test over
    seeds, which share their splits, says of it. Where a single value is known it is taken to be that of each seed."""
    baselines = [np.ravel(row[key]) for key in ("raw", "random_init") if row[key] is not None]
    differences = np.asarray(row["bgrl"]) - max(baselines, key=np.mean)
    mean, p_value = float(differences.mean()), paired_p_value(differences)
    if p_value is None and len(differences) > 1:
        p_value = float(mean == 0)  # every seed says the same
    if p_value is None or p_value >= _LEVEL:
        return mean, "within noise of the better"
    return mean, "above both" if mean > 0 else "below"


GRIDS: dict[str, Callable[[Record], Grid]] = {
    "step": step_grid,
    "scale": scale_grid,
    "ops": ops_grid,
    "table": lambda record: table_grid(record["rows"]),
    "twitch": twitch_grid,
    "arxiv-like": arxiv_grid,
    "defaults": defaults_grid,
}


def plot_steps(record: Record, path: Path) -> None:
    """Two panels of bars, time and memory; the figures say how many times less ours is."""
    rows = record["rows"]
    figure, ((left, right),) = make_panels(1, 2, width=max(7.0, 2.2 + 1.7 * len(rows)), height=3.8)
    names = [row["dataset"].replace("amazon-", "").replace("coauthor-", "") for row in rows]
    places = range(len(names))
    panels = ((left, "milliseconds a step", "ms", 1.0), (right, "peak memory, MiB", "bytes", 2.0**20))
    for axes, label, measure, unit in panels:
        mine, theirs = ([row[f"{side}_{measure}"] / unit for row in rows] for side in ("ours", "baseline"))
        axes.bar([p + 0.2 for p in places], mine, width=0.38, color=OURS, label="Graphstrap")
        axes.bar([p - 0.2 for p in places], theirs, width=0.38, color=THEIRS, label="plain PyG")
        for place, small, large in zip(places, mine, theirs, strict=True):
            axes.annotate(f"{large / small:.1f}×", (place + 0.2, small), ha="center", va="bottom", fontsize=9)
        axes.set_xticks(list(places), names)
        axes.margins(y=0.2)  # room for the legend
        axes.set_ylabel(label)
    left.legend(frameon=False, loc="upper left")
    save_figure(figure, path)


def plot_growth(record: Record, path: Path) -> None:
    """Time and memory over nodes, both axes logarithmic, beside a line of slope 1 through the last point."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    rows, slopes = record["rows"], record["slopes"]
    figure, ((left, right),) = make_panels(1, 2, width=9.0, height=3.8)
    nodes = [row["num_nodes"] for row in rows]
    times, gigabytes = [row["step_ms"] for row in rows], [row["peak_bytes"] / 2**30 for row in rows]
    panels = (
        (left, "milliseconds a step", times, slopes["time"]),
        (right, "peak memory, GiB", gigabytes, slopes["memory"]),
    )
    for axes, label, values, slope in panels:
        fitted = "measured" if slope is None else f"measured, N^{slope:.2f}"
        axes.plot(nodes, [values[-1] * n / nodes[-1] for n in nodes], color=THEIRS, linestyle="--", label="N^1.00")
        axes.plot(nodes, values, color=OURS, marker="o", label=fitted)
        if slope is not None:
            axes.axvline(SLOPE_FROM, color="0.8", linewidth=0.8, zorder=0)  # the slope is fitted to the right of it
        axes.set(xscale="log", yscale="log", xlabel="nodes, 16 edges each", ylabel=label)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(frameon=False, loc="lower right")
    save_figure(figure, path)


PLOTS: dict[str, Callable[[Record, Path], None]] = {"step": plot_steps, "scale": plot_growth}
