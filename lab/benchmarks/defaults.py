"""The `default` recipe against raw features and an untrained encoder, on every homogeneous graph at hand.

    python lab/benchmarks/defaults.py --seeds 5 --device auto --minutes 9  # GRAPHSTRAP_DATA names the folder of graphs

Protocol `paper` (fit on 10 %, choose on 10 %, test on 80 %), 5 random splits for each seed, the same for all three; the
seeds of a graph are trained in one program. What an earlier run found for raw features is kept: it depends on nothing
here. Writes results/defaults.json; the same command goes on with what is missing. `pages.py` makes the table of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch

import graphstrap as gs
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn.features import raw_features
from graphstrap.ops import resolve_device
from graphstrap_lab.reproduce.variants import changed_settings
from harness import RESULTS, Record, beside_random_init, homogeneous_graphs, run, within

MANY_COLUMNS = 2048


def raw_accuracies(graph: Graph, *, seeds: Sequence[int], device: torch.device) -> list[float] | None:
    """Of every seed's splits; None without features."""
    x = raw_features(graph)
    if x is None:
        return None
    x = x.to_dense() if isinstance(x, SparseMatrix) and x.shape[1] <= MANY_COLUMNS else x
    tables = [x.to(device) if isinstance(x, torch.Tensor) else x] * len(seeds)
    return [one.mean for one in evaluate_many(tables, graph, seeds=seeds)]


def main(
    *,
    graphs: Sequence[str] = (),
    seeds: int = 5,
    device: str = "auto",
    minutes: float | None = None,
    to: Path = RESULTS / "defaults.json",
) -> None:
    place, numbers = resolve_device(device), range(seeds)
    record = Record(to, "defaults", options={"num_seeds": seeds, "device": place.type}, protocol="paper")
    with within(minutes):
        for name in graphs or homogeneous_graphs():
            graph = gs.load(name)
            estimator = gs.Embedder(device=place.type)
            recipe = json.loads(json.dumps(changed_settings(estimator.resolve(graph))))  # as it comes back from a file
            earlier = [row for row in record.rows if row["graph"] == name]
            if earlier and earlier[0]["recipe"] == recipe:
                continue
            raw = earlier[0]["raw"] if earlier else raw_accuracies(graph, seeds=numbers, device=place)
            found = beside_random_init(estimator, graph, seeds=numbers, split_seeds=numbers, protocol="paper")
            record.rows = [row for row in record.rows if row["graph"] != name]
            record.add({"graph": name, "recipe": recipe, "raw": raw, **found})


if __name__ == "__main__":
    run(main)
