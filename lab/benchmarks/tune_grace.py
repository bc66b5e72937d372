"""GRACE on Amazon Computers, where the settings of its authors' next paper miss the number: others, by validation.

    python lab/benchmarks/tune_grace.py --device cuda                  # GRAPHSTRAP_DATA has the graph
    python lab/benchmarks/tune_grace.py --device cpu --steps 2         # whether it runs

The candidates were written down before any of them was trained. They are scored within a fixed half of the labelled
nodes (`graphstrap/reproduce/blind.py`), and what is chosen is to be reported on the other half too. The last one is
what the paper says of all its own models: batch norm, 10,000 steps, the views of its table for BGRL. 3 splits, 2 seeds.
Rows go to results/tune_grace.jsonl as they come; the same command goes on. Taken: batch norm, 0.1 below the best at a
fifth of its steps, and one change from what stood before.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from typing import Any

import graphstrap as gs
from graphstrap.api.ensemble import embed_on_device, fit_seeds
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.reproduce.blind import tuning_scores
from graphstrap_lab.reproduce.cells import where_from
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.variants import changed_settings, recipe_of, settings_digest

RESULTS = Path(__file__).parent / "results" / "tune_grace.jsonl"
SEEDS = (0, 1)
WIDE = {"encoder.hidden_sizes": (512,), "encoder.embedding_size": 256}
CANDIDATES: dict[str, dict[str, Any]] = {
    "as in its authors' next paper": {},
    "rate 0.001": {"train.learning_rate": 1e-3},
    "batch norm": {"encoder.norm": "batch"},
    "batch norm, rate 0.001": {"encoder.norm": "batch", "train.learning_rate": 1e-3},
    "twice as wide": WIDE,
    "twice as wide, rate 0.001": {**WIDE, "train.learning_rate": 1e-3},
    "temperature 0.4": {"method.temperature": 0.4},
}
LIKE_BGRL = "as BGRL in the paper"


def candidates(dataset: str) -> dict[str, Recipe]:
    row, own = recipe_of("grace", dataset).with_settings({"encoder.norm": "none"}), load_recipe(dataset)
    method = {f"method.{name}": getattr(row.method, name) for name in ("name", "temperature")}
    return {
        **{name: row.with_settings(settings) for name, settings in CANDIDATES.items()},
        LIKE_BGRL: own.with_settings({**method, "method.projector_size": own.encoder.embedding_size}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="amazon-computers")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, help="[default: the row's]")
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    graph, device, ledger = gs.load(given.dataset), resolve_device(given.device), Ledger(given.to)
    for name, recipe in candidates(graph.name).items():
        recipe = recipe if given.steps is None else recipe.with_settings({"train.steps": given.steps})
        cell = {"dataset": graph.name, "variant": name, "settings": settings_digest(recipe, "tune-grace")}
        if not ledger.find(seed=SEEDS[0], **cell):
            models = fit_seeds(gs.Embedder(recipe=recipe, device=device.type), graph, seeds=SEEDS)
            found = tuning_scores([embed_on_device(model, graph) for model in models], graph)
            shared = {**cell, "recipe": changed_settings(recipe), **where_from(device)}
            ledger.add([{**shared, "seed": seed, "validation": one} for seed, one in zip(SEEDS, found, strict=True)])
        values = [row["validation"] for row in ledger.rows if row["settings"] == cell["settings"]]
        print(f"{mean(values):6.2f}  {name}", flush=True)


if __name__ == "__main__":
    main()
