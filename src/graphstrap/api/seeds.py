"""Many seeds at once: independent models of one recipe on one graph, trained in one program.

On CUDA their steps are captured together and fill each other's gaps; each model is, bit for bit, the one that its seed
gives alone. Every seed has a run folder of its own, `seed-0`, `seed-1`, ..., inside the folder that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphstrap.api.estimator import BGRL, train_estimators
from graphstrap.errors import InputError
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.evaluation.registry import Evaluation
from graphstrap.graph import Graph
from graphstrap.io.files import atomic_write, read_text
from graphstrap.io.parts import Part
from graphstrap.nn.model import Model
from graphstrap.ops import resolve_device
from graphstrap.run.folder import Run, removed_if_refused
from graphstrap.run.settings import checked_seed
from graphstrap.train.parallel.workers import ALONE, Workers

LIST_FILE = "seeds.json"


def fit_seeds(
    estimator: BGRL,
    graph: Graph,
    *,
    seeds: Iterable[int],
    run: str | Path | None = None,
    source: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    workers: Workers = ALONE,
) -> list[BGRL]:
    """Fit copies of an estimator, one for each seed; where there are several workers, each fits its share of them."""
    seeds = [checked_seed(seed) for seed in seeds]
    if len(set(seeds)) < len(seeds) or not seeds:
        raise InputError(f"seeds must be different numbers, at least one of them, got {seeds}")
    if isinstance(graph, Part):
        raise InputError("--seeds trains a model a worker, and no worker has all of a graph in parts: train one seed")
    estimators = [BGRL(**{**estimator.get_params(), "seed": seed}) for seed in workers.share(seeds)]
    models: list[Model] = []
    reasons: list[str] = []
    for one in estimators[:1]:
        first, reasons = one.build(graph)
        models = [first, *(first.with_seed(another.seed) for another in estimators[1:])]
    prepared = models[0].prepare(graph) if models else graph
    if run is not None and workers.is_first:
        _make_folder(Path(run), seeds)
    workers.wait()
    runs: list[Run | None] = [None] * len(estimators)
    if run is not None:
        folder = Path(run)
        runs = [
            one.create_run(folder / f"seed-{one.seed}", model, graph, source=source or {})
            for one, model in zip(estimators, models, strict=True)
        ]
    with removed_if_refused(Path(run) if run is not None and workers.is_alone else None, runs):
        _train(estimators, models, graph, prepared, runs, reasons=reasons, progress=progress, workers=workers)
    return estimators


def resume_seeds(
    folder: str | Path, graph: Graph, *, progress: bool | None = None, workers: Workers = ALONE
) -> list[BGRL]:
    """Go on with interrupted seeds, each exactly where its last checkpoint stands; each worker with its share."""
    runs = [Run.open(one) for one in workers.share(seed_folders(Path(folder)))]
    estimators = [BGRL.of_run(run, graph) for run in runs]
    models = [one.model_ for one in estimators]
    prepared = models[0].prepare(graph) if models else graph
    _train(estimators, models, graph, prepared, runs, progress=progress, workers=workers)
    return estimators


def _train(
    estimators: Sequence[BGRL],
    models: Sequence[Model],
    graph: Graph,
    prepared: Graph,
    runs: Sequence[Run | None],
    *,
    reasons: Sequence[str] = (),
    progress: bool | None,
    workers: Workers,
) -> None:
    """A worker's models, of which there may be none, side by side; then it waits for the others'."""
    if estimators:
        shown = progress if workers.is_first else False
        train_estimators(estimators, models, graph, prepared, runs, reasons=reasons, progress=shown)
    workers.wait_for_work()


def evaluate_runs(
    folders: Sequence[Path], graph: Graph, *, protocol: str, num_runs: int, device: str
) -> dict[int, Evaluation]:
    """The evaluation of every seed's run, on the same splits."""
    models = [BGRL.load(folder, device=device) for folder in folders]
    embeddings = [embed_on_device(one, graph) for one in models]
    splits = [0] * len(models)
    found = evaluate_many(embeddings, graph, protocol=protocol, num_runs=num_runs, seeds=splits)
    return dict(zip([one.seed for one in models], found, strict=True))


def embed_on_device(model: BGRL, graph: Graph) -> Tensor:
    """(N, D) embeddings where the model computes, which is where they are evaluated."""
    return torch.from_numpy(model.embed(graph)).to(resolve_device(model.device))


def seed_folders(folder: Path) -> list[Path]:
    """The run folders of a folder of seeds; none for any other folder."""
    if not (folder / LIST_FILE).exists():
        return []
    try:
        seeds = json.loads(read_text(folder / LIST_FILE))["seeds"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{folder / LIST_FILE} is damaged: {error}") from error
    if not isinstance(seeds, list) or not all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds):
        raise InputError(f"{folder / LIST_FILE} is damaged: seeds are whole numbers")
    folders = [folder / f"seed-{seed}" for seed in seeds]
    missing = [one.name for one in folders if not one.is_dir()]
    if missing or not folders:
        raise InputError(f"{folder} was cut before all of its seeds began ({', '.join(missing)}): delete it, fit again")
    return folders


def _make_folder(folder: Path, seeds: Sequence[int]) -> None:
    if folder.exists():
        raise InputError(
            f"run folder {folder} exists: choose another --run, or go on with `graphstrap resume {folder}`"
        )
    try:
        folder.mkdir(parents=True)
        with atomic_write(folder / LIST_FILE) as temporary:
            temporary.write_text(json.dumps({"seeds": list(seeds)}) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"run folder {folder} cannot be made: {error.strerror or error}") from error
