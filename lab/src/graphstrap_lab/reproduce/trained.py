"""The models of a figure's row, trained together, and what the ledger's rows of all of them share."""

from __future__ import annotations

import time
from collections.abc import Sequence

from graphstrap.api.ensemble import fit_seeds
from graphstrap.api.estimator import Embedder
from graphstrap.graph import Graph
from graphstrap.ops import resolve_device
from graphstrap.ops.memory import free_memory
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.memory import PeakMemory
from graphstrap_lab.reproduce.cells import identity_of, where_from
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.memory import refusal
from graphstrap_lab.reproduce.run import Filling
from graphstrap_lab.reproduce.variants import changed_settings, name_in_ledger


def train_row(
    graph: Graph, variant: str, recipe: Recipe, how: Filling, *, settings: str, seeds: Sequence[int]
) -> tuple[Row, list[Embedder]]:
    """No models, and why in the row, where one would not fit."""
    device = resolve_device(how.device)
    shared: Row = {
        "dataset": graph.name,
        "graph": identity_of(graph),
        "variant": name_in_ledger(variant),
        "settings": settings,
        "recipe": changed_settings(recipe),
        "quick": how.quick,
        "memory_limit": how.memory_limit,
        **where_from(device),
    }
    limit = how.memory_limit if how.memory_limit is not None else free_memory(device)
    refused = refusal(graph, recipe, limit=limit, on_cpu=device.type == "cpu")
    if refused is not None:
        return {**shared, "oom": refused, "free_bytes": free_memory(device)}, []
    started = time.perf_counter()
    with PeakMemory(device) as memory:
        fitted = fit_seeds(Embedder(recipe=recipe, device=str(device)), graph, seeds=seeds, progress=how.progress)
    seconds = round((time.perf_counter() - started) / len(seeds), 3)
    return {**shared, "train_seconds": seconds, "peak_bytes": memory.peak_bytes}, fitted
