"""How sharply GATs attend that BGRL, GRACE and GRACE with few negatives have trained: the paper's histogram.

    entropy_i    = mean over layers and heads of ( - sum_j a_ij log a_ij )  -  log (number of j)

for every node i that was trained on; j runs over its neighbours and itself. 0 means that all are attended to alike; the
least, - log (number of j), that one of them alone is. The paper shows it on PPI: the fewer negatives, the lower. On
other graphs, each trained on as a whole, the encoder and the views are those of PPI's recipe, and batch norm is added,
without which BGRL draws embeddings together there (docs/LOG.md). How few negatives the paper means it does not print: 2
is the least of its table for ogbn-arxiv.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.api.embed import embed_seeds, prepare
from graphstrap.api.estimator import Embedder
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.graph import Graph
from graphstrap.graph.many import training_graphs
from graphstrap.nn.model import Model
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.grid import Grid, make_panels, mean_text, save_figure, to_csv
from graphstrap_lab.reproduce.cells import Filling, protocols_of
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.render import METHOD_COLOURS, Asked, Report
from graphstrap_lab.reproduce.run import Work, train_row
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
LEGEND = (
    "Entropy of a node's attention, averaged over layers and heads, less that of attention to all its neighbours "
    "alike: 0 is uniform, and the lower, the fewer are looked at. Mean over nodes ± standard deviation over seeds "
    "(number of seeds); quartiles over nodes, and the least, are means over seeds. Spread is that of the embeddings at "
    "the last step, 0 after a collapse; the score is the linear probe's, in %. The paper shows its histogram, of PPI, "
    "as a picture alone: GRACE, and most of all with few negatives, has very low entropies; BGRL lies between these "
    "and uniform attention."
)
_COLUMNS = ["mean", "lower quartile", "median", "upper quartile", "least", "spread", "score"]


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
    """A row of the ledger for each seed: entropies, and what a probe makes of the embeddings, by the first of the
    graph's protocols, where there are labels."""
    recipe, protocol = entropy_recipe(variant, graph.name, quick=how.quick), protocols_of(graph.name)[0]

    def score(fitted: list[Embedder]) -> Iterator[Row]:
        accuracies: list[dict[str, float]] = [{} for _ in seeds]
        if graph.labels is not None:
            embeddings = embed_seeds([one.model_ for one in fitted], graph, device=how.place)
            found = evaluate_many(embeddings, graph, protocol=protocol, num_runs=how.num_runs, seeds=seeds)
            accuracies = [{protocol: round(one.mean, 4)} for one in found]
        for one, accuracy in zip(fitted, accuracies, strict=True):
            last, entropies = one.metrics_[-1], node_entropies(one.model_, graph, device=how.place)
            own = {"spread": round(last["spread"], 4), "loss": round(last["loss"], 4), "accuracy": accuracy}
            yield {"entropy": summarize_entropies(entropies), **own}

    settings = entropy_settings(variant, graph.name, how.quick)
    return train_row(graph, variant, recipe, how, seeds, settings=settings, score=score)


@torch.no_grad()
def node_entropies(model: Model, graph: Graph, *, device: torch.device) -> Tensor:
    """(N,) of the nodes that the model was trained on, in the clean graph."""
    seen = prepare(model, training_graphs(graph, model.recipe.data.training_graphs))
    placed, encoder = seen.to(device).with_readable_features(), model.method.online.to(device).eval()
    weights: Sequence[tuple[Tensor, Tensor]] = encoder.attention(placed)  # type: ignore[operator]
    return attention_entropy(weights, placed.indptr)


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


def attention_entropy(layers: Sequence[tuple[Tensor, Tensor]], indptr: Tensor) -> Tensor:
    """(N,) float64, at most 0. Each layer has the weights of edges (E, H), in rows that begin at `indptr`, and of the
    self-loops (N, H); those of a node add up to 1 for every head, and 0 is a neighbour not looked at."""
    sums = [torch.segment_reduce(_terms(edges), "sum", offsets=indptr, initial=0.0) for edges, _ in layers]
    own = [_terms(loops) for _, loops in layers]
    uniform = (indptr.diff() + 1).double().log()
    return torch.stack(sums).mean(0) + torch.stack(own).mean(0) - uniform


def _terms(weights: Tensor) -> Tensor:
    """- a log a, the mean over heads."""
    weights = weights.detach().double()
    terms: Tensor = torch.special.xlogy(weights, weights)
    return -terms.mean(1)


ENTROPIES = Work(settings=entropy_settings, compute=compute_entropies)


def report_entropies(asked: Asked) -> Report:
    """A line of numbers and a histogram for each row on each graph."""
    rows = asked.rows(ENTROPIES.find)
    lines = asked.lines(rows, _texts, of="entropy", num_columns=len(_COLUMNS))
    histograms = {key: shares for key, own in rows.items() if (shares := merge_counts(own)) is not None}
    bins = [
        [dataset, variant, row["seed"], f"{-BIN_WIDTH * (place + 1):.2f}", f"{-BIN_WIDTH * place:.2f}", count]
        for (dataset, variant), own in rows.items()
        for row in own
        for place, count in enumerate(row.get("entropy", {}).get("counts", ()))
    ]
    grid = Grid(["graph", "method", *_COLUMNS], lines, "Entropy of attention less that of uniform attention")
    csv = to_csv(["dataset", "method", "seed", "low", "high", "nodes"], bins)
    draw = partial(plot_entropies, histograms) if histograms else None
    found = [row for own in rows.values() for row in own]
    return asked.report([grid], notes=[LEGEND], rows=found, csv=csv, draw=draw)


def _texts(rows: Sequence[Row]) -> list[str]:
    """The columns of a line."""
    means = [row["entropy"]["mean"] for row in rows]
    values = np.mean([[*row["entropy"]["quartiles"], row["entropy"]["least"], row["spread"]] for row in rows], 0)
    scores = [score for row in rows for score in row["accuracy"].values()]
    protocol = next((name for row in rows for name in row["accuracy"]), "")
    score = f"{np.mean(scores):.2f} ({protocol})" if scores else ""
    return [f"{mean_text(means, digits=3)} ({len(means)})", *(f"{value:.3f}" for value in values), score]


def merge_counts(rows: Sequence[Row]) -> list[float] | None:
    """The share of nodes in each bin from 0 down, over all seeds; None where nothing was computed."""
    counts = [row["entropy"]["counts"] for row in rows if "entropy" in row]
    if not counts:
        return None
    total = np.zeros(max(map(len, counts)))
    for own in counts:
        total[: len(own)] += own
    shares: list[float] = (total / total.sum()).tolist()
    return shares


def plot_entropies(histograms: Mapping[tuple[str, str], Sequence[float]], path: Path) -> None:
    """A row of panels for each graph, a panel for each method, by (graph, method): the share of nodes in each bin of
    entropies from 0 down; the panels of a row have one scale."""
    datasets = list(dict.fromkeys(dataset for dataset, _ in histograms))
    variants = list(dict.fromkeys(variant for _, variant in histograms))
    width, height = 3.4 * len(variants), 0.5 + 2.1 * len(datasets)
    figure, grid = make_panels(len(datasets), len(variants), width=width, height=height)
    for panels, dataset in zip(grid, datasets, strict=True):
        own = {variant: shares for (name, variant), shares in histograms.items() if name == dataset}
        lowest, highest = max(map(len, own.values())), max(map(max, own.values()))
        for axes, variant in zip(panels, variants, strict=True):
            shares = own.get(variant, [])
            places = [-BIN_WIDTH * (index + 0.5) for index in range(len(shares))]
            axes.bar(places, shares, width=BIN_WIDTH, color=METHOD_COLOURS.get(variant.split("-")[0], "0.4"))
            if not shares:
                axes.text(0.5, 0.5, "not computed", transform=axes.transAxes, ha="center", fontsize=9, color="0.5")
            axes.axvline(0.0, color="black", linewidth=0.8, linestyle=":")
            axes.set(xlim=(-BIN_WIDTH * (lowest + 1), BIN_WIDTH), ylim=(0.0, 1.05 * highest))
            axes.set_title(f"{dataset}: {VARIANTS[variant].title}", fontsize=9)
        panels[0].set_ylabel("share of nodes")
    for axes in grid[-1]:
        axes.set_xlabel("entropy of attention - uniform")
    save_figure(figure, path)
