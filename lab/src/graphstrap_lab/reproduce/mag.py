"""MAG240M's figures: accuracy on validation papers while labels and BGRL, or GRACE, train one encoder.

    supervised       labels alone                            + GRACE   with 256 negatives on the labelled roots
    + BGRL           on the labelled roots as well           + BGRL, r unlabelled     and on r times as many without

Every row has the same labelled roots a step, a batch of 1,024 divided by 11; those without a label come on top. No loss
and no input has seen a label of a validation paper (the paper, too, reports these: the labels of test papers are
hidden). MAG240M itself is a store `mag240m.store` in $GRAPHSTRAP_DATA; `mag-like-SCALE` is synthetic, was fixed before
any method ran on it (docs/generated.md), and what comes out on it is shown, whatever the order. There the MPNN is
smaller than MAG240M's: two steps of messages, one for each hop of a sample, and half the widths. Training is fifty
times shorter: how fast targets and averages follow, and what the auxiliary loss counts, was chosen for that on another
such graph (lab/benchmarks/results/tune_mag.jsonl).

Without labels in training, an MLP on frozen embeddings, and labels that travel along edges:

    MLP                 one hidden layer of 512 on columns of mean 0 and variance 1, trained on nine tenths of the
                        training labels and stopped by the last tenth
    label propagation   along all relations, its steps and restart chosen on that tenth, then from all training labels

Both are tested on validation papers, whose labels serve for nothing else. The paper's figure does not print its MLP's
settings; these were not tuned.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.api.embed import prepare, sampled_inference
from graphstrap.api.estimator import Embedder
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.views import child_seed
from graphstrap.io.datasets import MAG_LIKE, load
from graphstrap.nn.methods.label_propagation import propagate_labels
from graphstrap.nn.methods.supervised import SupervisedSettings, fit_supervised
from graphstrap.nn.model import Model
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.bench.measure import PeakMemory
from graphstrap_lab.grid import Grid, difference_text, mean_text, to_csv
from graphstrap_lab.reproduce.cells import MOST_HASHED_NODES, Filling, describe_cell
from graphstrap_lab.reproduce.deadline import fit_or_go_on, training_seconds
from graphstrap_lab.reproduce.ledger import Row, values_of
from graphstrap_lab.reproduce.render import Asked, Report, plot_courses
from graphstrap_lab.reproduce.run import Work
from graphstrap_lab.reproduce.variants import FIRST_SUPERVISED, VARIANTS, changed_since, read_by, settings_digest

STEPS, SYNTHETIC_STEPS, QUICK_STEPS = 50_000, 1_000, 20
NUM_LABELLED = round(1024 / 11)
NUM_POINTS = 20
_SYNTHETIC_MPNN: dict[str, Any] = {
    "encoder.hidden_sizes": (256,),
    "encoder.embedding_size": 128,
    "encoder.num_steps": 2,
    "method.predictor_hidden_size": 256,
}
SYNTHETIC_TARGET_DECAY = 0.9
SYNTHETIC_WEIGHTS = {"bgrl": 1.0, "grace": 1.0}  # of the auxiliary loss
MLP = SupervisedSettings(hidden_size=512, dropout_prob=0.5, learning_rate=1e-3, weight_decay=1e-5)
QUICK_MLP = replace(MLP, max_steps=50)
NUMBERS_OF_STEPS, RESTARTS = (2, 5, 10), (0.0, 0.1, 0.5)
_MOST_SCORES = 1 << 27  # at once: of labels that travel
_FIRST_MLP = {**FIRST_SUPERVISED, "hidden_size": 512, "dropout_prob": 0.5, "learning_rate": 1e-3, "weight_decay": 1e-5}
_FIRST_PROPAGATION = {"numbers_of_steps": (2, 5, 10), "restarts": (0.0, 0.1, 0.5)}
_QUICK: dict[str, Any] = {"encoder.embedding_size": 32, "method.predictor_hidden_size": 32, "encoder.num_steps": 2}
LEGEND = (
    "Accuracy on validation papers in %, at the last step: mean ± standard deviation over seeds (number of seeds), and "
    "the highest of the course. The difference is to the first row, seed by seed; ! by a paired t-test at 1 %. "
    f"Ours are of {STEPS:,} steps on MAG240M, where it is at hand, and of {SYNTHETIC_STEPS:,} on synthetic graphs, "
    "where an MPNN is smaller."
)
SYNTHETIC = "mag-like graphs are synthetic (docs/generated.md): they say whether training finds what was planted."


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
    beside: dict[str, Any] = {}
    if kind == "label-propagation":
        tried = {"numbers_of_steps": NUMBERS_OF_STEPS, "restarts": RESTARTS}
        beside = changed_since(_FIRST_PROPAGATION, tried)
    elif recipe.method.name != "semi-supervised":
        first = {**_FIRST_MLP, "max_steps": 50} if quick else _FIRST_MLP
        beside = changed_since(first, asdict(QUICK_MLP if quick else MLP))
    return f"{'quick-' if quick else ''}mag-{settings_digest(recipe, kind, beside)}"


def compute_mag(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
    """A row of the ledger for each seed."""
    recipe, settings = mag_recipe(variant, graph.name, quick=how.quick), mag_settings(variant, graph.name, how.quick)
    shared = describe_cell(graph, variant, recipe, how, settings=settings)
    rows: list[Row] = []
    for seed in seeds:
        with PeakMemory(how.place) as memory:
            if VARIANTS[variant].kind == "label-propagation":
                found = propagation_accuracy(graph, seed=seed, device=how.place)
            else:
                folder = None
                if how.unfinished is not None and graph.num_nodes <= MOST_HASHED_NODES:
                    folder = how.unfinished / f"{graph.name}-{variant}-{settings}-{seed}"
                found = _train(graph, recipe, seed=seed, how=how, folder=folder)
        about = {"seed": seed, "synthetic": is_synthetic(graph.name), "peak_bytes": memory.peak_bytes}
        rows.append({**shared, **about, **found, "time": int(time.time())})
    return rows


def _train(graph: Graph, recipe: Recipe, *, seed: int, how: Filling, folder: Path | None) -> dict[str, Any]:
    """Train, or go on where the last command was cut, and evaluate. A cell of a huge graph has no folder."""
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
        found |= frozen_accuracy(model.model_, graph, seed=seed, device=how.place, quick=how.quick)
    if folder is not None:
        shutil.rmtree(folder)
    return found


def frozen_accuracy(
    model: Model, graph: Graph, *, seed: int, device: torch.device, quick: bool = False
) -> dict[str, Any]:
    """In % of the validation papers."""
    started = time.perf_counter()
    train, stop, val = labelled_parts(graph, seed=seed)
    nodes = torch.cat([train, stop, val])
    h = sampled_inference(model, prepare(model, graph), model.method.embed, device=device, nodes=nodes).to(device)
    deviation, mean = torch.std_mean(h[: len(train)], dim=0)
    x = (h - mean) / deviation.clamp(min=1e-6)
    assert graph.labels is not None
    labels = graph.labels.to(device)[nodes.to(device)]
    table = Graph.from_edges([], [], num_nodes=len(nodes), x=x.cpu(), labels=labels.cpu(), name="embeddings").to(device)
    places = torch.split(torch.arange(len(nodes), device=device), [len(train), len(stop), len(val)])
    settings = QUICK_MLP if quick else MLP
    probe = fit_supervised(table, encoder="mlp", train=places[0], val=places[1], settings=settings, seed=seed)
    found = probe.predict(table)[places[2]].argmax(1)
    accuracy = 100.0 * float((found == labels[places[2]]).double().mean())
    seconds = round(time.perf_counter() - started, 1)
    return {"accuracy": {"validation": round(accuracy, 4)}, "evaluate_seconds": seconds}


def propagation_accuracy(graph: Graph, *, seed: int, device: torch.device) -> dict[str, Any]:
    """In % of the validation papers."""
    started = time.perf_counter()
    train, stop, val = labelled_parts(graph, seed=seed)
    assert graph.labels is not None
    labels = graph.labels.to(device)
    placed = replace(graph, features=(None,) * len(graph.features), labels=None, splits=None).to(device)

    def accuracy(known: Tensor, asked: Tensor, how: tuple[int, float]) -> float:
        found = _classes(placed, labels, known.to(device), asked.to(device), num_steps=how[0], restart=how[1])
        return 100.0 * float((found == labels[asked.to(device)]).double().mean())

    best = max(product(NUMBERS_OF_STEPS, RESTARTS), key=lambda how: accuracy(train, stop, how))
    value = accuracy(torch.cat([train, stop]), val, best)
    seconds = round(time.perf_counter() - started, 1)
    return {"accuracy": {"validation": round(value, 4)}, "chosen": best, "train_seconds": seconds}


def labelled_parts(graph: Graph, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nine tenths of the training nodes, the last tenth, and the validation nodes, of those that have a label."""
    if graph.labels is None or graph.splits is None:
        raise InputError(f"{graph.name} needs labels and a split into train and val")
    has_label = graph.labels >= 0
    train, val = (
        (mask[:, 0] & has_label).nonzero().squeeze(1).cpu() for mask in (graph.splits.train, graph.splits.val)
    )
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(child_seed(seed, 6)))
    last = max(1, len(train) // 10)
    return train[order[last:]], train[order[:last]], val


def _classes(graph: Graph, labels: Tensor, known: Tensor, asked: Tensor, *, num_steps: int, restart: float) -> Tensor:
    """(M,) the classes of the nodes asked about, some classes at a time: each travels by itself. Where none arrives,
    the most frequent one."""
    num_classes, width = int(labels[known].max()) + 1, max(1, _MOST_SCORES // graph.num_nodes)
    parts = []
    for first in range(0, num_classes, width):
        here = (labels - first).clamp(-1, min(width, num_classes - first))
        others = min(width, num_classes - first)  # all classes beyond these count as one more
        scores = propagate_labels(
            graph, torch.where(here < 0, others, here), known, num_steps=num_steps, restart=restart
        )
        parts.append(scores[asked, :others])
    together = torch.cat(parts, dim=1)
    return torch.where(together.sum(1) > 0, together.argmax(1), labels[known].mode().values)


MAG = Work(settings=mag_settings, compute=compute_mag, load=lambda name, how: load(name, device=str(how.place)))


def report_mag(asked: Asked) -> Report:
    """A grid for each graph, and the course of the accuracy."""
    rows = asked.rows(MAG.find)
    grids = [_grid(asked, dataset, rows) for dataset in asked.datasets]
    courses: dict[tuple[str, str], list[dict[str, Any]]] = {}
    points: list[list[Any]] = []
    for (dataset, variant), own in rows.items():
        for row in (row for row in own if row.get("accuracy")):
            value = row["accuracy"]["validation"]
            level = {"step": [0, 1], "accuracy": [value, value]}  # without a course, the picture's whole width
            courses.setdefault((graph_title(dataset), VARIANTS[variant].title), []).append(row.get("curve") or level)
            curve = row.get("curve") or {"step": [""], "accuracy": [value]}
            about = [dataset, is_synthetic(dataset), variant, row["seed"]]
            points += [[*about, *point] for point in zip(curve["step"], curve["accuracy"], strict=True)]
    notes = [f"{LEGEND} The paper draws its curves {asked.table.in_the_paper}."]
    notes += [SYNTHETIC] if any(map(is_synthetic, asked.datasets)) else []
    csv = to_csv(["dataset", "synthetic", "method", "seed", "step", "validation_accuracy"], points)
    draw = partial(plot_courses, courses, measure="accuracy on validation papers, %") if courses else None
    found = [row for own in rows.values() for row in own]
    return asked.report(grids, notes=notes, rows=found, csv=csv, draw=draw)


def graph_title(dataset: str) -> str:
    return f"{dataset} (synthetic)" if is_synthetic(dataset) else dataset


def _grid(asked: Asked, dataset: str, rows: Mapping[tuple[str, str], Sequence[Row]]) -> Grid:
    first, lines = asked.variants[0], []
    for variant in asked.variants:
        own, others = rows[dataset, variant], rows[dataset, first] if variant != first else []
        texts = _texts(own, others) or [asked.why_empty(dataset, own), "", "", ""]
        lines.append([VARIANTS[variant].title, *texts])
    header = ["method", "accuracy", "highest", "difference", "seconds a seed"]
    return Grid(header, lines, f"{graph_title(dataset)}, validation papers")


def _texts(rows: Sequence[Row], others: Sequence[Row]) -> list[str]:
    """The columns of a line; nothing where nothing was computed."""
    values, theirs = values_of(rows, "validation"), values_of(others, "validation")
    if not values:
        return []
    highest = [row["best"] for row in rows if "best" in row]
    return [
        f"{mean_text(list(values.values()))} ({len(values)})",
        f"{np.mean(highest):.2f}" if highest else "",
        difference_text([values[seed] - theirs[seed] for seed in values if seed in theirs]),
        f"{np.mean([row['train_seconds'] for row in rows if 'train_seconds' in row]):.0f}",
    ]
