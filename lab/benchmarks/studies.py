"""The candidates of the studies in `tune.py`, and what is found of the models that were trained by them.

All were written down before any was trained. A study has a function that gives the candidates for a graph, as recipes
by name, and one that gives what is to be noted of the models of a candidate, one for each seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import graphstrap as gs
from graphstrap.api.embed import embed_seeds
from graphstrap.evaluation.protocols import probe_runs
from graphstrap.evaluation.task import Task, tenths
from graphstrap.graph import Graph
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.features import FeatureTransform
from graphstrap.nn.methods.bgrl import BGRL
from graphstrap.nn.methods.instant import HopColumns
from graphstrap.run.defaults import choose_recipe
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.reproduce.blind import tuning_scores
from graphstrap_lab.reproduce.mag import SYNTHETIC_STEPS, mag_recipe
from graphstrap_lab.reproduce.variants import recipe_of
from harness import Row

Models = Sequence[gs.Embedder]
Settings = dict[str, Any]


def validation_scores(embeddings: Sequence[Tensor], graph: Graph, *, num_splits: int) -> list[float]:
    tasks = [Task.of(h, graph, num_runs=num_splits) for h in embeddings]
    splits = [task.random_splits(tenths) for task in tasks]
    blind = [[split._replace(test=split.val) for split in own] for own in splits]
    return [round(100.0 * float(np.mean(runs)), 4) for runs in probe_runs(tasks, blind)]


def scored(tables: Sequence[dict[str, Tensor]], score: Callable[[list[Tensor]], list[float]]) -> list[dict[str, float]]:
    """The score of each kind of table of each model, all worked out together."""
    values = iter(score([table for own in tables for table in own.values()]))
    return [{kind: next(values) for kind in own} for own in tables]


def of_embeddings(score: Callable[[list[Tensor], Graph], list[float]]) -> Callable[..., list[Row]]:
    """The score of each model's embedding as it is."""

    def found(graph: Graph, models: Models, device: torch.device) -> list[Row]:
        embeddings = embed_seeds([model.model_ for model in models], graph, device=device)
        return [{"validation": value} for value in score(embeddings, graph)]

    return found


def views(mask: float, drop: float) -> Settings:
    return {"views.feature_mask_probs": [mask, mask], "views.edge_drop_probs": [drop, drop]}


@lru_cache(maxsize=1)
def own_columns(graph: Graph, recipe: Recipe) -> Tensor:
    """512 columns of its nodes' own features, compressed: leading ones first."""
    data = recipe.data
    transform = FeatureTransform.fit(graph, scaling=data.feature_scaling, structural_size=data.structural_size)
    prepared = transform(graph)
    own: Tensor = HopColumns(prepared.num_features, num_columns=512, num_hops=0).fit(prepared)(prepared)
    return own


# ---- best

# A fifth of the paper's steps at a higher rate, batch-norm statistics of the clean graph; then what differs further.
SHARED = {
    "train.steps": 2000,
    "train.warmup_steps": 200,
    "train.learning_rate": 1e-3,
    "encoder.batch_norm_statistics": "recalibrated",
}
LONGER = {"train.steps": 5000, "train.warmup_steps": 500}
STRONG = views(0.5, 0.5)
WAYS: dict[str, Settings] = {
    "paper's views": {},
    "paper's views, neighbours": {"method.target_hops": 1},
    "paper's views, 5000 steps": LONGER,
    "strong views": STRONG,
    "mask 0.5, drop 0.25": views(0.5, 0.25),
    "mask 0.25, drop 0.5": views(0.25, 0.5),
    "strong views, neighbours": {**STRONG, "method.target_hops": 1},
    "strong views, wide": {**STRONG, "encoder.hidden_sizes": [1024], "encoder.embedding_size": 512},
    "strong views, one layer": {**STRONG, "encoder.hidden_sizes": [], "encoder.embedding_size": 512},
    "strong views, rate 0.005": {**STRONG, "train.learning_rate": 5e-3},
    "strong views, 5000 steps": {**STRONG, **LONGER},
}


def best_candidates(graph: Graph) -> dict[str, Recipe]:
    return {way: best_recipe(graph.name, way) for way in WAYS}


def best_recipe(graph: str, way: str) -> Recipe:
    return load_recipe(graph).with_settings({**SHARED, **WAYS[way]})


def best_scores(graph: Graph, models: Models, device: torch.device) -> list[Row]:
    """Of each network's embedding, alone and beside so many columns of own features."""
    prepared = models[0].model_.transform(graph).to(device).with_readable_features()
    own = own_columns(graph, load_recipe(graph.name)).to(device)
    tables: list[dict[str, Tensor]] = []
    for model in models:
        method = model.model_.method
        assert isinstance(method, BGRL)
        tables.append({})
        for method.embed_with in ("online", "target"):
            recalibrate_batch_norm(method.frozen, [prepared])
            h = F.normalize(method.embed(prepared).float())
            for size in (0, 128, 512):
                beside = F.normalize(own[:, :size])
                tables[-1][f"{method.embed_with}, own {size}"] = torch.cat([h, beside], dim=1)
    return [{"validation": values} for values in scored(tables, partial(tuning_scores, graph=graph))]


# ---- GRACE, MAG, small sets

WIDE = {"encoder.hidden_sizes": (512,), "encoder.embedding_size": 256}
GRACE: dict[str, Settings] = {
    "as in its authors' next paper": {},
    "rate 0.001": {"train.learning_rate": 1e-3},
    "batch norm": {"encoder.norm": "batch"},
    "batch norm, rate 0.001": {"encoder.norm": "batch", "train.learning_rate": 1e-3},
    "twice as wide": WIDE,
    "twice as wide, rate 0.001": {**WIDE, "train.learning_rate": 1e-3},
    "temperature 0.4": {"method.temperature": 0.4},
}
MAG_ROWS = {"bgrl": "mag-bgrl-0", "grace": "mag-grace-256"}
MAG = [  # target decay and weight
    *[("bgrl", *pair) for pair in ((0.999, 1.0), (0.99, 1.0), (0.9, 1.0), (0.99, 5.0), (0.9, 5.0), (0.99, 20.0))],
    *[("grace", *pair) for pair in ((0.999, 1.0), (0.999, 5.0))],
]
SMALL_SIZES = {"one layer": ([], 512), "two layers": ([512], 256)}  # hidden sizes, embedding size


def grace_candidates(graph: Graph) -> dict[str, Recipe]:
    """The last is what the paper says of all its own models: batch norm, 10,000 steps, its views for BGRL."""
    row, own = recipe_of("grace", graph.name).with_settings({"encoder.norm": "none"}), load_recipe(graph.name)
    method = {f"method.{name}": getattr(row.method, name) for name in ("name", "temperature")}
    return {
        **{label: row.with_settings(settings) for label, settings in GRACE.items()},
        "as BGRL in the paper": own.with_settings({**method, "method.projector_size": own.encoder.embedding_size}),
    }


def mag_candidates(graph: Graph) -> dict[str, Recipe]:
    found, steps = {}, SYNTHETIC_STEPS // 2
    for auxiliary, decay, weight in MAG:
        settings = {"method.target_decay": decay, "method.auxiliary_weight": weight, "train.steps": steps}
        settings |= {"train.warmup_steps": steps // 10, "train.log_every": steps, "train.evaluate_every": steps}
        recipe = mag_recipe(MAG_ROWS[auxiliary], graph.name).with_settings(settings)
        found[f"{auxiliary}, decay {decay}, weight {weight}"] = recipe
    return found


def mag_scores(graph: Graph, models: Models, device: torch.device) -> list[Row]:
    last = [model.metrics_[-1] for model in models]
    return [{"loss": round(one["loss"], 4), "validation": round(one["accuracy"], 4), "synthetic": True} for one in last]


def small_candidates(graph: Graph) -> dict[str, Recipe]:
    base, found = choose_recipe(graph)[0], {}
    for (layers, (hidden, size)), mask, drop in product(SMALL_SIZES.items(), (0.25, 0.5, 0.75), (0.25, 0.5, 0.75)):
        widths = {"encoder.hidden_sizes": hidden, "encoder.embedding_size": size, "method.predictor_hidden_size": size}
        settings = {**views(mask, drop), **widths, "train.steps": 400, "train.warmup_steps": 40}
        found[f"{layers}, mask {mask}, drop {drop}"] = base.with_settings(settings)
    return found
