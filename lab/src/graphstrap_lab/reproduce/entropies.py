"""How sharply GATs attend that BGRL, GRACE and GRACE with few negatives have trained: the paper's histogram.

    entropy_i    = mean over layers and heads of the entropy of node i's attention  -  log (number that it attends to)

for every node that was trained on (see `report/attention.py`): 0 where all are attended to alike. The paper shows it
on PPI. On other graphs, each trained on as a whole, the encoder and the views are those of PPI's recipe, and batch norm
is added, without which BGRL draws embeddings together there (docs/LOG.md). How few negatives the paper means it does
not print: 2 is the least of its table for ogbn-arxiv.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.api.embed import embed_seeds, prepare
from graphstrap.api.estimator import Embedder
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.graph import Graph
from graphstrap.graph.many import training_graphs
from graphstrap.io.datasets import load
from graphstrap.nn.model import Model
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.reproduce.attention import attention_entropy, with_self_loops
from graphstrap_lab.reproduce.cells import protocols_of
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.run import Filling, Work
from graphstrap_lab.reproduce.trained import train_row
from graphstrap_lab.reproduce.variants import QUICK_NEGATIVES, VARIANTS, read_by, recipe_of, settings_digest

BIN_WIDTH = 0.05
QUICK_STEPS = 30
_ON_OTHER_GRAPHS: dict[str, Any] = {
    "data.training_graphs": "all",
    "encoder.norm": "batch",
    "encoder.batch_norm_statistics": "recalibrated",
    "train.graphs_per_step": 0,
    "train.steps": 1000,
    "train.warmup_steps": 100,
}
_QUICK: dict[str, Any] = {
    "encoder.hidden_sizes": (16, 16),
    "encoder.embedding_size": 32,
    "method.predictor_hidden_size": 32,
    "train.steps": QUICK_STEPS,
    "train.warmup_steps": QUICK_STEPS // 10,
}


def entropy_recipe(variant: str, dataset: str, *, quick: bool = False) -> Recipe:
    """PPI's for the row; what differs on other graphs and under --quick stands above."""
    recipe = recipe_of(variant, "ppi")
    if dataset != "ppi":
        name = "ppi-gat-grace" if recipe.method.name == "grace" else "ppi-gat"
        recipe = load_recipe(name).with_settings({**VARIANTS[variant].settings, **_ON_OTHER_GRAPHS})
    if not quick:
        return recipe
    negatives = getattr(recipe.method, "num_negatives", None)  # of methods that have them
    fewer = {} if negatives is None else {"method.num_negatives": negatives or QUICK_NEGATIVES}
    return recipe.with_settings(read_by(recipe.method.name, {**_QUICK, **fewer}))


def entropy_settings(variant: str, dataset: str, quick: bool) -> str:
    digest = settings_digest(entropy_recipe(variant, dataset, quick=quick), "entropy")
    return f"{'quick-' if quick else ''}entropy-{digest}"


def compute_entropies(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
    """A row of the ledger for each seed."""
    device, recipe = resolve_device(how.device), entropy_recipe(variant, graph.name, quick=how.quick)
    settings = entropy_settings(variant, graph.name, how.quick)
    shared, fitted = train_row(graph, variant, recipe, how, settings=settings, seeds=seeds)
    if not fitted:
        return [{**shared, "seed": seed} for seed in seeds]
    scores = _scores(fitted, graph, seeds=seeds, device=device, num_runs=3 if how.quick else 5)
    return [
        {
            **shared,
            "seed": one.seed,
            "entropy": summarize_entropies(node_entropies(one.model_, graph, device=device)),
            "spread": round(one.metrics_[-1]["spread"], 4),
            "loss": round(one.metrics_[-1]["loss"], 4),
            "accuracy": score,
        }
        for one, score in zip(fitted, scores, strict=True)
    ]


@torch.no_grad()
def node_entropies(model: Model, graph: Graph, *, device: torch.device) -> Tensor:
    """(N,) of the nodes that the model was trained on, in the clean graph."""
    seen = prepare(model, training_graphs(graph, model.recipe.data.training_graphs))
    placed, encoder = seen.to(device).with_readable_features(), model.method.online.to(device).eval()
    weights: Sequence[tuple[Tensor, Tensor]] = encoder.attention(placed)  # type: ignore[operator]
    return attention_entropy([with_self_loops(edges, loops, placed.indptr) for edges, loops in weights])


def summarize_entropies(entropies: Tensor) -> dict[str, Any]:
    """Mean, quartiles, the least, and how many nodes lie in each bin from 0 down."""
    values = entropies.cpu().numpy()
    bins = np.floor(np.maximum(-values, 0.0) / BIN_WIDTH).astype(np.int64)
    return {
        "mean": round(float(values.mean()), 5),
        "quartiles": [round(float(part), 5) for part in np.quantile(values, (0.25, 0.5, 0.75))],
        "least": round(float(values.min()), 5),
        "bin_width": BIN_WIDTH,
        "counts": np.bincount(bins).tolist(),
    }


def _scores(
    fitted: Sequence[Embedder], graph: Graph, *, seeds: Sequence[int], device: torch.device, num_runs: int
) -> list[dict[str, float]]:
    """What a probe makes of the embeddings, by the first of the graph's protocols; nothing where there are no
    labels."""
    if graph.labels is None:
        return [{} for _ in fitted]
    protocol, embeddings = protocols_of(graph.name)[0], embed_seeds([o.model_ for o in fitted], graph, device=device)
    found = evaluate_many(embeddings, graph, protocol=protocol, num_runs=num_runs, seeds=seeds)
    return [{protocol: round(one.mean, 4)} for one in found]


ENTROPIES = Work(load=lambda name, how: load(name), settings=entropy_settings, compute=compute_entropies)
