"""Computing cells: train what a row asks for, evaluate it under every protocol, and note what it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
from graphstrap.graph.views import fingerprint_of
from graphstrap.nn.methods.skip_gram import with_features
from graphstrap.ops import resolve_device
from graphstrap.ops.memory import free_memory, held_by_others
from graphstrap.run.environment import describe_environment, describe_git
from graphstrap.run.recipe import Recipe
from graphstrap.train.parallel.workers import ALONE, Workers
from graphstrap_lab.bench.measure import PeakMemory, is_out_of_memory
from graphstrap_lab.reproduce.blind import UNTOUCHED, untouched_accuracies
from graphstrap_lab.reproduce.deadline import Deadline
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.memory import as_published, estimate_bytes, refusal_text
from graphstrap_lab.reproduce.variants import (
    VARIANTS,
    changed_settings,
    has_curve,
    name_in_ledger,
    recipe_of,
    settings_id,
    supervised_settings,
)

Embeddings = list[Any]  # one for each seed: tensors, arrays or sparse matrices
Curve = dict[str, list[float]]
Note = Callable[[str], None]

CURVE_NAMES = ("loss", "spread", "mean_norm", "effective_rank")
NUM_POINTS = 100  # of the course of training that is kept, of the first few seeds
NUM_CURVE_SEEDS = 3
MOST_HASHED_NODES = 20_000_000  # a graph is known by a hash, which takes minutes beyond
ON_VALIDATION = ", validation nodes"  # what the ledger calls a protocol's accuracy on these
_DENSE_COLUMNS = 2048
_HELD_BY_FEW = 2e9  # bytes: what drivers and a desktop take
_PUBLISHED_SPLITS = {"wikics": ("public",), "ogbn-arxiv": ("adamw",), "ppi": ("adamw", "adamw-reference")}
_PACKAGES = ("graphstrap", "python", "torch", "triton", "scikit-learn")


@dataclass(frozen=True)
class Filling:
    """How cells are computed.

    Args:
        quick: short training, fewer splits.
        again: compute cells that the ledger holds already, too.
        memory_limit: of the device to imitate; None for what is free.
        together: seeds in one program; None for as many as fit on CUDA, and 1 on a CPU.
        recipe: in the place of every row's own.
        note: is told what is being computed, `warn` what could not be.
        workers: each computes its share of every row's seeds.
        unfinished: a folder for long cells that are cut in the middle: the next command goes on with them.
    """

    quick: bool = False
    again: bool = False
    device: str = "auto"
    memory_limit: int | None = None
    together: int | None = None
    recipe: Recipe | None = None
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    note: Note = print
    warn: Note = print
    workers: Workers = ALONE
    progress: bool = False
    unfinished: Path | None = None

    @property
    def place(self) -> torch.device:
        return resolve_device(self.device)

    @property
    def limit(self) -> int:
        """Bytes that a row may take."""
        return self.memory_limit if self.memory_limit is not None else free_memory(self.place)

    @property
    def num_runs(self) -> int:
        """Splits of a protocol."""
        return 3 if self.quick else 5

    def recipe_of(self, variant: str, dataset: str) -> Recipe:
        return self.recipe or recipe_of(variant, dataset, quick=self.quick)


def protocols_of(dataset: str) -> tuple[str, ...]:
    """Published splits where the paper uses them, else both random protocols."""
    return _PUBLISHED_SPLITS.get(dataset, ("reference", "paper"))


def compute_cells(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
    """One row for each seed, all of them trained and evaluated together or, where the memory is too small for that, in
    two halves. A method that does not fit gives rows that say so."""
    device, recipe = how.place, how.recipe_of(variant, graph.name)
    limit, refused = how.limit, refusal_of(graph, variant, how)
    found: dict[str, Any] = {"oom": refused}
    if refused is None:
        try:
            found = _compute(graph, variant, how, seeds)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            found = {"oom": f"OOM: more than {limit / 1e9:.2g} GB"}
    if found.get("oom") and refused is None and len(seeds) > 1:
        how.note(f"{graph.name}: {variant}: {len(seeds)} seeds do not fit together, trying half as many")
        torch.cuda.empty_cache()
        half = len(seeds) // 2
        return [row for group in (seeds[:half], seeds[half:]) for row in compute_cells(graph, variant, how, group)]
    if found.get("oom"):
        found["free_bytes"] = free_memory(device)
    if found.get("oom") and how.memory_limit is None and held_by_others(device) > _HELD_BY_FEW:
        held = held_by_others(device) / 1e9
        raise InputError(f"{found['oom']}, while others hold {held:.0f} GB of the GPU: again when they have ended")
    settings = settings_id(variant, graph.name, quick=how.quick, recipe=how.recipe)
    shared = describe_cell(graph, variant, recipe, how, settings=settings)
    per_seed = found.pop("per_seed", [{} for _ in seeds])
    return [{**shared, **found, **own, "seed": seed} for seed, own in zip(seeds, per_seed, strict=True)]


def describe_cell(graph: Graph, variant: str, recipe: Recipe, how: Filling, *, settings: str) -> Row:
    """What the rows of all seeds share."""
    return {
        "dataset": graph.name,
        "graph": identity_of(graph),
        "variant": name_in_ledger(variant),
        "settings": settings,
        "recipe": changed_settings(recipe),
        "quick": how.quick,
        "memory_limit": how.memory_limit,
        **where_from(how.place),
    }


def identity_of(graph: Graph) -> str | None:
    """Tells a graph from another of its name: by all that training sees, labels and splits. None for huge ones."""
    if graph.num_nodes > MOST_HASHED_NODES:
        return None
    splits = () if graph.splits is None else (graph.splits.train, graph.splits.val, graph.splits.test)
    beside = [tensor for tensor in (graph.labels, *splits) if tensor is not None]
    return f"{graph.fingerprint}-{fingerprint_of((), np.empty(0), beside)[:8]}"


def refusal_of(graph: Graph, variant: str, how: Filling) -> str | None:
    """Why a row is not trained: the memory that it would take, more than the limit or, without one, than is free."""
    recipe, on_cpu = how.recipe_of(variant, graph.name), how.place.type == "cpu"
    if how.memory_limit is not None:  # imitates the paper's runs, on a GPU
        recipe, on_cpu = as_published(recipe), False
    return refusal_text(estimate_bytes(graph, recipe, VARIANTS[variant].kind, on_cpu=on_cpu), how.limit)


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


def _compute(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> dict[str, Any]:
    """What a group took, and what came out for each of its seeds."""
    started, learns_from_labels = time.perf_counter(), VARIANTS[variant].kind.startswith(("label-", "supervised-"))
    with PeakMemory(how.place) as memory:
        if learns_from_labels:
            per_seed = [_accuracies(_evaluate_directly(graph, variant, how, seed)) for seed in seeds]
        else:
            embeddings, curves = _embed(graph, variant, how, seeds)
    trained = time.perf_counter()
    if not learns_from_labels:
        scores = _evaluate(embeddings, graph, variant, how, seeds)
        per_seed = [{**own, **curve} for own, curve in zip(scores, curves, strict=True)]
    return {
        "train_seconds": round((trained - started) / len(seeds), 3),
        "evaluate_seconds": round((time.perf_counter() - trained) / len(seeds), 3),
        "peak_bytes": memory.peak_bytes,
        "seeds_together": 1 if learns_from_labels else len(seeds),
        "per_seed": per_seed,
    }


def _embed(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> tuple[Embeddings, list[dict[str, Any]]]:
    """Embeddings on the device, and the course of training of the first few seeds where a figure shows it."""
    row, recipe, device = VARIANTS[variant], how.recipe_of(variant, graph.name), how.place
    curves: list[dict[str, Any]] = [{} for _ in seeds]
    if row.kind == "raw":
        return [_on_device(graph.x, device)] * len(seeds), curves
    if row.kind == "random-init":
        drawn = [random_init(graph, recipe, seed=seed, device=str(device)) for seed in seeds]
        return [torch.from_numpy(h).to(device) for h in drawn], curves
    settings = {"train.log_every": max(1, recipe.train.steps // NUM_POINTS)}  # changes nothing but what is logged
    estimator = Embedder(recipe=recipe, settings=settings, device=str(device))
    fitted = fit_seeds(estimator, graph, seeds=seeds, progress=how.progress)
    found: Embeddings = embed_seeds([one.model_ for one in fitted], graph, device=device)
    if row.append_features:
        found = [_on_device(with_features(h.cpu(), graph), device) for h in found]
    if has_curve(variant):
        pairs = zip(seeds, fitted, strict=True)
        curves = [{"curve": thin_curve(one.metrics_)} if seed < NUM_CURVE_SEEDS else {} for seed, one in pairs]
    return found, curves


def thin_curve(records: Sequence[Mapping[str, Any]]) -> Curve:
    """Columns of at most about `NUM_POINTS` of the logged records, the first and the last among them. `spread` is the
    standard deviation over nodes divided by the mean norm: 0 after a collapse."""
    every = max(1, len(records) // NUM_POINTS)
    chosen = [*records[:-1:every], *records[-1:]]
    curve: Curve = {"step": [int(record["step"]) for record in chosen]}
    for name in CURVE_NAMES:
        if all(name in record for record in chosen):
            curve[name] = [float(f"{record[name]:.5g}") for record in chosen]
    return curve


def _on_device(x: Any, device: torch.device) -> Any:
    """Features where they are probed fastest: on a GPU, dense, unless they have so many columns that they are better
    off sparse on the CPU."""
    if device.type != "cuda" or x is None or x.shape[1] > _DENSE_COLUMNS:
        return x
    return (x.to_dense() if isinstance(x, SparseMatrix) else x).to(device)


def _evaluate(
    embeddings: Embeddings, graph: Graph, variant: str, how: Filling, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    by_protocol = {
        protocol: evaluate_many(embeddings, graph, protocol=protocol, num_runs=how.num_runs, seeds=seeds)
        for protocol in protocols_of(graph.name)
    }
    per_seed = [_accuracies({name: runs[i] for name, runs in by_protocol.items()}) for i in range(len(seeds))]
    if graph.name in VARIANTS[variant].tuned_on:
        unseen = untouched_accuracies(embeddings, graph, seeds=seeds, num_runs=how.num_runs)
        for own, one in zip(per_seed, unseen, strict=True):
            own["accuracy"][UNTOUCHED] = one
    return per_seed


def _evaluate_directly(graph: Graph, variant: str, how: Filling, seed: int) -> dict[str, Evaluation]:
    """A method that learns from the labels themselves, under each protocol."""
    kind, found = VARIANTS[variant].kind, {}
    for name in protocols_of(graph.name):
        protocol = "public" if name.startswith("adamw") else name  # the same splits; AdamW is the probe's
        options: dict[str, Any] = {"protocol": protocol, "num_runs": how.num_runs, "seed": seed}
        options["device"] = str(how.place)
        if kind == "label-propagation":
            found[name] = evaluate_label_propagation(graph, **options)
        else:
            options |= {"encoder": kind.removeprefix("supervised-"), "settings": supervised_settings(quick=how.quick)}
            found[name] = evaluate_supervised(graph, **options)
    return found


def _accuracies(by_protocol: dict[str, Evaluation]) -> dict[str, Any]:
    """The mean over splits of each protocol, on validation nodes too where these chose something; and the splits."""
    on_val = {name + ON_VALIDATION: float(np.mean(one.val_runs)) for name, one in by_protocol.items() if one.val_runs}
    means = {name: one.mean for name, one in by_protocol.items()} | on_val
    return {
        "accuracy": {name: round(mean, 4) for name, mean in means.items()},
        "runs": {protocol: [round(run, 3) for run in one.runs] for protocol, one in by_protocol.items()},
    }
