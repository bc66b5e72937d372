"""The `default` recipe against raw features and an untrained encoder, on every homogeneous graph at hand.

    python benchmarks/defaults.py --seeds 3 --device auto        # GRAPHSTRAP_DATA names the folder of graphs

Protocol `paper` (fit on 10 %, choose on 10 %, test on 80 %), 5 random splits for each seed. Writes
results/defaults.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import graphstrap as gs
from graphstrap.datasets import describe
from graphstrap.environment import describe_environment, describe_git
from graphstrap.estimator import random_init

RESULTS = Path(__file__).parent / "results" / "defaults.json"


def homogeneous_graphs() -> list[str]:
    names = [info.name for info in describe() if info.on_disk]
    return [name for name in names if not name.startswith("hetero") and name != "arxiv-like"]


def measure(name: str, *, num_seeds: int, device: str) -> dict[str, Any]:
    graph = gs.load(name)
    recipe = gs.BGRL(device=device).resolve(graph)
    row: dict[str, Any] = {"graph": name, "seconds": [], "bgrl": [], "random_init": []}
    row["raw"] = None if graph.x is None else gs.evaluate(graph.x, graph).mean
    for seed in range(num_seeds):
        started = time.perf_counter()
        model = gs.BGRL(seed=seed, device=device).fit(graph)
        row["seconds"].append(round(time.perf_counter() - started, 1))
        row["bgrl"].append(gs.evaluate(model.embed(graph), graph, seed=seed).mean)
        untrained = random_init(graph, recipe, seed=seed, device=device)
        row["random_init"].append(gs.evaluate(untrained, graph, seed=seed).mean)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.graphs or homogeneous_graphs():
        row = measure(name, num_seeds=arguments.seeds, device=arguments.device)
        rows.append(row)
        means = [np.mean(row[key]) for key in ("raw", "random_init", "bgrl")]
        spread = np.std(row["bgrl"])
        print(
            f"{name:22s} raw {means[0]:6.2f}  random init {means[1]:6.2f}  bgrl {means[2]:6.2f} ± {spread:.2f}",
            flush=True,
        )
        result = {"protocol": "paper", "num_splits": 5, "environment": describe_environment(), "git": describe_git()}
        arguments.to.write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
