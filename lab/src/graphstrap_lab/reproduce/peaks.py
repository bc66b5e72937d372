"""Table 1 and its scatter plot: the peak memory of a training step, GRACE's against BGRL's.

On the paper's graphs by each row's recipe, and on generated graphs that double, where both have the same narrow
layers: GRACE's memory should grow as N^2 and BGRL's as N. Counted are the graph, the features, the weights, the
optimiser's state and all that three steps need beside them: on CUDA the peak of PyTorch's allocator, on a CPU the extra
resident memory of a fresh process that has loaded the libraries. A step that is not going to fit is not tried; its cell
gives the estimate instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.nn.features import FeatureTransform
from graphstrap.ops import resolve_device
from graphstrap.ops.memory import free_memory
from graphstrap.ops.precision import resolve_precision
from graphstrap.run.recipe import ENCODERS, METHODS, DataRecipe, Recipe
from graphstrap_lab.bench.child import run_in_child
from graphstrap_lab.bench.graphs import power_law_graph
from graphstrap_lab.bench.memory import PeakMemory
from graphstrap_lab.bench.scale import is_out_of_memory, log_slope
from graphstrap_lab.bench.sides import ours
from graphstrap_lab.reproduce.cells import where_from
from graphstrap_lab.reproduce.deadline import TimeUpError
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.memory import as_published, refusal, still_stands
from graphstrap_lab.reproduce.run import Filling
from graphstrap_lab.reproduce.variants import base_of, changed_settings, flat, recipe_of, settings_digest

GENERATED = "generated-"
MOST_NODES = {"grace": 32_000, "bgrl": 1_024_000}
QUICK_NODES = {"grace": 8_000, "bgrl": 64_000}
QUICK_LIMIT = 6 * 10**9
_NUM_FEATURES = 64
_NUM_STEPS = 3
_FITTED_SIZES = 4  # exponents are those of the largest sizes, where what does not grow no longer counts


def sizes_of(variant: str, *, quick: bool) -> list[int]:
    """Nodes of the generated graphs: from a thousand up, doubling."""
    most = (QUICK_NODES if quick else MOST_NODES)[variant]
    return [1000 * 2**power for power in range(most.bit_length()) if 1000 * 2**power <= most]


def fill_peaks(ledger: Ledger, how: Filling, *, variants: Sequence[str], datasets: Sequence[str]) -> None:
    """Measure what the ledger lacks for this device."""
    try:
        with how.deadline.enforced():
            for variant in variants:
                made = [f"{GENERATED}{size}" for size in sizes_of(variant, quick=how.quick)]
                for dataset in [*datasets, *made]:
                    _fill_cell(ledger, how, dataset, variant)
    except TimeUpError:
        how.note("stopped: the time is up; the same command goes on from here")


def _fill_cell(ledger: Ledger, how: Filling, dataset: str, variant: str) -> None:
    device = resolve_device(how.device)
    found = find_peak(ledger, dataset, variant, device=device.type, memory_limit=_limit(how))
    if (
        found is not None
        and not how.again
        and (not found.get("oom") or still_stands(found, limit=_limit(how), free=free_memory(device)))
    ):
        return
    try:
        graph = make_graph(dataset)
    except InputError as error:
        how.note(f"{dataset}: not at hand: {error}")
        return
    how.note(f"{dataset}: memory of {variant}")
    try:
        ledger.add([measure_peak(graph, variant, how, device)])
    except (InputError, RuntimeError, ValueError) as error:
        how.warn(f"{dataset}: memory of {variant}: failed: {' '.join(str(error).split())[:300]}")


def measure_peak(graph: Graph, variant: str, how: Filling, device: torch.device) -> Row:
    """A row of the ledger."""
    recipe, limit = peak_recipe(variant, graph.name), _limit(how)
    row: Row = {
        "dataset": graph.name,
        "variant": variant,
        "settings": peak_settings(variant, graph.name, device=device.type),
        "seed": 0,
        "recipe": changed_settings(recipe),
        "precision": resolve_precision(recipe.train.precision, device),
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "memory_limit": limit,
        **where_from(device),
    }
    most = limit if limit is not None else free_memory(device)
    refused = refusal(graph, recipe, limit=most, on_cpu=device.type == "cpu")
    if refused is not None:
        return {**row, "oom": refused, "free_bytes": free_memory(device)}
    if device.type != "cuda":
        function, arguments = "graphstrap_lab.reproduce.peaks:peak_on_cpu", {"dataset": graph.name, "variant": variant}
        return {**row, **run_in_child(function, arguments)}
    try:
        return {**row, **_take_steps(graph, recipe, device)}
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return {**row, "oom": "OOM", "free_bytes": free_memory(device)}


def peak_on_cpu(*, dataset: str, variant: str) -> dict[str, Any]:
    """For a fresh process, in which a tiny graph loads the libraries first."""
    cpu, graph, recipe = torch.device("cpu"), make_graph(dataset), peak_recipe(variant, dataset)
    tiny = power_law_graph(64, num_features=graph.num_features[0], seed=0, device=cpu)
    _take_steps(tiny, recipe, cpu)
    return _take_steps(graph, recipe, cpu)


def _take_steps(graph: Graph, recipe: Recipe, device: torch.device) -> dict[str, Any]:
    data = recipe.data
    transform = FeatureTransform.fit(graph, scaling=data.feature_scaling, structural_size=data.structural_size)
    prepared = transform(graph).with_readable_features()
    with PeakMemory(device) as memory:
        take_step = ours(prepared, recipe)(device)
        for step in range(1, _NUM_STEPS + 1):
            take_step(step)
    return {"peak_bytes": memory.peak_bytes, "reserved_bytes": memory.reserved_bytes}


def make_graph(dataset: str) -> Graph:
    """A dataset by name, or a generated graph of so many nodes, 16 edges each, with hubs."""
    if not dataset.startswith(GENERATED):
        return load(dataset)
    size = int(dataset.removeprefix(GENERATED))
    graph = power_law_graph(size, num_features=_NUM_FEATURES, seed=0, device=torch.device("cpu"))
    return replace(graph, name=dataset)


def peak_recipe(variant: str, dataset: str) -> Recipe:
    """The row's recipe on a graph of the paper; on a generated one narrow layers, the same for every method. GRACE is
    measured as its own code computes it: similarities are kept, and there is no batch norm, which it has in table 3 on
    Computers."""
    if not dataset.startswith(GENERATED):
        return as_published(recipe_of("gca-standard" if variant == "grace" else variant, dataset))
    recipe = Recipe(
        name="generated",
        data=DataRecipe(feature_scaling="none"),
        encoder=ENCODERS.get("gcn").Settings(hidden_sizes=(64,), embedding_size=64),
        method=METHODS.get("bgrl").Settings(predictor_hidden_size=64),
    )
    return as_published(recipe.with_settings({"method.name": variant}))


def _digest(variant: str, dataset: str) -> str:
    """Of the row's settings; with those of other methods that a recipe of version 0.1 had too."""
    also: dict[str, Any] = {"method.keep_similarities": True, "method.predictor_hidden_size": 64}
    if not dataset.startswith(GENERATED):
        also |= flat(base_of("gca-standard" if variant == "grace" else variant, dataset))
    return settings_digest(peak_recipe(variant, dataset), "memory", also=also)


def peak_settings(variant: str, dataset: str, *, device: str) -> str:
    return f"memory-{device}-{_digest(variant, dataset)}"


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


def _limit(how: Filling) -> int | None:
    return how.memory_limit if how.memory_limit is not None or not how.quick else QUICK_LIMIT
