"""The models of a figure's row, trained together, and what the ledger's rows of all of them share."""

from __future__ import annotations

import time
from collections.abc import Sequence

from graphstrap.bench.memory import PeakMemory
from graphstrap.estimator import BGRL
from graphstrap.free_memory import free_memory
from graphstrap.graph import Graph
from graphstrap.ops import resolve_device
from graphstrap.recipe import Recipe
from graphstrap.reproduce.cells import identity_of, where_from
from graphstrap.reproduce.ledger import Row
from graphstrap.reproduce.memory import refusal
from graphstrap.reproduce.run import Filling
from graphstrap.reproduce.variants import changed_settings, name_in_ledger
from graphstrap.seeds import fit_seeds


def train_row(
    graph: Graph, variant: str, recipe: Recipe, how: Filling, *, settings: str, seeds: Sequence[int]
) -> tuple[Row, list[BGRL]]:
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
        fitted = fit_seeds(BGRL(recipe=recipe, device=str(device)), graph, seeds=seeds, progress=how.progress)
    seconds = round((time.perf_counter() - started) / len(seeds), 3)
    return {**shared, "train_seconds": seconds, "peak_bytes": memory.peak_bytes}, fitted
