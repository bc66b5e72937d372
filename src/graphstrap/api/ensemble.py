"""Several models of one recipe in one folder, and what they answer together.

    seeds.json    {"seeds": [0, 1]}    a run folder for each seed: seed-0, seed-1
    folds.json    {"folds": 2}         a run folder for each fold of the labels: fold-0, fold-1, of seeds SEED, SEED + 1

Seeds are trained in one program. On CUDA their steps are captured together and fill each other's gaps; each model is,
bit for bit, the one that its seed gives alone. Folds are trained one after the other. A fold is part of where its graph
comes from, so every verb that opens the run finds the split.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphstrap.api.embed import Predictions
from graphstrap.api.estimator import Announce, Embedder
from graphstrap.api.fitting import train_models
from graphstrap.errors import InputError
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.evaluation.registry import Evaluation
from graphstrap.graph import Graph
from graphstrap.io.files import atomic_write, os_errors, read_text
from graphstrap.io.parts import Part
from graphstrap.io.source import Source, make_folds
from graphstrap.nn.model import Model
from graphstrap.ops import resolve_device
from graphstrap.run.folder import Run, removed_if_refused
from graphstrap.run.settings import checked_seed
from graphstrap.train.parallel.workers import ALONE, Workers

AnyEmbedder = TypeVar("AnyEmbedder", bound=Embedder)
_MOST_FOLDS = 10_000

# ---- a folder of run folders -----------------------------------------------------------------------------------------


def seed_folders(folder: Path) -> list[Path]:
    """The run folders of a folder of seeds; none for any other folder."""
    return _listed(folder, "seeds")


def fold_folders(folder: Path) -> list[Path]:
    """The run folders of a folder of folds; none for any other folder."""
    return _listed(folder, "folds")


def member_folders(folders: Iterable[Path]) -> list[Path]:
    """The run folders in each of these: of a folder of folds or of seeds all of its own, else the folder itself."""
    return [one for folder in folders for one in (fold_folders(folder) or seed_folders(folder) or [folder])]


def _listed(folder: Path, key: str) -> list[Path]:
    """The run folders in a list, all of which must be there; none where there is no such list."""
    path = folder / f"{key}.json"
    if not path.exists():
        return []
    try:
        found = json.loads(read_text(path))[key]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    are_seeds = isinstance(found, list) and all(type(one) is int and 0 <= one < 2**63 for one in found)
    if key == "seeds" and found and are_seeds:
        folders = [folder / f"seed-{seed}" for seed in found]
    elif key == "folds" and type(found) is int and 2 <= found <= _MOST_FOLDS:
        folders = [folder / f"fold-{index}" for index in range(found)]
    else:
        wanted = "integers from 0 to 2**63 - 1" if key == "seeds" else f"an integer from 2 to {_MOST_FOLDS}"
        raise InputError(f"{path} is damaged: {key} must be {wanted}")
    missing = ", ".join(one.name for one in folders if not one.is_dir())
    if missing:
        raise InputError(f"{folder} was interrupted before all of its runs began ({missing}): delete it, fit again")
    return folders


def _make_folder(folder: Path, key: str, members: list[int] | int) -> None:
    """A new folder with the list of the run folders that it is to hold."""
    if folder.exists():
        raise InputError(f"{folder} exists: choose another --run, or go on with `graphstrap resume {folder}`")
    with os_errors(f"run folder {folder} cannot be made"):
        folder.mkdir(parents=True)
        with atomic_write(folder / f"{key}.json") as temporary:
            temporary.write_text(json.dumps({key: members}) + "\n", encoding="utf-8")


# ---- seeds -----------------------------------------------------------------------------------------------------------


def fit_seeds(
    estimator: AnyEmbedder,
    graph: Graph,
    *,
    seeds: Iterable[int],
    run: str | Path | None = None,
    source: Mapping[str, Any] | None = None,
    announce: Announce | None = None,
    progress: bool | None = None,
    workers: Workers = ALONE,
) -> list[AnyEmbedder]:
    """Fit copies of an estimator that differ in their seed, side by side.

    Args:
        estimator: what to copy; its own seed does not matter.
        graph: to train on.
        seeds: one for each copy, all different.
        run: a folder to make, with a run folder for each seed.
        source, announce, progress: as for `Embedder.fit`.
        workers: each fits its share of the seeds.

    Returns:
        The fitted copies, of this worker.

    Example:
        >>> models = gs.fit_seeds(gs.BGRL(), graph, seeds=range(5))
        >>> [gs.evaluate(model.embed(graph), graph).mean for model in models]
    """
    seeds = [checked_seed(seed) for seed in seeds]
    if len(set(seeds)) < len(seeds) or not seeds:
        raise InputError(f"seeds must be different numbers, at least one of them, got {seeds}")
    if isinstance(graph, Part):
        raise InputError("--seeds trains a model a worker, and no worker has all of a graph in parts: train one seed")
    estimators = [type(estimator)(**{**estimator.get_params(), "seed": seed}) for seed in workers.share(seeds)]
    models: list[Model] = []
    reasons: list[str] = []
    for one in estimators[:1]:  # of many workers, some may have no seed
        first, reasons = one.build(graph, announce=announce)
        models = [first, *(first.with_seed(another.seed) for another in estimators[1:])]
    prepared = models[0].prepare(graph) if models else graph
    folder = None if run is None else Path(run)
    if folder is not None and workers.is_first:
        _make_folder(folder, "seeds", seeds)
    workers.wait()
    runs: list[Run | None] = [
        None if folder is None else one.create_run(folder / f"seed-{one.seed}", model, graph, source=source or {})
        for one, model in zip(estimators, models, strict=True)
    ]
    with removed_if_refused(folder if workers.is_alone else None, runs):
        _train(estimators, models, graph, prepared, runs, reasons=reasons, progress=progress, workers=workers)
    return estimators


def resume_seeds(
    folder: str | Path, graph: Graph, *, progress: bool | None = None, workers: Workers = ALONE
) -> list[Embedder]:
    """Go on with interrupted seeds, each exactly where its last checkpoint stands; each worker with its share."""
    runs = [Run.open(one) for one in workers.share(seed_folders(Path(folder)))]
    begun = [Embedder.of_run(run, graph) for run in runs]
    estimators, models = [estimator for estimator, _ in begun], [model for _, model in begun]
    prepared = models[0].prepare(graph) if models else graph
    _train(estimators, models, graph, prepared, runs, progress=progress, workers=workers)
    return estimators


def _train(
    estimators: Sequence[Embedder],
    models: Sequence[Model],
    graph: Graph,
    prepared: Graph,
    runs: Sequence[Run | None],
    *,
    reasons: Sequence[str] = (),
    progress: bool | None,
    workers: Workers,
) -> None:
    """Train a worker's models, of which there may be none, side by side; then wait for the other workers."""
    if estimators:
        shown, device = progress if workers.is_first else False, resolve_device(estimators[0].device)
        logs = train_models(models, graph, prepared, runs, device=device, progress=shown)
        for estimator, model, records in zip(estimators, models, logs, strict=True):
            estimator.learned(model, records, reasons)
    workers.wait_for_work()


def evaluate_runs(
    folders: Sequence[Path], graph: Graph, *, protocol: str, num_runs: int, device: str
) -> dict[int, Evaluation]:
    """The evaluation of every seed's run, on the same splits."""
    models = [Embedder.load(folder, device=device) for folder in folders]
    embeddings = [embed_on_device(one, graph) for one in models]
    found = evaluate_many(embeddings, graph, protocol=protocol, num_runs=num_runs, seeds=[0] * len(models))
    return dict(zip([one.seed for one in models], found, strict=True))


def embed_on_device(model: Embedder, graph: Graph) -> Tensor:
    """(N, D) embeddings where the model computes, which is where they are evaluated."""
    return torch.from_numpy(model.embed(graph)).to(resolve_device(model.device))


# ---- folds -----------------------------------------------------------------------------------------------------------


def begin_folds(
    estimator: Embedder, where: Source, graph: Graph, *, run: Path, number: int, part: str | None = None
) -> None:
    """Make a folder with an untrained run for each fold; `resume_folds` trains them."""
    recipe = estimator.resolve(graph)
    if not recipe.method_class.learns_labels:
        raise InputError("folds are of labels, which this method does not learn from: take --method semi-supervised")
    folds, first = make_folds(graph, number, part=part), checked_seed(estimator.seed)
    members = [Embedder(recipe=recipe, seed=first + fold.number, device=estimator.device) for fold in folds]
    graphs = [fold(graph) for fold in folds]
    models = [one.build(folded)[0] for one, folded in zip(members, graphs, strict=True)]  # fails before there are files
    _make_folder(run, "folds", number)
    for one, model, folded, fold in zip(members, models, graphs, folds, strict=True):
        one.create_run(run / f"fold-{fold.number}", model, folded, source=replace(where, fold=fold).to_dict())


def resume_folds(folder: Path, graph: Graph | None = None, *, progress: bool | None = None) -> list[Run]:
    """Train the folds that are not finished, one after the other, each from its last checkpoint. `graph` is the one
    that they are folds of, if it has been loaded already."""
    runs = [Run.open(one) for one in fold_folders(folder)]
    for run in (run for run in runs if not run.is_finished):
        source = Source.from_dict(run.info["source"], run=run.folder)
        graph = replace(source, fold=None).load() if graph is None else graph
        assert source.fold is not None
        Embedder.resume(run.folder, source.fold(graph), progress=progress)
    return runs


# ---- answers ---------------------------------------------------------------------------------------------------------


def answer_together(members: Iterable[tuple[Embedder, Graph]], *, nodes: Any = None) -> Predictions:
    """The mean of the models' probabilities, p(class | node) = mean over models of p_model(class | node).

    They are for the nodes without a label, or for `nodes`, by heads that learned from labels. Each model comes with its
    graph: the same nodes and classes, perhaps another split.
    """
    total: Predictions | None = None
    ids, number = np.empty(0), 0
    for model, graph in members:
        number += 1
        if nodes is None:
            own = model.predict(graph)
        else:
            p = model.classify(graph, nodes)
            own = Predictions(np.asarray(nodes), p.argmax(1), p, model.model_.class_names)
        own_ids = graph.external_ids[own.nodes]
        if total is None:
            total, ids = own, own_ids
        elif own.class_names != total.class_names or not np.array_equal(own_ids, ids):
            raise InputError(
                "models that answer together need the same nodes without a label, in the same order, and the same "
                "classes: fit them on the same tables"
            )
        else:
            total = replace(total, probabilities=total.probabilities + own.probabilities)
    if total is None:
        raise InputError("an ensemble needs at least one model")
    mean = total.probabilities / number
    return replace(total, labels=mean.argmax(1), probabilities=mean)
