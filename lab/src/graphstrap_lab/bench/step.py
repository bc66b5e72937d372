"""`graphstrap bench step`: time and peak memory of one training step, ours against plain PyG.

Both sides train on the same graph by the same recipe, in one process and in turn; a row gives the median over rounds
and the distance between the quartiles. Both run under the thread settings that `graphstrap fit` makes. The memory
allocator is told to keep what is freed for our steps alone: a plain program gives it no such advice.

Each side is started on a device with its own copy of the data that it needs, and is then a function from a step's
number to its loss. Ours needs the graph's CSR and its features as they are stored, sparse or dense; plain PyG an int64
edge list and dense float32 features.

Memory is each side's alone: its copy of the graph, weights, optimiser state and all that three steps need beside them.
On CUDA that is the peak of PyTorch's allocator, measured before anything is timed; on a CPU the extra resident memory
of a fresh process that has already taken one step on a tiny graph, so that libraries are loaded and do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn import methods
from graphstrap.nn.methods import Method
from graphstrap.ops.memory import keep_freed_memory, release_freed_memory
from graphstrap.ops.precision import computing_in, resolve_precision
from graphstrap.run.recipe import Recipe
from graphstrap.train.loop import make_step
from graphstrap_lab.bench.graphs import load_with_recipe, tiny_graph_like
from graphstrap_lab.bench.measure import Call, PeakMemory, run_in_child, time_in_turn

TakeStep = Callable[[int], object]
Start = Callable[[torch.device], TakeStep]

MEMORY_STEPS = 3


def compare_steps(
    name: str, *, device: torch.device, rounds: int, precision: str | None = None, baseline_tf32: bool = False
) -> dict[str, Any]:
    """One row of the comparison."""
    graph, recipe = load_with_recipe(name, precision=precision)
    starts = {"ours": ours(graph, recipe), "baseline": plain_pyg(graph, recipe, allow_tf32=baseline_tf32)}
    if device.type == "cuda":
        memory = {side: peak_of_steps(start, device) for side, start in starts.items()}
    else:
        memory = {side: run_in_child(memory_on_cpu, side=side, name=name, precision=precision) for side in starts}
    calls = {side: _counting(start(device), recipe) for side, start in starts.items()}
    times = time_in_turn(calls, rounds=rounds, device=device)
    mine, theirs = times["ours"], times["baseline"]
    row: dict[str, Any] = {
        "dataset": name,
        "device": device.type,
        "ours_ms": mine.median_ms,
        "baseline_ms": theirs.median_ms,
        "speedup": theirs.median_ms / mine.median_ms,
        "ours_bytes": memory["ours"]["peak_bytes"],
        "baseline_bytes": memory["baseline"]["peak_bytes"],
        "ours_ms_iqr": mine.iqr_ms,
        "baseline_ms_iqr": theirs.iqr_ms,
        "rounds": rounds,
    }
    for side, found in memory.items():
        if found["reserved_bytes"] is not None:
            row[f"{side}_reserved_bytes"] = found["reserved_bytes"]
    return row | {
        "precision": resolve_precision(recipe.train.precision, device),
        "baseline_precision": "tf32" if baseline_tf32 else "fp32",
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features[0],
        "hidden_sizes": list(recipe.encoder.hidden_sizes),
        "embedding_size": recipe.encoder.embedding_size,
        "predictor_hidden_size": recipe.method.predictor_hidden_size,
        "edge_drop_probs": list(recipe.views.edge_drop_probs),
        "feature_mask_probs": list(recipe.views.feature_mask_probs),
    }


def memory_on_cpu(*, side: str, name: str, precision: str | None) -> dict[str, Any]:
    """For a fresh process."""
    cpu, make = torch.device("cpu"), {"ours": ours, "baseline": plain_pyg}[side]
    graph, recipe = load_with_recipe(name, precision=precision)
    make(tiny_graph_like(graph), recipe)(cpu)(1)
    return peak_of_steps(make(graph, recipe), cpu)


def peak_of_steps(start: Start, device: torch.device) -> dict[str, Any]:
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


def ours(graph: Graph, recipe: Recipe) -> Start:
    """The step that `graphstrap fit` takes."""

    def start(device: torch.device) -> TakeStep:
        keep_freed_memory()
        read = replace(graph, outgoing=None, labels=None, splits=None)  # what training reads, in new memory
        copied = read.map(lambda tensor: tensor.to(device, copy=True))
        step = make_step(build_method(graph, recipe, device=device), copied, recipe=recipe, seed=0)

        def take_step(number: int) -> object:
            keep_freed_memory()
            return step(number)

        return take_step

    return start


def plain_pyg(graph: Graph, recipe: Recipe, *, allow_tf32: bool = False) -> Start:
    """The baseline, in float32 as PyTorch computes unless it is told otherwise; in TF32 where that is asked for."""
    from graphstrap_lab.bench.plain_pyg import PlainStep

    check_comparable(graph, recipe)
    x = graph.x.to_dense() if isinstance(graph.x, SparseMatrix) else graph.x
    assert x is not None
    edge_index = torch.stack([graph.indices.long(), graph.targets])

    def start(device: torch.device) -> TakeStep:
        plain_step = PlainStep(x.to(device, copy=True), edge_index.to(device, copy=True), recipe=recipe)

        def take_step(step: int) -> Tensor:
            release_freed_memory()
            with computing_in("tf32" if allow_tf32 else "fp32", device):
                return plain_step(step)

        return take_step

    return start


def check_comparable(graph: Graph, recipe: Recipe) -> None:
    """The baseline is the paper's BGRL and no more."""
    encoder, views = recipe.encoder, recipe.views
    if len(graph.features) != 1 or graph.edge_weights is not None:
        raise InputError(f"{graph.name} has several node types or edge weights: the plain PyG step knows neither")
    if encoder.norm != "batch" or encoder.weight_standardization or recipe.method.projector_size:
        raise InputError(f"recipe {recipe.name}: the plain PyG step knows batch norm alone, and no projector")
    if views.mask_elements or views.drop_directions_together:
        raise InputError(f"recipe {recipe.name}: the plain PyG step masks columns and drops directions one by one")


def build_method(graph: Graph, recipe: Recipe, *, device: torch.device) -> Method:
    method: Method = methods.build_method(recipe, input_sizes=graph.num_features, seed=0)
    return method.to(device)


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
