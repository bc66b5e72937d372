"""Computing cells: train what a row asks for, evaluate it under every protocol, and note what it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphstrap.api.baselines import evaluate_label_propagation, evaluate_supervised
from graphstrap.api.embed import embed_seeds
from graphstrap.api.ensemble import fit_seeds
from graphstrap.api.estimator import Embedder, random_init
from graphstrap.errors import InputError
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.evaluation.registry import Evaluation
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.graph.keep import fingerprint_of
from graphstrap.nn.methods.skip_gram import with_features
from graphstrap.ops import resolve_device
from graphstrap.ops.memory import free_memory, held_by_others
from graphstrap.run.environment import describe_environment, describe_git
from graphstrap_lab.bench.memory import PeakMemory
from graphstrap_lab.bench.scale import is_out_of_memory
from graphstrap_lab.reproduce.beside_recipes import supervised_settings
from graphstrap_lab.reproduce.blind import UNTOUCHED, untouched_accuracies
from graphstrap_lab.reproduce.curves import NUM_CURVE_SEEDS, NUM_POINTS, has_curve, thin_curve
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.memory import as_published, estimate_beside, refusal, refusal_text
from graphstrap_lab.reproduce.variants import VARIANTS, changed_settings, name_in_ledger, recipe_of, settings_id

Embeddings = list[Any]  # one for each seed: tensors, arrays or sparse matrices
_DENSE_COLUMNS = 2048
_HELD_BY_FEW = 2e9  # bytes: what drivers and a desktop take
_PUBLISHED_SPLITS = {"wikics": ("public",), "ogbn-arxiv": ("adamw",), "ppi": ("adamw", "adamw-reference")}
ON_VALIDATION = ", validation nodes"  # what the ledger calls a protocol's accuracy on these
_PACKAGES = ("graphstrap", "python", "torch", "triton", "scikit-learn")


def protocols_of(dataset: str) -> tuple[str, ...]:
    """Published splits where the paper uses them, else both random protocols."""
    return _PUBLISHED_SPLITS.get(dataset, ("reference", "paper"))


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
    """One row for each seed, all of them trained and evaluated together. A method that does not fit gives rows that
    say so."""
    where, recipe = resolve_device(device), recipe_of(variant, graph.name, quick=quick)
    limit = memory_limit if memory_limit is not None else free_memory(where)
    refused = refusal_of(graph, variant, device=where, quick=quick, memory_limit=memory_limit)
    found: dict[str, Any] = {"oom": refused}
    if refused is None:
        try:
            found = _compute(graph, variant, seeds=seeds, device=where, quick=quick, progress=progress)
        except RuntimeError as error:
            if len(seeds) > 1 or not is_out_of_memory(error):
                raise
            found = {"oom": f"OOM: more than {limit / 1e9:.2g} GB"}
    if found.get("oom"):
        found["free_bytes"] = free_memory(where)
    if found.get("oom") and memory_limit is None and held_by_others(where) > _HELD_BY_FEW:
        held = held_by_others(where) / 1e9
        raise InputError(f"{found['oom']}, while others hold {held:.0f} GB of the GPU: again when they have ended")
    shared = {
        "dataset": graph.name,
        "graph": identity_of(graph),
        "variant": name_in_ledger(variant),
        "settings": settings_id(variant, graph.name, quick=quick),
        "recipe": changed_settings(recipe),
        "quick": quick,
        "memory_limit": memory_limit,
        **where_from(where),
    }
    per_seed = found.pop("per_seed", [{} for _ in seeds])
    return [{**shared, **found, **own, "seed": seed} for seed, own in zip(seeds, per_seed, strict=True)]


def identity_of(graph: Graph) -> str:
    """Tells a graph from another of its name: by all that training sees, labels and splits."""
    splits = () if graph.splits is None else (graph.splits.train, graph.splits.val, graph.splits.test)
    beside = [tensor for tensor in (graph.labels, *splits) if tensor is not None]
    return f"{graph.fingerprint}-{fingerprint_of((), np.empty(0), beside)[:8]}"


def refusal_of(
    graph: Graph, variant: str, *, device: torch.device, quick: bool, memory_limit: int | None
) -> str | None:
    """Why a row is not trained: the memory that it would take, more than the limit or, without one, than is free."""
    kind, recipe = VARIANTS[variant].kind, recipe_of(variant, graph.name, quick=quick)
    limit, on_cpu = free_memory(device), device.type == "cpu"
    if memory_limit is not None:  # imitates the paper's runs, on a GPU
        limit, on_cpu, recipe = memory_limit, False, as_published(recipe)
    if kind == "trained":
        return refusal(graph, recipe, limit=limit, on_cpu=on_cpu)
    return refusal_text(estimate_beside(graph, recipe, kind, on_cpu=on_cpu), limit)


def where_from(device: torch.device) -> dict[str, Any]:
    """When, on what, and from which source a row was computed."""
    environment = describe_environment()
    return {
        "time": int(time.time()),
        "device": device.type,
        "hardware": environment["gpu"] if device.type == "cuda" else environment["processor"],
        "versions": {name: environment[name] for name in _PACKAGES if name in environment},
        "git": describe_git(),
    }


def _compute(
    graph: Graph, variant: str, *, seeds: Sequence[int], device: torch.device, quick: bool, progress: bool
) -> dict[str, Any]:
    num_runs = 3 if quick else 5
    kind = VARIANTS[variant].kind
    if kind in ("label-propagation", "supervised-gcn", "supervised-mlp"):
        return _evaluate_directly(graph, kind, seeds=seeds, num_runs=num_runs, device=device, quick=quick)
    started = time.perf_counter()
    with PeakMemory(device) as memory:
        embeddings, curves = _embed(graph, variant, seeds=seeds, device=device, quick=quick, progress=progress)
    trained = time.perf_counter()
    by_protocol = {
        protocol: evaluate_many(embeddings, graph, protocol=protocol, num_runs=num_runs, seeds=seeds)
        for protocol in protocols_of(graph.name)
    }
    per_seed = [_accuracies({name: runs[i] for name, runs in by_protocol.items()}) for i in range(len(seeds))]
    if graph.name in VARIANTS[variant].tuned_on:
        unseen = untouched_accuracies(embeddings, graph, seeds=seeds, num_runs=num_runs)
        for own, one in zip(per_seed, unseen, strict=True):
            own["accuracy"][UNTOUCHED] = one
    return {
        "train_seconds": round((trained - started) / len(seeds), 3),
        "evaluate_seconds": round((time.perf_counter() - trained) / len(seeds), 3),
        "peak_bytes": memory.peak_bytes,
        "seeds_together": len(seeds),
        "per_seed": [{**own, **curve} for own, curve in zip(per_seed, curves, strict=True)],
    }


def _embed(
    graph: Graph, variant: str, *, seeds: Sequence[int], device: torch.device, quick: bool, progress: bool
) -> tuple[Embeddings, list[dict[str, Any]]]:
    """Embeddings on the device, and the course of training of the first few seeds where a figure shows it."""
    row, recipe = VARIANTS[variant], recipe_of(variant, graph.name, quick=quick)
    curves: list[dict[str, Any]] = [{} for _ in seeds]
    if row.kind == "raw":
        return [_on_device(graph.x, device)] * len(seeds), curves
    if row.kind == "random-init":
        drawn = [random_init(graph, recipe, seed=seed, device=str(device)) for seed in seeds]
        return [torch.from_numpy(h).to(device) for h in drawn], curves
    settings = {"train.log_every": max(1, recipe.train.steps // NUM_POINTS)}  # changes nothing but what is logged
    estimator = Embedder(recipe=recipe, settings=settings, device=str(device))
    fitted = fit_seeds(estimator, graph, seeds=seeds, progress=progress)
    found: Embeddings = embed_seeds([one.model_ for one in fitted], graph, device=device)
    if row.append_features:
        found = [_on_device(with_features(h.cpu(), graph), device) for h in found]
    if has_curve(variant):
        pairs = zip(seeds, fitted, strict=True)
        curves = [{"curve": thin_curve(one.metrics_)} if seed < NUM_CURVE_SEEDS else {} for seed, one in pairs]
    return found, curves


def _on_device(x: Any, device: torch.device) -> Any:
    """Features where they are probed fastest: on a GPU, dense, unless they have so many columns that they are better
    off sparse on the CPU."""
    if device.type != "cuda" or x is None or x.shape[1] > _DENSE_COLUMNS:
        return x
    return (x.to_dense() if isinstance(x, SparseMatrix) else x).to(device)


def _evaluate_directly(
    graph: Graph, kind: str, *, seeds: Sequence[int], num_runs: int, device: torch.device, quick: bool
) -> dict[str, Any]:
    """Of methods that learn from the labels themselves."""
    settings = supervised_settings(quick=quick)
    encoder = kind.removeprefix("supervised-")

    def evaluate(protocol: str, seed: int) -> Evaluation:
        protocol = "public" if protocol.startswith("adamw") else protocol  # the same splits; AdamW is the probe's
        options: dict[str, Any] = {"protocol": protocol, "num_runs": num_runs, "seed": seed, "device": str(device)}
        if kind == "label-propagation":
            return evaluate_label_propagation(graph, **options)
        return evaluate_supervised(graph, encoder=encoder, settings=settings, **options)

    started = time.perf_counter()
    protocols = protocols_of(graph.name)
    with PeakMemory(device) as memory:
        per_seed = [_accuracies({protocol: evaluate(protocol, seed) for protocol in protocols}) for seed in seeds]
    return {
        "train_seconds": round((time.perf_counter() - started) / len(seeds), 3),
        "evaluate_seconds": 0.0,
        "peak_bytes": memory.peak_bytes,
        "seeds_together": 1,
        "per_seed": per_seed,
    }


def _accuracies(by_protocol: dict[str, Evaluation]) -> dict[str, Any]:
    """The mean over splits of each protocol, on validation nodes too where these chose something; and the splits."""
    on_val = {name + ON_VALIDATION: float(np.mean(one.val_runs)) for name, one in by_protocol.items() if one.val_runs}
    means = {name: one.mean for name, one in by_protocol.items()} | on_val
    return {
        "accuracy": {name: round(mean, 4) for name, mean in means.items()},
        "runs": {protocol: [round(run, 3) for run in one.runs] for protocol, one in by_protocol.items()},
    }


def summarize(rows: Sequence[Row], *, protocol: str) -> tuple[float, float, int] | None:
    """Mean and deviation over seeds, and their number; None where there is nothing."""
    values = [row["accuracy"][protocol] for row in rows if protocol in row.get("accuracy", {})]
    if not values:
        return None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, len(values)
