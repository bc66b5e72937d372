"""Cells that `graphstrap bench table` has measured already: BGRL by the paper's recipes, in the same way as here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphstrap.run.recipe import load_recipe
from graphstrap_lab.bench.record import read_record
from graphstrap_lab.bench.table import recipe_hash
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.variants import changed_settings, settings_id


def cells_of_table(path: Path) -> Iterator[Row]:
    """The rows of a result file as rows of the ledger; those of other recipes, or of older ones, are left out."""
    record = read_record(path)
    environment: dict[str, Any] = record["environment"]
    names = ("graphstrap", "python", "torch", "triton", "scikit-learn")
    for row in record["rows"]:
        name, recipe = row["graph"], load_recipe(row["recipe"])
        if row["recipe"] != name or row["recipe_hash"] != recipe_hash(recipe) or row["steps"] is not None:
            continue
        yield {
            "dataset": name,
            "variant": "bgrl",
            "settings": settings_id("bgrl", name, quick=False),
            "seed": row["seed"],
            "recipe": changed_settings(recipe),
            "quick": False,
            "accuracy": {protocol: round(row[protocol], 4) for protocol in ("reference", "paper")},
            "train_seconds": row["train_seconds"],
            "evaluate_seconds": row["evaluate_seconds"],
            "peak_bytes": row["peak_gpu_bytes"],
            "seeds_together": row["num_together"],
            "device": "cpu" if row["peak_gpu_bytes"] is None else "cuda",
            "hardware": environment["gpu"] or environment["processor"],
            "versions": {name: environment[name] for name in names if name in environment},
            "git": {"sha": row["sha"], "changed": bool((record["git"] or {}).get("changed"))},
            "measured_by": record["command"],
            "imported": datetime.now(UTC).strftime("%Y-%m-%d"),
        }
