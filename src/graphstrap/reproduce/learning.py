"""How good the frozen embeddings are while they are learned: the paper's figure 2, on PPI.

A probe is fitted on what the encoder, as if training ended there, makes of the graph: at twenty points of the way, by
the quick protocol that `train.evaluate_every` has (micro-F1 by AdamW where nodes have several labels, accuracy on one
random split of `paper` elsewhere). Training is that of the tables: GATs have the settings of `entropies.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from graphstrap.bench.memory import PeakMemory
from graphstrap.datasets import load
from graphstrap.estimator import BGRL
from graphstrap.free_memory import free_memory
from graphstrap.graph import Graph
from graphstrap.ops import resolve_device
from graphstrap.recipe import Recipe
from graphstrap.reproduce.cells import where_from
from graphstrap.reproduce.entropies import entropy_recipe
from graphstrap.reproduce.ledger import Row
from graphstrap.reproduce.memory import refusal
from graphstrap.reproduce.run import Filling, Work
from graphstrap.reproduce.variants import VARIANTS, changed_settings, recipe_of, settings_digest
from graphstrap.seeds import fit_seeds

NUM_POINTS = 20
METRICS = {"micro_f1": "micro-F1", "accuracy": "accuracy"}  # as training logs them, and as they are called


def learning_recipe(variant: str, dataset: str, *, quick: bool = False) -> Recipe:
    """The row's, evaluated on the way."""
    make = entropy_recipe if VARIANTS[variant].encoder == "gat" else recipe_of
    recipe = make(variant, dataset, quick=quick)
    every = max(1, recipe.train.steps // NUM_POINTS)
    return recipe.with_settings({"train.evaluate_every": every, "train.log_every": every})


def learning_settings(variant: str, dataset: str, quick: bool) -> str:
    digest = settings_digest(learning_recipe(variant, dataset, quick=quick), "learning")
    return f"{'quick-' if quick else ''}learning-{digest}"


def compute_learning(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
    """A row of the ledger for each seed."""
    device, recipe = resolve_device(how.device), learning_recipe(variant, graph.name, quick=how.quick)
    shared: Row = {
        "dataset": graph.name,
        "variant": variant,
        "settings": learning_settings(variant, graph.name, how.quick),
        "recipe": changed_settings(recipe),
        "quick": how.quick,
        "memory_limit": how.memory_limit,
        **where_from(device),
    }
    limit = how.memory_limit if how.memory_limit is not None else free_memory(device)
    refused = refusal(graph, recipe, limit=limit, on_cpu=device.type == "cpu")
    if refused is not None:
        return [{**shared, "seed": seed, "oom": refused} for seed in seeds]
    started = time.perf_counter()
    with PeakMemory(device) as memory:
        fitted = fit_seeds(BGRL(recipe=recipe, device=str(device)), graph, seeds=seeds, progress=how.progress)
    seconds = round((time.perf_counter() - started) / len(seeds), 3)  # with the probes
    return [
        {**shared, "seed": one.seed, **_course(one.metrics_), "train_seconds": seconds, "peak_bytes": memory.peak_bytes}
        for one in fitted
    ]


def _course(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was found at each point, and what it is called; nothing on a graph without labels."""
    for logged, name in METRICS.items():
        points = [record for record in records if logged in record]
        if points:
            values = [round(record[logged], 4) for record in points]
            return {"metric": name, "curve": {"step": [record["step"] for record in points], "accuracy": values}}
    return {}


LEARNING = Work(load=lambda name, how: load(name), settings=learning_settings, compute=compute_learning)
