"""Table 1 and its scatter plot: the peak memory of a training step, GRACE's against BGRL's.

On the paper's graphs by each row's recipe, and on generated graphs that double, where both have the same narrow
layers: GRACE's memory should grow as N^2 and BGRL's as N. Counted are the graph, the features, the weights, the
optimiser's state and all that three steps need beside them: on CUDA the peak of PyTorch's allocator, on a CPU the extra
resident memory of a fresh process that has loaded the libraries. A step that is not going to fit is not tried; its cell
gives the estimate instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.ops.memory import free_memory
from graphstrap.ops.precision import resolve_precision
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.graphs import power_law_graph, prepare_for, recipe_of_sizes, tiny_graph_like
from graphstrap_lab.bench.measure import is_out_of_memory, run_in_child
from graphstrap_lab.bench.scale import log_slope
from graphstrap_lab.bench.step import ours, peak_of_steps
from graphstrap_lab.grid import Grid, make_panels, save_figure, to_csv
from graphstrap_lab.reproduce.cells import Filling, describe_cell
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.memory import as_published, part_text, refusal, still_stands
from graphstrap_lab.reproduce.render import METHOD_COLOURS, Asked, Report
from graphstrap_lab.reproduce.run import Work, fill_ledger
from graphstrap_lab.reproduce.tables import Table, printed
from graphstrap_lab.reproduce.variants import VARIANTS, base_of, flat, recipe_of, settings_digest

GENERATED = "generated-"
MOST_NODES = {"grace": 32_000, "bgrl": 1_024_000}
QUICK_NODES = {"grace": 8_000, "bgrl": 64_000}
QUICK_LIMIT = 6 * 10**9
_NUM_FEATURES = 64
_LIKE = {"grace": "gca-standard"}  # the row whose recipe is measured
_FITTED_SIZES = 4  # exponents are those of the largest sizes, where what does not grow no longer counts
LEGEND = (
    "Ours: the peak of three training steps with the graph, the features, the weights and the optimiser's state; on "
    "CUDA that of PyTorch's allocator, on a CPU the extra resident memory of a fresh process. The paper's number (in "
    "float32, on a V100 with 16 GB) and ours as a part of it follow. Seeds hardly change memory: one each, no test. "
    "Generated graphs have 16 edges a node, hubs, 64 feature columns and layers of 64; exponents are least-squares "
    "slopes between logarithms over the four largest sizes."
)


def sizes_of(variant: str, *, quick: bool) -> list[int]:
    """Nodes of the generated graphs: from a thousand up, doubling."""
    most = (QUICK_NODES if quick else MOST_NODES)[variant]
    return [1000 * 2**power for power in range(most.bit_length()) if 1000 * 2**power <= most]


def fill_peaks(table: Table, ledger: Ledger, how: Filling, *, variants: Sequence[str], datasets: Sequence[str]) -> None:
    """Measure what the ledger lacks for this device."""
    sizes = {variant: sizes_of(variant, quick=how.quick) for variant in variants}
    if how.quick and how.memory_limit is None:
        how = replace(how, memory_limit=QUICK_LIMIT)
    device, free = how.place.type, free_memory(how.place)

    def is_left(variant: str, dataset: str) -> bool:
        if dataset.startswith(GENERATED) and _size_of(dataset) not in sizes[variant]:
            return False
        found = find_peak(ledger, dataset, variant, device=device, memory_limit=how.memory_limit)
        has_number = found is not None and not found.get("oom")
        return how.again or not (has_number or (found and still_stands(found, limit=how.memory_limit, free=free)))

    work = Work(
        settings=lambda variant, dataset, quick: peak_settings(variant, dataset, device=device),
        compute=lambda graph, variant, how, seeds: [measure_peak(graph, variant, how)],
        load=lambda name, how: make_graph(name),
    )
    made = [f"{GENERATED}{size}" for size in sorted(set().union(*sizes.values()))]
    for dataset in [*datasets, *made]:
        left = [variant for variant in variants if is_left(variant, dataset)]
        if left and how.deadline.seconds_left > 0:
            fill_ledger(table, ledger, how, variants=left, datasets=[dataset], num_seeds=1, work=work)


def measure_peak(graph: Graph, variant: str, how: Filling) -> Row:
    """A row of the ledger."""
    device, recipe = how.place, peak_recipe(variant, graph.name)
    row: Row = {
        **describe_cell(graph, variant, recipe, how, settings=peak_settings(variant, graph.name, device=device.type)),
        "seed": 0,
        "precision": resolve_precision(recipe.train.precision, device),
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
    }
    refused = refusal(graph, recipe, limit=how.limit, on_cpu=device.type == "cpu")
    if refused is not None:
        return {**row, "oom": refused, "free_bytes": free_memory(device)}
    if device.type != "cuda":
        return {**row, **run_in_child(peak_on_cpu, dataset=graph.name, variant=variant)}
    try:
        return {**row, **_peak(graph, recipe, device)}
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return {**row, "oom": "OOM", "free_bytes": free_memory(device)}


def peak_on_cpu(dataset: str, variant: str) -> dict[str, Any]:
    """For a fresh process, in which a tiny graph loads the libraries first."""
    cpu, graph, recipe = torch.device("cpu"), make_graph(dataset), peak_recipe(variant, dataset)
    _peak(tiny_graph_like(graph), recipe, cpu)
    return _peak(graph, recipe, cpu)


def _peak(graph: Graph, recipe: Recipe, device: torch.device) -> dict[str, Any]:
    return peak_of_steps(ours(prepare_for(graph, recipe), recipe), device)


def make_graph(dataset: str) -> Graph:
    """A dataset by name, or a generated graph of so many nodes, 16 edges each, with hubs."""
    if not dataset.startswith(GENERATED):
        return load(dataset)
    graph = power_law_graph(_size_of(dataset), num_features=_NUM_FEATURES, seed=0, device=torch.device("cpu"))
    return replace(graph, name=dataset)


def _size_of(dataset: str) -> int:
    return int(dataset.removeprefix(GENERATED))


def peak_recipe(variant: str, dataset: str) -> Recipe:
    """The row's recipe on a graph of the paper; on a generated one narrow layers, the same for every method. GRACE is
    measured as its own code computes it: similarities are kept, and there is no batch norm, which it has in table 3 on
    Computers."""
    if not dataset.startswith(GENERATED):
        return as_published(recipe_of(_LIKE.get(variant, variant), dataset))
    return as_published(recipe_of_sizes(64, 64, 64).with_settings({"method.name": variant}))


def peak_settings(variant: str, dataset: str, *, device: str) -> str:
    """Of the row's settings; with those of other methods that a recipe of version 0.1 had too."""
    also: dict[str, Any] = {"method.keep_similarities": True, "method.predictor_hidden_size": 64}
    if not dataset.startswith(GENERATED):
        also |= flat(base_of(_LIKE.get(variant, variant), dataset))
    return f"memory-{device}-{settings_digest(peak_recipe(variant, dataset), 'memory', also=also)}"


def find_peak(
    ledger: Ledger, dataset: str, variant: str, *, device: str, memory_limit: int | None = None
) -> Row | None:
    """What was measured or, where nothing was, that it does not fit: under this limit rather than under another."""
    settings = peak_settings(variant, dataset, device=device)
    found = ledger.find(dataset=dataset, variant=variant, settings=settings)
    order = sorted(found, key=lambda row: (not row.get("oom"), row.get("memory_limit") == memory_limit))
    return order[-1] if order else None


def generated_peaks(ledger: Ledger, variant: str, *, device: str) -> list[Row]:
    """What was measured on generated graphs, and what did not fit, by their size."""
    names = [f"{GENERATED}{size}" for size in sizes_of(variant, quick=False)]
    found = [find_peak(ledger, name, variant, device=device) for name in names]
    return [row for row in found if row is not None]


def fitted_exponent(rows: Sequence[Row]) -> float | None:
    """p of memory ~ N^p over the largest generated graphs."""
    measured = [row for row in rows if row.get("peak_bytes")]
    largest = sorted(measured, key=lambda row: int(row["num_nodes"]))[-_FITTED_SIZES:]
    return log_slope([row["num_nodes"] for row in largest], [row["peak_bytes"] for row in largest])


def report_peaks(asked: Asked) -> Report:
    """Under a memory limit, what was measured to need more is shown as out of memory, too."""
    ledger, limit, device = asked.ledger, asked.memory_limit, asked.device
    found = {
        (v, d): find_peak(ledger, d, v, device=device, memory_limit=limit)
        for v in asked.variants
        for d in asked.datasets
    }
    peaks = {key: row for key, row in found.items() if row is not None}
    made = {v: generated_peaks(ledger, v, device=device) for v in asked.variants}
    exponents = {v: fitted_exponent(rows) for v, rows in made.items()}
    rows = [*peaks.values(), *(row for own in made.values() for row in own)]
    points = {
        v: [
            (row["num_nodes"], row["peak_bytes"], row in peaks.values())
            for row in rows
            if row["variant"] == v and row.get("peak_bytes")
        ]
        for v in asked.variants
    }
    grids = [_grid(asked, peaks), _made_grid(made, exponents, limit)]
    draw = partial(plot_memory, points, exponents) if any(points.values()) else None
    shown = [grid for grid in grids if grid.lines]
    return asked.report(shown, notes=[LEGEND], rows=rows, csv=_to_csv(rows), draw=draw)


def peak_text(row: Row, limit: int | None) -> str:
    """`1.32 GB`, or `OOM: ...`."""
    if row.get("oom"):
        return str(row["oom"])
    needed: int = row["peak_bytes"]
    if limit is not None and needed > limit:
        return f"OOM: needs {part_text(needed, limit)}"
    return f"{needed / 1e9:.2f} GB"


def _grid(asked: Asked, peaks: Mapping[tuple[str, str], Row]) -> Grid:
    header = ["method", *(title for dataset in asked.datasets for title in (dataset, "paper"))]
    lines = []
    for variant in asked.variants:
        line = [VARIANTS[variant].title + "*"]
        for dataset in asked.datasets:
            row, paper = peaks.get((variant, dataset)), printed(asked.table.name, variant, dataset)
            text = "" if paper is None else paper.text if paper.mean is None else f"{paper.mean:.2f} GB"
            if row is not None and row.get("peak_bytes") and paper is not None and paper.mean is not None:
                text += f", {row['peak_bytes'] / 1e9 / paper.mean:.2f}×"
            absent = asked.why_empty(dataset, [], usual="not measured")
            line += [absent if row is None else peak_text(row, asked.memory_limit), text]
        lines.append(line)
    found = sorted({str(row.get("precision")) for row in peaks.values()})
    precision = f", products in {' and '.join(found)}" if found else ""
    return Grid(header, lines, f"Peak memory of a training step{precision}")


def _made_grid(made: Mapping[str, list[Row]], exponents: Mapping[str, float | None], limit: int | None) -> Grid:
    sizes = sorted({int(row["num_nodes"]) for rows in made.values() for row in rows})
    lines = []
    for variant, rows in made.items():
        by_size = {row["num_nodes"]: row for row in rows}
        exponent = exponents[variant]
        texts = [peak_text(by_size[size], limit) if size in by_size else "" for size in sizes]
        lines.append([VARIANTS[variant].title, *texts, "" if exponent is None else f"N^{exponent:.2f}"])
    header = ["method", *(f"{size:,}" for size in sizes), "grows as"]
    return Grid(header, lines if sizes else [], "Generated graphs of so many nodes")


def _to_csv(rows: Sequence[Row]) -> str:
    names = ("variant", "dataset", "num_nodes", "num_edges", "peak_bytes", "oom", "precision", "device", "hardware")
    lines = []
    for row in rows:
        paper = printed("table-1", row["variant"], row["dataset"])
        size = None if paper is None else paper.mean
        part = round(row["peak_bytes"] / 1e9 / size, 4) if size and row.get("peak_bytes") else None
        lines.append([*(row.get(name) for name in names), size or (paper and paper.text), part])
    return to_csv(["method", *names[1:], "paper_gb", "part_of_paper"], lines)


def plot_memory(
    points: Mapping[str, Sequence[tuple[int, float, bool]]], exponents: Mapping[str, float | None], path: Path
) -> None:
    """Gigabytes over nodes, both logarithmic; by method: (nodes, bytes, whether the graph is a real one)."""
    figure, ((axes,),) = make_panels(1, 1, width=6.4, height=4.4)
    for variant, values in points.items():
        colour, exponent = METHOD_COLOURS.get(variant, "0.4"), exponents.get(variant)
        made = sorted((n, b / 1e9) for n, b, is_real in values if not is_real)
        label = VARIANTS[variant].title + ("" if exponent is None else f": grows as N^{exponent:.2f}")
        axes.plot([n for n, _ in made], [b for _, b in made], color=colour, marker="o", ms=4, label=label)
        real = [(n, b / 1e9) for n, b, is_real in values if is_real]
        axes.scatter([n for n, _ in real], [b for _, b in real], color=colour, marker="*", s=80, zorder=3)
    axes.scatter([], [], color="0.4", marker="*", s=80, label="the paper's graphs")
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="peak memory of a training step, GB")
    axes.legend(frameon=False)
    save_figure(figure, path)
