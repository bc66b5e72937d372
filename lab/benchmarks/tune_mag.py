"""How fast targets follow and what the auxiliary loss counts in MAG240M's figures on a synthetic graph.

    python lab/benchmarks/tune_mag.py train --device cuda --share 1/16  # the first of every sixteen runs: all at once
    python lab/benchmarks/tune_mag.py choose                               # for SYNTHETIC_* of reproduce/mag_cells.py

With the recipe of MAG240M a target hardly moves in the 1,000 steps that the figures take on a synthetic graph. The
candidates below were written down before any of them was trained. They learn from another graph than the figures',
generated from another seed, for half as many steps; 2 seeds, scored on its validation papers. Rows go to
results/tune_mag.jsonl as they come, and the same command goes on.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graphstrap.api.estimator import Embedder
from graphstrap.io.generate import mag
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import Recipe
from graphstrap_lab.reproduce.cells import where_from
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.mag_cells import SYNTHETIC_STEPS, mag_recipe
from graphstrap_lab.reproduce.variants import changed_settings, settings_digest

RESULTS = Path(__file__).parent / "results" / "tune_mag.jsonl"
SCALE, GRAPH_SEED, SEEDS = 0.01, 1, (0, 1)
ROWS = {"bgrl": "mag-bgrl-0", "grace": "mag-grace-256"}
CANDIDATES = {  # target decay and weight
    "bgrl": [(0.999, 1.0), (0.99, 1.0), (0.9, 1.0), (0.99, 5.0), (0.9, 5.0), (0.99, 20.0)],
    "grace": [(0.999, 1.0), (0.999, 5.0)],
}


def runs() -> Iterator[tuple[str, float, float, int]]:
    for seed, auxiliary in itertools.product(SEEDS, CANDIDATES):
        for decay, weight in CANDIDATES[auxiliary]:
            yield auxiliary, decay, weight, seed


def recipe_for(auxiliary: str, decay: float, weight: float, *, steps: int) -> Recipe:
    settings = {
        "method.target_decay": decay,
        "method.auxiliary_weight": weight,
        "train.steps": steps,
        "train.warmup_steps": steps // 10,
        "train.log_every": steps,
        "train.evaluate_every": steps,
    }
    return mag_recipe(ROWS[auxiliary], f"mag-like-{SCALE}").with_settings(settings)


def train(arguments: argparse.Namespace) -> None:
    ledger, device, graph = Ledger(arguments.to), resolve_device(arguments.device), None
    number, shares = (int(part) for part in arguments.share.split("/"))
    for auxiliary, decay, weight, seed in list(runs())[number - 1 :: shares]:
        recipe = recipe_for(auxiliary, decay, weight, steps=arguments.steps)
        key = {"variant": auxiliary, "settings": settings_digest(recipe, "tune-mag"), "seed": seed}
        if ledger.find(**key):
            continue
        if graph is None:
            graph = mag(arguments.scale, seed=GRAPH_SEED, device=device)
        records = Embedder(recipe=recipe, seed=seed, device=device.type).fit(graph).metrics_
        found = {"loss": round(records[-1]["loss"], 4), "validation": round(records[-1]["accuracy"], 4)}
        graph_key = {"dataset": f"mag-like-{arguments.scale}, seed {GRAPH_SEED}", "synthetic": True}
        shared = {"decay": decay, "weight": weight, "recipe": changed_settings(recipe), **where_from(device)}
        ledger.add([{**graph_key, **key, **found, **shared}])
        print(f"{auxiliary} {decay} {weight} seed {seed}: {found}", flush=True)


def choose(arguments: argparse.Namespace) -> None:
    for auxiliary, (decay, weight) in chosen(arguments.to).items():
        print(f"{auxiliary}: decay {decay}, weight {weight}")


def chosen(path: Path) -> dict[str, tuple[float, float]]:
    """For each auxiliary signal the candidate with the best mean over seeds."""
    ledger, best = Ledger(path), {}
    for auxiliary, candidates in CANDIDATES.items():
        means = {}
        for decay, weight in candidates:
            rows = ledger.find(variant=auxiliary, decay=decay, weight=weight)
            if rows:
                means[decay, weight] = float(np.mean([row["validation"] for row in rows]))
                print(f"    {auxiliary} {decay} {weight}: {means[decay, weight]:.2f} ({len(rows)})")
        if not means:
            raise SystemExit(f"{path} has no run of {auxiliary}: train first")
        best[auxiliary] = max(means, key=means.__getitem__)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "choose"])
    parser.add_argument("--share", default="1/1", help="2/3 for the second of every three runs")
    parser.add_argument("--steps", type=int, default=SYNTHETIC_STEPS // 2)
    parser.add_argument("--scale", type=float, default=SCALE)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    {"train": train, "choose": choose}[arguments.what](arguments)


if __name__ == "__main__":
    main()
