"""Computing cells: train what a row asks for, evaluate it under every protocol, and note what it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphstrap.baselines import evaluate_label_propagation, evaluate_supervised
from graphstrap.bench.memory import PeakMemory
from graphstrap.environment import describe_environment, describe_git
from graphstrap.estimator import BGRL, random_init
from graphstrap.evaluate import Evaluation, evaluate_many
from graphstrap.graph import Graph
from graphstrap.methods.skip_gram import with_features
from graphstrap.methods.supervised import SupervisedSettings
from graphstrap.ops import resolve_device
from graphstrap.reproduce.ledger import Row
from graphstrap.reproduce.memory import available_bytes, refusal
from graphstrap.reproduce.variants import VARIANTS, recipe_of, settings_id
from graphstrap.seeds import fit_seeds

Embeddings = list[Any]  # one for each seed: tensors, arrays or sparse matrices


def protocols_of(dataset: str) -> tuple[str, ...]:
    """Published splits where the paper uses them, else both random protocols."""
    return ("public",) if dataset in ("ogbn-arxiv", "wikics") else ("reference", "paper")


def compute_cells(
    graph: Graph,
    variant: str,
    *,
    seeds: Sequence[int],
    device: str = "auto",
    quick: bool = False,
    memory_limit: int | None = None,
    progress: bool = False,
) -> list[Row]:
    """One row for each seed. A method that does not fit gives rows that say so."""
    where = resolve_device(device)
    recipe = recipe_of(variant, graph.name, quick=quick)
    limit = memory_limit if memory_limit is not None else available_bytes(where)
    refused = refusal(graph, recipe, limit=limit) if VARIANTS[variant].kind == "trained" else None
    found: dict[str, Any]
    if refused is not None:
        found = {"oom": refused}
    else:
        try:
            found = _compute(graph, variant, seeds=seeds, device=where, quick=quick, progress=progress)
        except torch.OutOfMemoryError:
            found = {"oom": f"OOM: more than {(limit or 0) / 1e9:.0f} GB"}
    shared = {
        "dataset": graph.name,
        "variant": variant,
        "settings": settings_id(variant, graph.name, quick=quick),
        "quick": quick,
        "device": where.type,
        "time": int(time.time()),
        "environment": describe_environment(),
        "git": describe_git(),
        "memory_limit": memory_limit,
    }
    per_seed = found.pop("per_seed", [{} for _ in seeds])
    return [{**shared, **found, **own, "seed": seed} for seed, own in zip(seeds, per_seed, strict=True)]


def _compute(
    graph: Graph, variant: str, *, seeds: Sequence[int], device: torch.device, quick: bool, progress: bool
) -> dict[str, Any]:
    num_runs = 3 if quick else 5
    kind = VARIANTS[variant].kind
    if kind in ("label-propagation", "supervised-gcn", "supervised-mlp"):
        return _evaluate_directly(graph, kind, seeds=seeds, num_runs=num_runs, device=device, quick=quick)
    started = time.perf_counter()
    with PeakMemory(device) as memory:
        embeddings = _embed(graph, variant, seeds=seeds, device=device, quick=quick, progress=progress)
    trained = time.perf_counter()
    by_protocol = {
        protocol: evaluate_many(embeddings, graph, protocol=protocol, num_runs=num_runs, seeds=seeds)
        for protocol in protocols_of(graph.name)
    }
    return {
        "train_seconds": round((trained - started) / len(seeds), 3),
        "evaluate_seconds": round((time.perf_counter() - trained) / len(seeds), 3),
        "peak_bytes": memory.peak_bytes if device.type == "cuda" else None,
        "seeds_together": len(seeds),
        "per_seed": [_accuracies({name: runs[i] for name, runs in by_protocol.items()}) for i in range(len(seeds))],
    }


def _embed(
    graph: Graph, variant: str, *, seeds: Sequence[int], device: torch.device, quick: bool, progress: bool
) -> Embeddings:
    row, recipe = VARIANTS[variant], recipe_of(variant, graph.name, quick=quick)
    if row.kind == "raw":
        return [graph.x for _ in seeds]
    if row.kind == "random-init":
        found = [torch.from_numpy(random_init(graph, recipe, seed=seed, device=str(device))) for seed in seeds]
    else:
        estimator = BGRL(recipe=recipe, device=str(device))
        fitted = fit_seeds(estimator, graph, seeds=seeds, progress=progress)
        found = [torch.from_numpy(one.embed(graph)) for one in fitted]
    if row.append_features:
        return [with_features(h, graph) for h in found]
    return [h.to(device) for h in found]


def _evaluate_directly(
    graph: Graph, kind: str, *, seeds: Sequence[int], num_runs: int, device: torch.device, quick: bool
) -> dict[str, Any]:
    """Of methods that learn from the labels themselves."""
    settings = SupervisedSettings(max_steps=100) if quick else SupervisedSettings()
    encoder = kind.removeprefix("supervised-")

    def evaluate(protocol: str, seed: int) -> Evaluation:
        options: dict[str, Any] = {"protocol": protocol, "num_runs": num_runs, "seed": seed, "device": str(device)}
        if kind == "label-propagation":
            return evaluate_label_propagation(graph, **options)
        return evaluate_supervised(graph, encoder=encoder, settings=settings, **options)

    started = time.perf_counter()
    protocols = protocols_of(graph.name)
    per_seed = [_accuracies({protocol: evaluate(protocol, seed) for protocol in protocols}) for seed in seeds]
    return {"train_seconds": round((time.perf_counter() - started) / len(seeds), 3), "per_seed": per_seed}


def _accuracies(by_protocol: dict[str, Evaluation]) -> dict[str, Any]:
    """The mean over splits of each protocol, and the splits."""
    means = {protocol: one.mean for protocol, one in by_protocol.items()}
    return {"accuracy": means, "runs": {protocol: list(one.runs) for protocol, one in by_protocol.items()}}


def summarize(rows: Sequence[Row], *, protocol: str) -> tuple[float, float, int] | None:
    """Mean and deviation over seeds, and their number; None where there is nothing."""
    values = [row["accuracy"][protocol] for row in rows if protocol in row.get("accuracy", {})]
    if not values:
        return None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, len(values)
