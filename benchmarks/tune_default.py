"""How `default` was chosen: by validation accuracy on every homogeneous graph at hand, each left out in its turn.

    python benchmarks/tune_default.py train --device cuda       # GRAPHSTRAP_DATA names the folder of graphs
    python benchmarks/tune_default.py choose                    # reads results/tune_default.json

The candidates below were written down before any of them was trained. Each is trained on each graph; what may be
appended to its embedding is tried on the same embedding. A probe is fitted on 10 % of the labelled nodes and scored on
the next 10 %, 3 random splits; no candidate is scored on test nodes. `choose` says, for each graph, which candidate and
which rule for appending is best on all the others; what is best on all of them is the recipe that is shipped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import graphstrap as gs
from graphstrap.datasets import describe
from graphstrap.defaults import Statistics, choose_recipe
from graphstrap.environment import describe_environment, describe_git
from graphstrap.evaluate import protocols
from graphstrap.evaluate._splits import tenths
from graphstrap.graph import Graph
from graphstrap.ops import propagate, resolve_device
from graphstrap.own_features import OwnFeatures
from graphstrap.view import CLEAN

RESULTS = Path(__file__).parent / "results" / "tune_default.json"
NUM_SPLITS = 3

# What differs from the recipe of `defaults.choose_recipe` for the graph; masking and dropping are scaled, not replaced.
CANDIDATES: dict[str, dict[str, Any]] = {
    **{f"mask x {m}, drop x {d}": {"mask": m, "drop": d} for m, d in itertools.product((0.5, 1.0, 1.5), repeat=2)},
    "1000 steps": {"settings": {"train.steps": 1000, "train.warmup_steps": 100}},
    "rate 0.003": {"settings": {"train.learning_rate": 3e-3}},
    "256-128": {"settings": {"encoder.hidden_sizes": [256], "encoder.embedding_size": 128}},
    "512-256": {"settings": {"encoder.hidden_sizes": [512], "encoder.embedding_size": 256}},
    "one layer": {"settings": {"encoder.hidden_sizes": [], "encoder.embedding_size": 256}},
    "layer norm": {"settings": {"encoder.norm": "layer"}},
}
# Columns of a node's own features, and of features averaged over two hops, appended to the embedding.
APPENDED = {"nothing": (0, 0), "own 64": (64, 0), "own 256": (256, 0), "own 64, hops 64": (64, 64)}
THRESHOLDS = (0.0, 0.02, 0.05, 0.1, 2.0)  # append where linked nodes are less alike than this


def homogeneous_graphs() -> list[str]:
    return [info.name for info in describe() if info.on_disk and not info.name.startswith("hetero")]


def settings_of(graph: Graph, candidate: dict[str, Any]) -> dict[str, Any]:
    recipe = choose_recipe(graph)[0]
    scale = {"feature_mask_probs": candidate.get("mask", 1.0), "edge_drop_probs": candidate.get("drop", 1.0)}
    views = {f"views.{name}": [factor * p for p in getattr(recipe.views, name)] for name, factor in scale.items()}
    return {"encoder.own_features": 0, **views, **candidate.get("settings", {})}


def appended(h: Tensor, graph: Graph) -> Iterator[tuple[str, Tensor]]:
    """The embedding with each kind of columns, rows of length 1 in each part; the graph's features are prepared."""
    for name, (own, hops) in APPENDED.items():
        parts = [F.normalize(h, dim=1)]
        for size, num_hops in ((own, 0), (hops, 2)):
            if size and graph.x is not None:
                parts.append(compressed(graph, size, num_hops).to(h.device))
        yield name, torch.cat(parts, dim=1)


def compressed(graph: Graph, size: int, num_hops: int) -> Tensor:
    x = OwnFeatures.fit(graph, num_columns=size).append_to(torch.zeros(graph.num_nodes, 0), graph)
    for _ in range(num_hops):
        x = propagate(graph, CLEAN, x)
    return F.normalize(x, dim=1)


def validation_scores(embeddings: Sequence[Tensor], graph: Graph) -> list[float]:
    tasks = [protocols._task(h, graph, num_runs=NUM_SPLITS, seed=0, solver="newton") for h in embeddings]
    splits = [protocols._random_splits(task, tenths) for task in tasks]
    blind = [[split._replace(test=split.val) for split in own] for own in splits]
    return [100.0 * float(np.mean(runs)) for runs in protocols._probe_runs(tasks, blind)]


def measure(name: str, *, device: str) -> Iterator[dict[str, Any]]:
    graph, place = gs.load(name), resolve_device(device)
    for label, candidate in CANDIDATES.items():
        started = time.perf_counter()
        model = gs.BGRL(settings=settings_of(graph, candidate), seed=0, device=device).fit(graph)
        seconds = round(time.perf_counter() - started, 2)
        prepared = model.model_.transform(graph)
        names, tables = zip(*appended(torch.from_numpy(model.embed(graph)).to(place), prepared), strict=True)
        scores = dict(zip(names, validation_scores(tables, graph), strict=True))
        yield {"graph": name, "candidate": label, "seconds": seconds, "validation": scores}


def train(arguments: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for name in arguments.graphs or homogeneous_graphs():
        likeness = Statistics.of(gs.load(name)).likeness
        for row in measure(name, device=arguments.device):
            rows.append({**row, "likeness": likeness})
            print(*rows[-1].values(), flush=True)
            result = {"environment": describe_environment(), "git": describe_git(), "rows": rows}
            arguments.to.write_text(json.dumps(result, indent=1) + "\n")


def choose(arguments: argparse.Namespace) -> None:
    rows = json.loads(arguments.to.read_text())["rows"]
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    rules = list(itertools.product(CANDIDATES, APPENDED, THRESHOLDS))
    table = np.array([[score(rows, graph, *rule) for rule in rules] for graph in graphs])
    table -= table.mean(axis=1, keepdims=True)  # graphs differ in difficulty, which no rule can change
    for left_out in range(len(graphs)):
        best = int(np.delete(table, left_out, axis=0).mean(axis=0).argmax())
        print(f"{graphs[left_out]:22s} {rules[best]}")
    order = np.argsort(-table.mean(axis=0))[:12]
    for place in order:
        print(f"{table.mean(axis=0)[place]:+.3f} (worst {table[:, place].min():+.2f})  {rules[place]}")


def score(rows: Sequence[dict[str, Any]], graph: str, candidate: str, kind: str, threshold: float) -> float:
    row = next(row for row in rows if (row["graph"], row["candidate"]) == (graph, candidate))
    return float(row["validation"][kind if row["likeness"] < threshold else "nothing"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "choose"])
    parser.add_argument("--graphs", nargs="*", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    {"train": train, "choose": choose}[arguments.what](arguments)


if __name__ == "__main__":
    main()
