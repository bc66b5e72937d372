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
from graphstrap.graph import CLEAN, Graph
from graphstrap.graph.blocks import dense, is_bag, sample_rows, take_rows
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.features import FeatureTransform, OwnFeatures
from graphstrap.nn.methods.bgrl import BGRL
from graphstrap.ops import propagate
from graphstrap.run.defaults import Statistics, choose_recipe
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap.train.log import describe_moments, embedding_moments
from graphstrap_lab.reproduce.blind import tuning_scores
from graphstrap_lab.reproduce.mag_cells import SYNTHETIC_STEPS, mag_recipe
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
def own_columns(graph: Graph, recipe: Recipe) -> tuple[Graph, Tensor]:
    """The graph as its encoder takes it, and 512 columns of its nodes' own features, compressed: leading ones first."""
    data = recipe.data
    transform = FeatureTransform.fit(graph, scaling=data.feature_scaling, structural_size=data.structural_size)
    prepared = transform(graph)
    own = OwnFeatures.fit(prepared, num_columns=512)
    return prepared, own.append_to(torch.zeros(graph.num_nodes, 0), prepared)


# ---- default

# Columns of a node's own features, and of features averaged over two hops, appended to the embedding.
APPENDED = {
    "nothing": (0, 0),
    "own 64": (64, 0),
    "own 256": (256, 0),
    "own 512": (512, 0),
    "own 64, hops 64": (64, 64),
}


def default_candidates(graph: Graph) -> dict[str, Recipe]:
    """Changes of the recipe that stood before; masking, dropping and widths are scaled, not replaced."""
    before = {"train.steps": 300, "train.warmup_steps": 30, "train.log_every": 10_000, "encoder.own_features": 0}
    base, num_columns = choose_recipe(graph)[0].with_settings(before), Statistics.of(graph).num_columns
    is_vague = num_columns and (num_columns < 30 or likeness_of_neighbours(graph) < 0.05)
    sizes = {"encoder.hidden_sizes": [2 * size for size in base.encoder.hidden_sizes]}
    sizes["encoder.embedding_size"] = 2 * base.encoder.embedding_size

    def scaled(mask: float, drop: float) -> Settings:
        return {
            "views.feature_mask_probs": [mask * p for p in base.views.feature_mask_probs],
            "views.edge_drop_probs": [drop * p for p in base.views.edge_drop_probs],
        }

    changes: dict[str, Settings] = {
        "as it was": {},
        "mask x 0.5": scaled(0.5, 1.0),
        "mask x 1.5": scaled(1.5, 1.0),
        "drop x 0.5": scaled(1.0, 0.5),
        "drop x 1.5": scaled(1.0, 1.5),
        "mask and drop x 0.5": scaled(0.5, 0.5),
        "mask and drop x 1.5": scaled(1.5, 1.5),
        "1000 steps": {"train.steps": 1000, "train.warmup_steps": 100},
        "rate 0.003": {"train.learning_rate": 3e-3},
        "twice as wide": sizes,
        "one layer": {"encoder.hidden_sizes": []},
        "layer norm": {"encoder.norm": "layer"},
        "structure": {"data.structural_columns": "always"} if is_vague else {},
        "neighbours": {"method.target_hops": 1},
    }
    return {label: base.with_settings(change) for label, change in changes.items()}


@lru_cache(maxsize=1)
def likeness_of_neighbours(graph: Graph) -> float:
    """How much more alike linked nodes are than random ones: the difference of their mean cosines, features centred.

    About 0.1 to 0.3 on citation and co-author graphs, below 0.03 where links say nothing about features.
    """
    if graph.x is None:
        return 1.0
    scaling = "row" if is_bag(graph.x) else "column"
    block = FeatureTransform.fit(graph, scaling=scaling, structural_size=1)(graph).features[0]
    assert block is not None
    random = np.random.default_rng(0)
    edges = torch.from_numpy(random.choice(graph.num_edges, min(10_000, graph.num_edges), replace=False))
    source, target = graph.indices[edges].long(), torch.searchsorted(graph.indptr, edges, right=True) - 1
    other = torch.from_numpy(random.permutation(target.numpy()))
    mean = F.normalize(dense(sample_rows(block))).mean(dim=0)

    def centred(rows: Tensor) -> Tensor:
        return F.normalize(dense(take_rows(block, rows))) - mean

    pairs = zip(*(torch.split(nodes, 1000) for nodes in (source, target, other)), strict=True)
    cosines = [
        F.cosine_similarity(centred(one), centred(near)) - F.cosine_similarity(centred(one), centred(far))
        for one, near, far in pairs
    ]
    return float(torch.cat(cosines).mean())


@lru_cache(maxsize=1)
def columns_to_append(graph: Graph) -> dict[str, list[Tensor]]:
    """For each kind, tables whose rows have length 1; none for a graph without features."""
    if graph.x is None:
        return {name: [] for name in APPENDED}
    prepared, own = own_columns(graph, choose_recipe(graph)[0])
    tables = (own, propagate(prepared, CLEAN, propagate(prepared, CLEAN, own)))
    return {
        name: [F.normalize(table[:, :size]) for table, size in zip(tables, sizes, strict=True) if size]
        for name, sizes in APPENDED.items()
    }


def default_scores(graph: Graph, models: Models, device: torch.device) -> list[Row]:
    embeddings = embed_seeds([model.model_ for model in models], graph, device=device)
    beside = {kind: [table.to(device) for table in own] for kind, own in columns_to_append(graph).items()}
    tables = [{kind: torch.cat([F.normalize(h), *own], dim=1) for kind, own in beside.items()} for h in embeddings]
    found = scored(tables, partial(validation_scores, graph=graph, num_splits=3))
    return [
        {
            "likeness": likeness_of_neighbours(graph),
            "loss": model.metrics_[-1]["loss"],
            "rank_of_width": round(describe_moments(*embedding_moments(h))["effective_rank"] / h.shape[1], 4),
            "validation": values,
        }
        for model, h, values in zip(models, embeddings, found, strict=True)
    ]


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
    own = own_columns(graph, load_recipe(graph.name))[1].to(device)
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
