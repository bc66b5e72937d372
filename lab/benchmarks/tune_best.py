"""How the recipes `best` were chosen: BGRL beyond the paper's settings on its four large graphs, by validation nodes.

    python lab/benchmarks/tune_best.py train --device cuda --minutes 9     # GRAPHSTRAP_DATA names the folder of graphs
    python lab/benchmarks/tune_best.py choose --write                      # src/graphstrap/recipes/best-<graph>.toml

The candidates below were written down before any of them was trained: eleven ways of training, and, tried on the
embeddings of each, which network embeds and how many columns of the node's own features stand beside. They are scored
within a fixed half of the labelled nodes, see `graphstrap/reproduce/blind.py`; 3 splits, 2 seeds. `choose` takes, on
each graph, what stands beside and which network by their mean over all ways of training, and then the best way of
training: seventeen means are compared, not sixty-six. Rows go to results/tune_best.jsonl as they come; the same command
goes on, and several may run at once on different graphs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import graphstrap as gs
from graphstrap.api.ensemble import fit_seeds
from graphstrap.graph import Graph
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.features import FeatureTransform, OwnFeatures
from graphstrap.nn.methods.bgrl import BGRL
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.reproduce.blind import tuning_scores
from graphstrap_lab.reproduce.cells import where_from
from graphstrap_lab.reproduce.deadline import Deadline, TimeUpError
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.variants import changed_settings, settings_digest

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "lab" / "benchmarks" / "results" / "tune_best.jsonl"
RECIPES = REPOSITORY / "src" / "graphstrap" / "recipes"
GRAPHS = ("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics")
SEEDS = (0, 1)

# What all share: a fifth of the paper's steps at a higher rate, batch-norm statistics of the clean graph.
SHARED = {
    "train.steps": 2000,
    "train.warmup_steps": 200,
    "train.learning_rate": 1e-3,
    "encoder.batch_norm_statistics": "recalibrated",
}


def views(mask: float, drop: float) -> dict[str, Any]:
    return {"views.feature_mask_probs": [mask, mask], "views.edge_drop_probs": [drop, drop]}


# What differs from the paper's recipe for the graph.
WAYS: dict[str, dict[str, Any]] = {
    "paper's views": {},
    "paper's views, neighbours": {"method.target_hops": 1},
    "paper's views, 5000 steps": {"train.steps": 5000, "train.warmup_steps": 500},
    "strong views": views(0.5, 0.5),
    "mask 0.5, drop 0.25": views(0.5, 0.25),
    "mask 0.25, drop 0.5": views(0.25, 0.5),
    "strong views, neighbours": {**views(0.5, 0.5), "method.target_hops": 1},
    "strong views, wide": {**views(0.5, 0.5), "encoder.hidden_sizes": [1024], "encoder.embedding_size": 512},
    "strong views, one layer": {**views(0.5, 0.5), "encoder.hidden_sizes": [], "encoder.embedding_size": 512},
    "strong views, rate 0.005": {**views(0.5, 0.5), "train.learning_rate": 5e-3},
    "strong views, 5000 steps": {**views(0.5, 0.5), "train.steps": 5000, "train.warmup_steps": 500},
}
NETWORKS = ("online", "target")
OWN_COLUMNS = (0, 128, 512)


def recipe_for(graph: str, way: str, *, steps: int | None = None) -> Recipe:
    recipe = load_recipe(graph).with_settings({**SHARED, **WAYS[way]})
    return recipe if steps is None else recipe.with_settings({"train.steps": steps})


def embeddings(model: gs.Embedder, prepared: Graph, own: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Each network's, alone and beside so many columns of own features; the latter come leading ones first."""
    method = model.model_.method
    assert isinstance(method, BGRL)
    for network in NETWORKS:
        method.embed_with = network
        recalibrate_batch_norm(method.frozen, [prepared])
        h = F.normalize(method.embed(prepared).float(), dim=1)
        for size in OWN_COLUMNS:
            beside = F.normalize(own[:, :size], dim=1)
            yield f"{network}, own {size}", torch.cat([h, beside], dim=1)


def own_columns(graph: Graph) -> Tensor:
    """(N, K) for the largest number of columns; fewer are the first of them, since singular vectors are in order."""
    data = load_recipe(graph.name).data
    transform = FeatureTransform.fit(graph, scaling=data.feature_scaling, structural_size=data.structural_size)
    prepared = transform(graph)
    return OwnFeatures.fit(prepared, num_columns=max(OWN_COLUMNS)).append_to(torch.zeros(graph.num_nodes, 0), prepared)


def measure(graph: Graph, way: str, own: Tensor, *, device: torch.device, steps: int | None) -> list[Row]:
    recipe = recipe_for(graph.name, way, steps=steps)
    started = time.perf_counter()
    settings = {"train.log_every": recipe.train.steps}  # changes nothing but what is logged
    models = fit_seeds(gs.Embedder(recipe=recipe, settings=settings, device=device.type), graph, seeds=SEEDS)
    trained = time.perf_counter()
    prepared = models[0].model_.transform(graph).to(device).with_readable_features()
    found = [dict(embeddings(model, prepared, own)) for model in models]
    names = list(found[0])
    values = tuning_scores([one[name] for one in found for name in names], graph)
    rows = np.split(np.array(values), len(models))
    shared = {
        "dataset": graph.name,
        "variant": way,
        "settings": settings_digest(recipe, "tune-best"),
        "recipe": changed_settings(recipe),
        "train_seconds": round((trained - started) / len(models), 2),
        "score_seconds": round((time.perf_counter() - trained) / len(models), 2),
        **where_from(device),
    }
    return [
        {**shared, "seed": seed, "validation": dict(zip(names, row.tolist(), strict=True))}
        for seed, row in zip(SEEDS, rows, strict=True)
    ]


def train(arguments: argparse.Namespace) -> None:
    ledger, device = Ledger(arguments.to), resolve_device(arguments.device)
    try:
        with Deadline(arguments.minutes).enforced():
            for name in arguments.graphs:
                graph, own = gs.load(name), None
                for way in arguments.ways or WAYS:
                    wanted = settings_digest(recipe_for(name, way, steps=arguments.steps), "tune-best")
                    if len(ledger.find(dataset=name, variant=way, settings=wanted)) == len(SEEDS):
                        continue
                    if own is None:
                        own = own_columns(graph).to(device)
                    rows = measure(graph, way, own, device=device, steps=arguments.steps)
                    ledger.add(rows)
                    print(
                        name, way, rows[0]["train_seconds"], rows[0]["score_seconds"], rows[0]["validation"], flush=True
                    )
    except TimeUpError:
        print("stopped: the time is up; the same command goes on from here")


def choose(arguments: argparse.Namespace) -> None:
    ledger = Ledger(arguments.to)
    for name in arguments.graphs:
        means = mean_scores(ledger, name, steps=arguments.steps)
        if not means:
            print(f"{name}: nothing was trained")
            continue
        beside = max((kind for _, kind in means), key=lambda kind: mean_over_ways(means, kind))
        way = max((way for way, kind in means if kind == beside), key=lambda way: means[way, beside])
        print(f"{name}: {way}; {beside}: {means[way, beside]:.2f}")
        for kind in dict.fromkeys(kind for _, kind in means):
            print(f"    {kind:28s} {mean_over_ways(means, kind):.2f}   mean over ways")
        for key in (key for key, kind in means if kind == beside):
            print(f"    {key:28s} {means[key, beside]:.2f}   {beside}")
        if arguments.write:
            write_recipe(name, way, beside, steps=arguments.steps)


def mean_scores(ledger: Ledger, graph: str, *, steps: int | None) -> dict[tuple[str, str], float]:
    """By way of training and what was done with its embeddings; the mean over seeds."""
    found: dict[tuple[str, str], list[float]] = {}
    for way in WAYS:
        wanted = settings_digest(recipe_for(graph, way, steps=steps), "tune-best")
        for row in ledger.find(dataset=graph, variant=way, settings=wanted):
            for kind, value in row["validation"].items():
                found.setdefault((way, kind), []).append(value)
    return {key: float(np.mean(values)) for key, values in found.items()}


def mean_over_ways(means: dict[tuple[str, str], float], kind: str) -> float:
    return float(np.mean([value for (_, other), value in means.items() if other == kind]))


def write_recipe(graph: str, way: str, beside: str, *, steps: int | None) -> None:
    """As few settings as it takes: those that are not a recipe's usual ones."""
    network, _, size = beside.partition(", own ")
    recipe = recipe_for(graph, way, steps=steps)
    recipe = recipe.with_settings({"method.embed_with": network, "encoder.own_features": int(size)})
    path = RECIPES / f"best-{graph}.toml"
    path.write_text(recipe_text(graph, way, beside, recipe), encoding="utf-8")
    assert load_recipe(path.stem) == replace(recipe, name=path.stem)
    print(f"    wrote {path.relative_to(REPOSITORY)}")


def recipe_text(graph: str, way: str, beside: str, recipe: Recipe) -> str:
    lines = [
        f"# Beyond the paper on {graph}: {way}; {beside}. Chosen on validation nodes by lab/benchmarks/tune_best.py.",
        f"# graphstrap fit {graph} --recipe best-{graph} --run runs/best-{graph}",
        f'name = "best-{graph}"',
    ]
    changed, section = changed_settings(recipe), ""
    for line in recipe.to_toml().splitlines()[1:]:
        if line.startswith("["):
            section = line.strip("[]")
            lines += ["", line] if any(key.startswith(f"{section}.") for key in changed) else []
        elif f"{section}.{line.split(' =')[0]}" in changed:
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "choose"])
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=None)
    parser.add_argument("--steps", type=int, default=None, help="fewer for all, to try the script")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many; finished rows stay")
    parser.add_argument("--write", action="store_true", help="write the chosen recipes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    {"train": train, "choose": choose}[arguments.what](arguments)


if __name__ == "__main__":
    main()
