"""GRACE on Amazon Computers, where the settings of its authors' next paper miss the number: others, by validation.

    python benchmarks/tune_grace.py --device cuda                  # GRAPHSTRAP_DATA has the graph
    python benchmarks/tune_grace.py --device cpu --steps 2         # whether it runs

The candidates were written down before any of them was trained. They are scored as in `tune_best.py`: within a fixed
half of the labelled nodes, so that the labels which the table is tested on choose nothing. 3 splits, 2 seeds. Rows go
to results/tune_grace.jsonl as they come; the same command goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from typing import Any

from tune_best import SEEDS, scores

import graphstrap as gs
from graphstrap.ops import resolve_device
from graphstrap.reproduce.cells import where_from
from graphstrap.reproduce.ledger import Ledger
from graphstrap.reproduce.variants import changed_settings, recipe_of, settings_digest
from graphstrap.seeds import embed_on_device, fit_seeds

RESULTS = Path(__file__).parent / "results" / "tune_grace.jsonl"
WIDE = {"encoder.hidden_sizes": (512,), "encoder.embedding_size": 256}
CANDIDATES: dict[str, dict[str, Any]] = {
    "as in the table": {},
    "rate 0.001": {"train.learning_rate": 1e-3},
    "batch norm": {"encoder.norm": "batch"},
    "batch norm, rate 0.001": {"encoder.norm": "batch", "train.learning_rate": 1e-3},
    "twice as wide": WIDE,
    "twice as wide, rate 0.001": {**WIDE, "train.learning_rate": 1e-3},
    "temperature 0.4": {"method.temperature": 0.4},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="amazon-computers")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, help="[default: the row's]")
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    graph, device, ledger = gs.load(given.dataset), resolve_device(given.device), Ledger(given.to)
    for name, settings in CANDIDATES.items():
        recipe = recipe_of("grace", graph.name).with_settings(settings)
        recipe = recipe if given.steps is None else recipe.with_settings({"train.steps": given.steps})
        cell = {"dataset": graph.name, "variant": name, "settings": settings_digest(recipe, "tune-grace")}
        if not ledger.find(seed=SEEDS[0], **cell):
            models = fit_seeds(gs.BGRL(recipe=recipe, device=device.type), graph, seeds=SEEDS)
            found = scores([embed_on_device(model, graph) for model in models], graph)
            shared = {**cell, "recipe": changed_settings(recipe), **where_from(device)}
            ledger.add([{**shared, "seed": seed, "validation": one} for seed, one in zip(SEEDS, found, strict=True)])
        values = [row["validation"] for row in ledger.rows if row["settings"] == cell["settings"]]
        print(f"{mean(values):6.2f}  {name}", flush=True)


if __name__ == "__main__":
    main()
