"""MAG240M's figures: accuracy on validation papers while labels and BGRL, or GRACE, train one encoder.

    supervised       labels alone                            + GRACE   with 256 negatives on the labelled roots
    + BGRL           on the labelled roots as well           + BGRL, r unlabelled     and on r times as many without

Every row has the same labelled roots a step, a batch of 1,024 divided by 11; those without a label come on top. No loss
and no input has seen a label of a validation paper (the paper, too, reports these: the labels of test papers are
hidden). MAG240M itself is a store `mag240m.store` in $GRAPHSTRAP_DATA; `mag-like-SCALE` is synthetic, was fixed before
any method ran on it (docs/generated.md), and what comes out on it is shown, whatever the order. There the MPNN is
smaller than MAG240M's: two steps of messages, one for each hop of a sample, and half the widths. Training is fifty
times shorter: how fast targets and averages follow, and what the auxiliary loss counts, was chosen for that on another
such graph (lab/benchmarks/tune_mag.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphstrap.api.estimator import Embedder
from graphstrap.graph import Graph
from graphstrap.io.datasets import MAG_LIKE, load
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.bench.memory import PeakMemory
from graphstrap_lab.reproduce.beside_recipes import changed_beside_mag
from graphstrap_lab.reproduce.cells import identity_of, where_from
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.mag_frozen import frozen_accuracy, propagation_accuracy
from graphstrap_lab.reproduce.run import Filling, Work
from graphstrap_lab.reproduce.unfinished import fit_or_go_on, training_seconds
from graphstrap_lab.reproduce.variants import VARIANTS, changed_settings, read_by, settings_digest

STEPS, SYNTHETIC_STEPS, QUICK_STEPS = 50_000, 1_000, 20
NUM_LABELLED = round(1024 / 11)
NUM_POINTS = 20
_MOST_HASHED_NODES = 20_000_000  # a graph is known by a hash, which takes minutes beyond
_SYNTHETIC_MPNN: dict[str, Any] = {
    "encoder.hidden_sizes": (256,),
    "encoder.embedding_size": 128,
    "encoder.num_steps": 2,
    "method.predictor_hidden_size": 256,
}
SYNTHETIC_TARGET_DECAY = 0.9
SYNTHETIC_WEIGHTS = {"bgrl": 1.0, "grace": 1.0}  # of the auxiliary loss
_QUICK: dict[str, Any] = {
    "encoder.embedding_size": 32,
    "method.predictor_hidden_size": 32,
    "encoder.num_steps": 2,
}


def is_synthetic(dataset: str) -> bool:
    return dataset.startswith(MAG_LIKE)


def mag_recipe(variant: str, dataset: str, *, quick: bool = False) -> Recipe:
    """The shipped recipe of the row's encoder, for fewer steps, with the row's settings; label propagation has none."""
    row = VARIANTS[variant]
    if row.kind == "label-propagation":
        return Recipe()
    base = load_recipe("mag240m-gcn" if row.encoder == "gcn" else "mag240m")
    steps = QUICK_STEPS if quick else SYNTHETIC_STEPS if is_synthetic(dataset) else STEPS
    is_frozen = row.settings.get("method.name", base.method.name) != base.method.name
    ratio = 10.0 if is_frozen else row.settings.get("method.unlabelled_ratio", 0.0)
    num_labelled = 8 if quick else NUM_LABELLED
    shorter: dict[str, Any] = {}
    if is_synthetic(dataset):
        auxiliary = row.settings.get("method.auxiliary", base.method.auxiliary)
        shorter = {"method.target_decay": SYNTHETIC_TARGET_DECAY}
        shorter |= {} if is_frozen else {"method.auxiliary_weight": SYNTHETIC_WEIGHTS[auxiliary]}
    smaller = _SYNTHETIC_MPNN if is_synthetic(dataset) and base.encoder.name == "mpnn" else {}
    settings: dict[str, Any] = {
        **smaller,
        **shorter,
        **row.settings,
        "sampling.batch_size": round(num_labelled * (1.0 + ratio)),
        "train.steps": steps,
        "train.warmup_steps": steps // 10,  # the recipe's share
        "train.log_every": max(1, steps // NUM_POINTS),
        "train.evaluate_every": 0 if is_frozen else max(1, steps // NUM_POINTS),
    }
    if is_frozen:
        settings["sampling.root_types"] = ("paper",)
    if quick:
        settings |= {**_QUICK, "encoder.hidden_sizes": (32,)}
    return base.with_settings(read_by(settings.get("method.name", base.method.name), settings))


def mag_settings(variant: str, dataset: str, quick: bool) -> str:
    recipe, kind = mag_recipe(variant, dataset, quick=quick), VARIANTS[variant].kind
    beside = changed_beside_mag(kind, is_frozen=recipe.method.name != "semi-supervised", quick=quick)
    digest = settings_digest(recipe, kind, beside)
    return f"{'quick-' if quick else ''}mag-{digest}"


def compute_mag(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
    """A row of the ledger for each seed."""
    device, recipe = resolve_device(how.device), mag_recipe(variant, graph.name, quick=how.quick)
    identity = identity_of(graph) if graph.num_nodes <= _MOST_HASHED_NODES else None
    rows: list[Row] = []
    for seed in seeds:
        with PeakMemory(device) as memory:
            if VARIANTS[variant].kind == "label-propagation":
                found = propagation_accuracy(graph, seed=seed, device=device)
            else:
                found = _train(graph, recipe, seed=seed, how=how, folder=_folder(how, graph, variant, seed))
        rows.append(
            {
                "dataset": graph.name,
                "graph": identity,
                "variant": variant,
                "settings": mag_settings(variant, graph.name, how.quick),
                "seed": seed,
                "recipe": changed_settings(recipe),
                "quick": how.quick,
                "memory_limit": how.memory_limit,
                "synthetic": is_synthetic(graph.name),
                "peak_bytes": memory.peak_bytes,
                **found,
                **where_from(device),
            }
        )
    return rows


def _train(graph: Graph, recipe: Recipe, *, seed: int, how: Filling, folder: Path | None) -> dict[str, Any]:
    """Train, or go on where the last command was cut, and evaluate."""
    if folder is not None and folder.exists():
        how.note(f"going on with {folder}")
    estimator = Embedder(recipe=recipe, seed=seed, device=how.device)
    model, records, _ = fit_or_go_on(estimator, graph, folder=folder, progress=how.progress)
    found: dict[str, Any] = {"train_seconds": training_seconds(records)}
    if recipe.method.name == "semi-supervised":
        points = [record for record in records if "accuracy" in record]
        accuracies = [round(record["accuracy"], 4) for record in points]
        found |= {"curve": {"step": [record["step"] for record in points], "accuracy": accuracies}}
        found |= {"accuracy": {"validation": accuracies[-1]}, "best": max(accuracies)}
    else:
        found |= frozen_accuracy(model.model_, graph, seed=seed, device=resolve_device(how.device), quick=how.quick)
    if folder is not None:
        shutil.rmtree(folder)
    return found


def _folder(how: Filling, graph: Graph, variant: str, seed: int) -> Path | None:
    """Where a cell is trained that a later command may have to go on with."""
    if how.unfinished is None or graph.num_nodes > _MOST_HASHED_NODES:
        return None
    return how.unfinished / f"{graph.name}-{variant}-{mag_settings(variant, graph.name, how.quick)}-{seed}"


def _load(name: str, how: Filling) -> Graph:
    return load(name, device=str(resolve_device(how.device)))


MAG = Work(load=_load, settings=mag_settings, compute=compute_mag)
