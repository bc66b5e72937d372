"""`graphstrap bench step`: time and peak memory of one training step, ours against plain PyG.

Both sides train on the same graph by the same recipe, in one process and in turn; a row gives the median over rounds
and the distance between the quartiles. Both run under the thread settings that `graphstrap fit` makes. The memory
allocator is told to keep what is freed for our steps alone: a plain program gives it no such advice.

Memory is each side's alone: its copy of the graph (see `graphstrap.bench.sides`), weights, optimiser state and all that
three steps need beside them. On CUDA that is the peak of PyTorch's allocator, measured before anything is timed; on a
CPU the extra resident memory of a fresh process that has already taken one step on a tiny graph, so that libraries are
loaded and do not count.
"""

from __future__ import annotations

from typing import Any

import torch

from graphstrap.graph import Graph
from graphstrap.ops.precision import resolve_precision
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.child import run_in_child
from graphstrap_lab.bench.graphs import load_with_recipe, power_law_graph
from graphstrap_lab.bench.memory import PeakMemory
from graphstrap_lab.bench.sides import Start, TakeStep, ours, plain_pyg
from graphstrap_lab.bench.timing import Call, Timing, time_in_turn

MEMORY_STEPS = 3


def compare_steps(
    name: str, *, device: torch.device, rounds: int, precision: str | None = None, baseline_tf32: bool = False
) -> dict[str, Any]:
    """One row of the comparison."""
    graph, recipe = load_with_recipe(name, precision=precision)
    starts = {"ours": ours(graph, recipe), "baseline": plain_pyg(graph, recipe, allow_tf32=baseline_tf32)}
    if device.type == "cuda":
        memory = {side: _memory(start, device) for side, start in starts.items()}
    else:
        function, arguments = "graphstrap_lab.bench.step:memory_on_cpu", {"name": name, "precision": precision}
        memory = {side: run_in_child(function, {"side": side, **arguments}) for side in starts}
    calls = {side: _counting(start(device), recipe) for side, start in starts.items()}
    times = time_in_turn(calls, rounds=rounds, device=device)
    return {
        "dataset": name,
        "device": device.type,
        **_summary(times, memory),
        "precision": resolve_precision(recipe.train.precision, device),
        "baseline_precision": "tf32" if baseline_tf32 else "fp32",
        **describe_work(graph, recipe),
    }


def memory_on_cpu(*, side: str, name: str, precision: str | None) -> dict[str, Any]:
    """For a fresh process."""
    cpu, make = torch.device("cpu"), {"ours": ours, "baseline": plain_pyg}[side]
    graph, recipe = load_with_recipe(name, precision=precision)
    tiny = power_law_graph(64, num_features=graph.num_features[0], seed=0, device=cpu)
    make(tiny, recipe)(cpu)(1)
    return _memory(make(graph, recipe), cpu)


def _memory(start: Start, device: torch.device) -> dict[str, Any]:
    """`peak_bytes` and, on CUDA, `reserved_bytes` of a side that is started and takes three steps."""
    with PeakMemory(device) as memory:
        take_step = start(device)
        for step in range(1, MEMORY_STEPS + 1):
            take_step(step)
    return {"peak_bytes": memory.peak_bytes, "reserved_bytes": memory.reserved_bytes}


def _counting(take_step: TakeStep, recipe: Recipe) -> Call:
    """The steps of a run one after the other, from the first again when it is over."""
    step = 0

    def call() -> object:
        nonlocal step
        step = step % recipe.train.steps + 1
        return take_step(step)

    return call


def _summary(times: dict[str, Timing], memory: dict[str, dict[str, Any]]) -> dict[str, Any]:
    mine, theirs = times["ours"], times["baseline"]
    row: dict[str, Any] = {
        "ours_ms": mine.median_ms,
        "baseline_ms": theirs.median_ms,
        "speedup": theirs.median_ms / mine.median_ms,
        "ours_bytes": memory["ours"]["peak_bytes"],
        "baseline_bytes": memory["baseline"]["peak_bytes"],
        "ours_ms_iqr": mine.iqr_ms,
        "baseline_ms_iqr": theirs.iqr_ms,
        "rounds": len(mine.rounds_ms),
    }
    for side, found in memory.items():
        if found["reserved_bytes"] is not None:
            row[f"{side}_reserved_bytes"] = found["reserved_bytes"]
    return row


def describe_work(graph: Graph, recipe: Recipe) -> dict[str, Any]:
    """What was trained on what, for a reader of the row."""
    return {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features[0],
        "hidden_sizes": list(recipe.encoder.hidden_sizes),
        "embedding_size": recipe.encoder.embedding_size,
        "predictor_hidden_size": recipe.method.predictor_hidden_size,
        "edge_drop_probs": list(recipe.views.edge_drop_probs),
        "feature_mask_probs": list(recipe.views.feature_mask_probs),
    }
