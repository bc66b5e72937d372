"""`graphstrap bench scale`: full-graph step time and memory while the graph doubles, until it no longer fits.

Graphs have 16 directed edges a node and hubs (see `graphs.power_law_graph`), and are made where they are trained.
Memory counts the graph, the features, the model and all that a step needs, but not what making the graph takes for a
moment. On a CPU each size is measured by a process of its own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from graphstrap.ops.memory import free_memory, keep_freed_memory
from graphstrap.run.recipe import Recipe
from graphstrap.train.loop import make_step
from graphstrap_lab.bench.graphs import power_law_graph, precision_settings, recipe_of_sizes
from graphstrap_lab.bench.measure import PeakMemory, is_out_of_memory, run_in_child, time_in_turn
from graphstrap_lab.bench.step import build_method

FIRST_NODES = 10_000
SLOPE_FROM = 100_000
_ROUND_SECONDS = 0.1


@dataclass(frozen=True)
class ScaleSettings:
    """The widths of the model and of the features."""

    num_features: int = 128
    hidden_size: int = 256
    embedding_size: int = 128
    predictor_hidden_size: int = 512
    precision: str | None = None
    rounds: int = 5

    def recipe(self) -> Recipe:
        sizes = (self.hidden_size, self.embedding_size, self.predictor_hidden_size)
        return recipe_of_sizes(*sizes).with_settings(precision_settings(self.precision))


def measure_growth(
    settings: ScaleSettings,
    *,
    device: torch.device,
    max_nodes: int | None = None,
    max_bytes: int | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Rows for 10, 20, 40 ... thousand nodes, up to `max_nodes`, to the memory there is, or to `max_bytes` of it."""
    limit = max_bytes if max_bytes is not None or device.type == "cuda" else free_memory(device) * 9 // 10
    num_nodes, expected_bytes = FIRST_NODES, 0
    while max_nodes is None or num_nodes <= max_nodes:
        if limit is not None and expected_bytes > limit:
            note(f"stopped: {num_nodes:,} nodes would take about {expected_bytes:,} bytes, and {limit:,} are allowed")
            return
        try:
            row = measure_size(num_nodes, settings, device=device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            note(f"stopped: {num_nodes:,} nodes do not fit")
            return
        yield row
        num_nodes, expected_bytes = 2 * num_nodes, 2 * row["peak_bytes"]


def measure_size(num_nodes: int, settings: ScaleSettings, *, device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        return _measure(num_nodes, settings, device=device)
    return run_in_child(measure_on_cpu, num_nodes=num_nodes, **asdict(settings))


def measure_on_cpu(*, num_nodes: int, **settings: Any) -> dict[str, Any]:
    """For a fresh process, in which a tiny graph loads the libraries first."""
    cpu, chosen = torch.device("cpu"), ScaleSettings(**settings)
    _measure(64, chosen, device=cpu)
    return _measure(num_nodes, chosen, device=cpu)


def _measure(num_nodes: int, settings: ScaleSettings, *, device: torch.device) -> dict[str, Any]:
    recipe = settings.recipe()
    keep_freed_memory()
    with PeakMemory(device) as memory:
        graph = power_law_graph(num_nodes, num_features=settings.num_features, seed=0, device=device)
        num_edges = graph.num_edges
        memory.forget_peak()
        take_step = make_step(build_method(graph, recipe, device=device), graph, recipe=recipe, seed=0)
        timing = time_in_turn(
            {"step": lambda: take_step(1)}, rounds=settings.rounds, device=device, round_seconds=_ROUND_SECONDS
        )["step"]
    return {
        "num_nodes": num_nodes,
        "num_edges": num_edges,
        "device": device.type,
        "step_ms": timing.median_ms,
        "step_ms_iqr": timing.iqr_ms,
        "peak_bytes": memory.peak_bytes,
        "reserved_bytes": memory.reserved_bytes,
    }


def fit_slopes(rows: list[dict[str, Any]], *, from_nodes: int = SLOPE_FROM) -> dict[str, float | None]:
    """The powers of N by which time and memory grow; None where fewer than two sizes are that large."""
    large = [row for row in rows if row["num_nodes"] >= from_nodes]
    sizes = [row["num_nodes"] for row in large]
    return {
        "time": log_slope(sizes, [row["step_ms"] for row in large]),
        "memory": log_slope(sizes, [row["peak_bytes"] for row in large]),
    }


def log_slope(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """The slope of the least-squares line through (log size, log value)."""
    if len(sizes) < 2:
        return None
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(value) for value in values]).slope
