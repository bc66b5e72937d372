"""How good the frozen embeddings are while they are learned: the paper's figure 2, on PPI.

A probe is fitted on what the encoder, as if training ended there, makes of the graph: at twenty points of the way, by
the quick protocol that `train.evaluate_every` has (micro-F1 by AdamW where nodes have several labels, accuracy on one
random split of `paper` elsewhere). Training is that of the tables: GATs have the settings of `entropies.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.run.recipe import Recipe
from graphstrap_lab.reproduce.entropies import entropy_recipe
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.run import Filling, Work
from graphstrap_lab.reproduce.trained import train_row
from graphstrap_lab.reproduce.variants import VARIANTS, recipe_of, settings_digest

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
    """A row of the ledger for each seed; its seconds are those of training and of the probes."""
    recipe = learning_recipe(variant, graph.name, quick=how.quick)
    settings = learning_settings(variant, graph.name, how.quick)
    shared, fitted = train_row(graph, variant, recipe, how, settings=settings, seeds=seeds)
    if not fitted:
        return [{**shared, "seed": seed} for seed in seeds]
    return [{**shared, "seed": one.seed, **_course(one.metrics_)} for one in fitted]


def _course(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was found at each point, and what it is called; nothing on a graph without labels."""
    for logged, name in METRICS.items():
        points = [record for record in records if logged in record]
        if points:
            values = [round(record[logged], 4) for record in points]
            return {"metric": name, "curve": {"step": [record["step"] for record in points], "accuracy": values}}
    return {}


LEARNING = Work(load=lambda name, how: load(name), settings=learning_settings, compute=compute_learning)
