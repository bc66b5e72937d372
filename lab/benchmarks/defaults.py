"""The `default` recipe against raw features and an untrained encoder, on every homogeneous graph at hand.

    python lab/benchmarks/defaults.py --seeds 5 --device auto --minutes 9  # GRAPHSTRAP_DATA names the folder of graphs

Protocol `paper` (fit on 10 %, choose on 10 %, test on 80 %), 5 random splits for each seed, the same for all three; the
seeds of a graph are trained in one program. What an earlier run found for raw features of many columns is kept, as far
as it is of the same seeds: it depends on nothing here. Writes results/defaults.json and the table of
docs/default-recipe.md; the same command goes on with what is missing.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphstrap as gs
from graphstrap.api.embed import embed_seeds
from graphstrap.api.ensemble import fit_seeds
from graphstrap.api.estimator import random_init
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.datasets import describe
from graphstrap.nn.features import raw_features
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.default_page import update_default_page, verdict_of
from graphstrap_lab.bench.record import kept_rows, read_record, write_record
from graphstrap_lab.reproduce.deadline import Deadline, TimeUpError
from graphstrap_lab.reproduce.variants import changed_settings

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "lab" / "benchmarks" / "results" / "defaults.json"
PAGE = REPOSITORY / "docs" / "default-recipe.md"
MANY_COLUMNS = 2048


def homogeneous_graphs() -> list[str]:
    names = [info.name for info in describe() if info.on_disk]
    return [name for name in names if not name.startswith("hetero") and name != "arxiv-like"]


def measure(graph: Graph, recipe: Recipe, *, seeds: Sequence[int], device: torch.device, raw: Any) -> dict[str, Any]:
    """A row: accuracies by seed. `raw` is what is known of raw features, None for nothing."""
    started = time.perf_counter()
    models = fit_seeds(gs.Embedder(recipe=recipe, device=device.type), graph, seeds=seeds)
    seconds = round((time.perf_counter() - started) / len(seeds), 2)
    trained = embed_seeds([model.model_ for model in models], graph, device=device)
    untrained = [torch.from_numpy(random_init(graph, recipe, seed=s, device=device.type)).to(device) for s in seeds]
    means = [one.mean for one in evaluate_many([*trained, *untrained], graph, seeds=[*seeds, *seeds])]
    return {
        "graph": graph.name,
        "seconds": seconds,
        "recipe": plain(recipe),
        "raw": raw_accuracies(graph, seeds=seeds, device=device) if raw is None else raw,
        "random_init": means[len(seeds) :],
        "bgrl": means[: len(seeds)],
    }


def plain(recipe: Recipe) -> dict[str, Any]:
    """As it comes back from a file."""
    settings: dict[str, Any] = json.loads(json.dumps(changed_settings(recipe)))
    return settings


def raw_accuracies(graph: Graph, *, seeds: Sequence[int], device: torch.device) -> list[float] | None:
    """Of every seed's splits; None without features."""
    x = raw_features(graph)
    if x is None:
        return None
    x = x.to_dense() if isinstance(x, SparseMatrix) and x.shape[1] <= MANY_COLUMNS else x
    tables = [x.to(device) if isinstance(x, torch.Tensor) else x] * len(seeds)
    return [one.mean for one in evaluate_many(tables, graph, seeds=seeds)]


def known_raw(path: Path) -> dict[str, Any]:
    """What an earlier file says of raw features, by graph."""
    record = read_record(path) if path.exists() else {"rows": []}
    return {**record.get("raw", {}), **{row["graph"]: row["raw"] for row in record["rows"]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="*", default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many; finished graphs stay")
    parser.add_argument("--to", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    device, seeds = resolve_device(arguments.device), range(arguments.seeds)
    options = {"num_seeds": arguments.seeds, "device": device.type}
    rows, raw = kept_rows(arguments.to, options=options), known_raw(arguments.to)
    try:
        with Deadline(arguments.minutes).enforced():
            for name in arguments.graphs or homogeneous_graphs():
                graph = gs.load(name)
                recipe = gs.Embedder(device=device.type).resolve(graph)
                if any(row["graph"] == name and row["recipe"] == plain(recipe) for row in rows):
                    continue
                has_many = graph.x is not None and graph.x.shape[1] > MANY_COLUMNS
                known = raw.get(name) if has_many and np.size(raw.get(name, ())) == len(seeds) else None
                row = measure(graph, recipe, seeds=seeds, device=device, raw=known)
                rows = [*(other for other in rows if other["graph"] != name), row]
                print(f"{name:22s} {np.mean(row['bgrl']):.2f} {verdict_of(row)} {row['seconds']} s", flush=True)
                command, kept = shlex.join(["python", *sys.argv]), {"options": options, "raw": raw}
                write_record(arguments.to, bench="defaults", command=command, rows=rows, protocol="paper", **kept)
    except TimeUpError:
        print("stopped: the time is up; the same command goes on from here")
    if arguments.to.exists():
        update_default_page(arguments.page, results=arguments.to)


if __name__ == "__main__":
    main()
