"""Frozen linear probe on the paper's graphs after full training by the paper's recipes.

    python benchmarks/paper_sets.py --graphs amazon-photo amazon-computers --seeds 3 --device cuda

For every seed: 10,000 steps, then the protocols `reference` and `paper`, 5 random splits each. Writes
    results/paper_sets.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphstrap as gs
from graphstrap.environment import describe_environment, describe_git

RESULTS = Path(__file__).parent / "results" / "paper_sets.json"


def measure(name: str, *, seed: int, recipe: str, device: str, steps: int | None) -> dict[str, Any]:
    graph = gs.load(name)
    settings: dict[str, Any] = {} if steps is None else {"train.steps": steps}
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    model = gs.BGRL(recipe=recipe, seed=seed, device=device, settings=settings).fit(graph)
    seconds = time.perf_counter() - started
    h = model.embed(graph)
    row: dict[str, Any] = {"graph": name, "recipe": recipe, "seed": seed, "train_seconds": round(seconds, 1)}
    row["peak_gpu_bytes"] = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    for protocol in ("reference", "paper"):
        row[protocol] = gs.evaluate(h, graph, protocol=protocol, seed=seed).mean
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["amazon-photo", "amazon-computers"])
    parser.add_argument("--recipe", default=None, help="the graph's own by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.graphs:
        for seed in range(arguments.seeds):
            recipe = arguments.recipe or name
            rows.append(measure(name, seed=seed, recipe=recipe, device=arguments.device, steps=arguments.steps))
            print(rows[-1], flush=True)
            result = {"num_splits": 5, "environment": describe_environment(), "git": describe_git(), "rows": rows}
            arguments.to.write_text(json.dumps(result, indent=1) + "\n")
        for protocol in ("reference", "paper"):
            values = [row[protocol] for row in rows if row["graph"] == name]
            print(
                f"{name} {protocol}: {np.mean(values):.2f} ± {np.std(values):.2f} over {len(values)} seeds", flush=True
            )


if __name__ == "__main__":
    main()
