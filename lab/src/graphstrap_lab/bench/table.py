"""`graphstrap bench table`: train by the paper's recipes, evaluate by the protocols `reference` and `paper`.

One row for each graph and seed. Every row is written as soon as it is known, and a row that is in the file already is
not measured again, so that a run that was cut goes on where it stopped; a row whose recipe has changed since is.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from graphstrap.api.ensemble import embed_on_device, fit_seeds
from graphstrap.api.estimator import Embedder
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.ops import resolve_device
from graphstrap.run.environment import describe_git
from graphstrap.run.recipe import Recipe, shipped_recipes
from graphstrap_lab.bench.graphs import precision_settings
from graphstrap_lab.bench.record import read_record, write_record

PROTOCOLS = ("reference", "paper")
NUM_SPLITS = 5
PAPER_GRAPHS = ("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics")
_KEYS = ("graph", "recipe", "steps", "precision")


def measure_table(
    names: Sequence[str],
    *,
    num_seeds: int,
    device: str = "auto",
    together: int | None = None,
    recipe: str | None = None,
    steps: int | None = None,
    precision: str | None = None,
    to: Path | None = None,
    command: str = "",
) -> Iterator[tuple[dict[str, Any], bool]]:
    """Rows graph by graph, each with whether it was measured just now (True) or found in the file.

    `together` seeds are trained in one program: by default all of them on CUDA, one after the other on a CPU.
    """
    together = together or (num_seeds if resolve_device(device).type == "cuda" else 1)
    rows = read_record(to)["rows"] if to is not None and to.exists() else []
    for name in names:
        graph = load(name)
        chosen = recipe or (name if name in shipped_recipes() else "default")
        way = {"graph": name, "recipe": chosen, "steps": steps, "precision": precision or "auto"}
        way["recipe_hash"] = recipe_hash(_estimator(way, device).resolve(graph))
        found = {row["seed"]: row for row in rows if way.items() <= row.items() and row["seed"] < num_seeds}
        yield from ((found[seed], False) for seed in sorted(found))
        missing = [seed for seed in range(num_seeds) if seed not in found]
        rows = [row for row in rows if not (row["seed"] in missing and _key(row) == _key(way))]  # of an older recipe
        for first in range(0, len(missing), together):
            for row in measure_seeds(graph, way, missing[first : first + together], device=device):
                rows.append(row)
                if to is not None:
                    write_record(to, bench="table", command=command, rows=rows, num_splits=NUM_SPLITS)
                yield row, True


def measure_seeds(graph: Graph, way: dict[str, Any], seeds: Sequence[int], *, device: str) -> Iterator[dict[str, Any]]:
    """Train these seeds in one program and evaluate them together. Seconds are the program's, shared out."""
    on_cuda = resolve_device(device).type == "cuda"
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    models = fit_seeds(_estimator(way, device), graph, seeds=seeds, progress=False)
    shared = {
        **way,
        "num_together": len(seeds),
        "train_seconds": round((time.perf_counter() - started) / len(seeds), 2),
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if on_cuda else None,
        "sha": (describe_git() or {}).get("sha"),
    }
    started = time.perf_counter()
    embeddings = [embed_on_device(model, graph) for model in models]
    found = {
        protocol: evaluate_many(embeddings, graph, protocol=protocol, num_runs=NUM_SPLITS, seeds=seeds)
        for protocol in PROTOCOLS
    }
    shared["evaluate_seconds"] = round((time.perf_counter() - started) / len(seeds), 2)
    for place, seed in enumerate(seeds):
        yield {**shared, "seed": seed, **{protocol: found[protocol][place].mean for protocol in PROTOCOLS}}


def summarize(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each graph and way of training: mean and standard deviation over seeds, mean seconds of a seed, and
    the memory of the program that trained `num_together` of them."""
    lines = []
    for key in dict.fromkeys(_key(row) for row in rows):
        chosen = [row for row in rows if _key(row) == key]
        line: dict[str, Any] = {**dict(zip(_KEYS, key, strict=True)), "num_seeds": len(chosen)}
        for protocol in PROTOCOLS:
            values = [row[protocol] for row in chosen]
            line[protocol] = statistics.fmean(values)
            line[f"{protocol}_std"] = statistics.stdev(values) if len(values) > 1 else 0.0
        line["train_seconds"] = statistics.fmean(row["train_seconds"] for row in chosen)
        line["num_together"] = max(row.get("num_together", 1) for row in chosen)
        line["peak_gpu_bytes"] = max((row["peak_gpu_bytes"] or 0 for row in chosen), default=0) or None
        lines.append(line)
    return lines


def _estimator(way: dict[str, Any], device: str) -> Embedder:
    settings = {} if way["precision"] == "auto" else precision_settings(way["precision"])
    if way["steps"] is not None:
        settings["train.steps"] = way["steps"]
    return Embedder(recipe=way["recipe"], device=device, settings=settings)


def recipe_hash(recipe: Recipe) -> str:
    """A recipe that has changed since makes the row stale."""
    return hashlib.blake2b(recipe.to_toml().encode(), digest_size=8).hexdigest()


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Rows of older files lack some keys, which then had no other value than the usual."""
    usual = {"steps": None, "precision": "auto"}
    return tuple(row.get(key, usual.get(key)) for key in _KEYS)
