"""How the recipes `best-<graph>` were chosen: declared ways of training are tried, scored on half of the labelled nodes
(`reproduce/blind.py`), and one chosen.

    python lab/benchmarks/tune.py train --device cuda --minutes 9   # GRAPHSTRAP_DATA names the folder of graphs
    python lab/benchmarks/tune.py train --device cuda --share 1/3   # every third candidate: three such at once
    python lab/benchmarks/tune.py train --steps 2 --to best.jsonl   # whether it runs
    python lab/benchmarks/tune.py choose --write                    # src/graphstrap/run/recipes/best-<graph>.toml

BGRL beyond the paper's settings on its four large graphs. On the embeddings of each way it is also tried which network
embeds and how many own columns stand beside. `choose` takes network and columns by their mean over all ways, then the
best way: seventeen means are compared, not sixty-six. Rows go to results/tune_best.jsonl as they come, one for each
seed, and the same command goes on. All candidates were written down before any was trained.

Other settings were chosen in the same manner by scripts that the history keeps. The rows of their records say by which
recipe each was trained: `tune_grace.jsonl` (GRACE on Amazon Computers, on the same half; taken: batch norm, 0.1 below
the best at a fifth of its steps, and one change from what stood before), `tune_mag.jsonl` (how fast targets follow and
what the auxiliary loss counts on a MAG-like graph of another seed, half of the steps, its validation papers) and
`tune_small_sets.jsonl` (Cora, CiteSeer, PubMed and DBLP by one grid, one seed, 5 splits; the tables' splits of other
seeds test on these nodes too, so their numbers flatter the choice a little).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import graphstrap as gs
from graphstrap.graph import Graph
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.features import FeatureTransform
from graphstrap.nn.methods.bgrl import BGRL
from graphstrap.nn.methods.instant import HopColumns
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.reproduce.blind import tuning_scores
from graphstrap_lab.reproduce.cells import where_from
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.variants import changed_settings, settings_digest
from harness import REPOSITORY, RESULTS, Row, run, within

Settings = dict[str, Any]
GRAPHS = ("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics")
SEEDS = (0, 1)


def views(mask: float, drop: float) -> Settings:
    return {"views.feature_mask_probs": [mask, mask], "views.edge_drop_probs": [drop, drop]}


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


def recipe_for(graph: str, way: str) -> Recipe:
    return load_recipe(graph).with_settings({**SHARED, **WAYS[way]})


def train(ledger: Ledger, *, graphs: Sequence[str], share: str, steps: int | None, device: torch.device) -> None:
    """Rows of all candidates that the ledger lacks, as far as they are of this share."""
    first, shares = (int(part) for part in share.split("/"))
    numbers = count()
    for name in graphs:
        graph = gs.load(name)
        own = own_columns(graph).to(device)
        for way in WAYS:
            recipe = recipe_for(name, way)
            if steps is not None:
                recipe = recipe.with_settings({"train.steps": steps, "train.warmup_steps": steps // 10})
            key = {"dataset": name, "variant": way, "settings": settings_digest(recipe, "tune-best")}
            if next(numbers) % shares != first - 1 or len(ledger.find(**key)) == len(SEEDS):
                continue
            started = time.perf_counter()
            settings = {"train.log_every": recipe.train.steps}  # changes nothing but what is logged
            estimator = gs.Embedder(recipe=recipe, settings=settings, device=device.type)
            models = gs.fit_seeds(estimator, graph, seeds=SEEDS)
            seconds = round((time.perf_counter() - started) / len(models), 2)
            shared = {**key, "recipe": changed_settings(recipe), "train_seconds": seconds, **where_from(device)}
            found = scores(graph, models, own)
            ledger.add([{**shared, "seed": seed, "validation": one} for seed, one in zip(SEEDS, found, strict=True)])
            print(name, way, seconds, found[0], flush=True)


def scores(graph: Graph, models: Sequence[gs.Embedder], own: Tensor) -> list[dict[str, float]]:
    """Of each network's embedding, alone and beside so many columns of own features."""
    prepared = models[0].model_.transform(graph).to(own.device).with_readable_features()
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
    values = iter(tuning_scores([table for of_model in tables for table in of_model.values()], graph))
    return [{kind: next(values) for kind in of_model} for of_model in tables]


def own_columns(graph: Graph) -> Tensor:
    """512 columns of its nodes' own features, compressed: leading ones first."""
    data = load_recipe(graph.name).data
    transform = FeatureTransform.fit(graph, scaling=data.feature_scaling, structural_size=data.structural_size)
    prepared = transform(graph)
    own: Tensor = HopColumns(prepared.num_features, num_columns=512, num_hops=0).fit(prepared)(prepared)
    return own


def newest_rows(ledger: Ledger, graph: str) -> dict[str, list[Row]]:
    """A graph's rows by candidate, those of the settings that it had last."""
    rows = ledger.find(dataset=graph)
    newest = {row["variant"]: row["settings"] for row in rows}
    return {
        label: [row for row in rows if (row["variant"], row["settings"]) == (label, settings)]
        for label, settings in newest.items()
    }


def mean_of(rows: Sequence[Row], kind: str) -> float:
    return float(np.mean([row["validation"][kind] for row in rows]))


def choose(ledger: Ledger, *, graphs: Sequence[str], write: bool) -> None:
    for name in graphs:
        cells = newest_rows(ledger, name)
        kinds = next(iter(cells.values()))[0]["validation"]
        over_ways = {kind: mean_of([row for rows in cells.values() for row in rows], kind) for kind in kinds}
        beside = max(over_ways, key=over_ways.__getitem__)
        means = {way: mean_of(rows, beside) for way, rows in cells.items()}
        way = max(means, key=means.__getitem__)
        print(f"{name}: {way}; {beside}: {means[way]:.2f}")
        for kind, value in over_ways.items():
            print(f"    {kind:28s} {value:.2f}   mean over ways")
        for other, value in means.items():
            print(f"    {other:28s} {value:.2f}   {beside}")
        if write:
            write_recipe(name, way, beside)


def write_recipe(graph: str, way: str, beside: str) -> None:
    """As few settings as it takes: those that are not a recipe's usual ones."""
    network, _, size = beside.partition(", own ")
    recipe = recipe_for(graph, way).with_settings({"method.embed_with": network, "encoder.own_features": int(size)})
    name, changed = f"best-{graph}", changed_settings(recipe)
    lines = [
        f"# Beyond the paper on {graph}: {way}; {beside}. Chosen on validation nodes by lab/benchmarks/tune.py.",
        f"# graphstrap fit {graph} --recipe {name} --run runs/{name}",
        f'name = "{name}"',
    ]
    for section in recipe.to_toml().split("\n[")[1:]:
        title, *settings = section.splitlines()
        kept = [line for line in settings if f"{title.strip(']')}.{line.split(' =')[0]}" in changed]
        lines += ["", f"[{title}", *kept] if kept else []
    path = REPOSITORY / "src" / "graphstrap" / "run" / "recipes" / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert load_recipe(name) == replace(recipe, name=name)
    print(f"    wrote {path.relative_to(REPOSITORY)}")


def main(
    what: Annotated[str, ("train", "choose")],
    *,
    graphs: Sequence[str] = GRAPHS,
    share: str = "1/1",
    steps: int | None = None,
    minutes: float | None = None,
    write: bool = False,
    device: str = "auto",
    to: Path = RESULTS / "tune_best.jsonl",
) -> None:
    """`steps`: fewer for all, to try the script."""
    ledger = Ledger(to)
    if what == "choose":
        choose(ledger, graphs=graphs, write=write)
        return
    with within(minutes):
        train(ledger, graphs=graphs, share=share, steps=steps, device=resolve_device(device))


if __name__ == "__main__":
    run(main)
