"""Several models that answer together: folds in one folder, and the mean of probabilities.

    p(class | node)  =  mean over models of p_model(class | node)

A folder of folds holds a run folder for each, `fold-0`, `fold-1`, ..., each with its own seed, SEED + its number. A
fold is part of where its graph comes from, so that every verb that opens the run finds its own split.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.api.estimator import BGRL
from graphstrap.api.predict import Predictions
from graphstrap.api.seeds import seed_folders
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.files import atomic_write, read_text
from graphstrap.io.folds import make_folds
from graphstrap.io.source import Source
from graphstrap.run.folder import Run
from graphstrap.run.settings import checked_seed

LIST_FILE = "folds.json"


def begin_folds(
    estimator: BGRL, where: Source, graph: Graph, *, run: Path, number: int, part: str | None = None
) -> None:
    """A folder with an untrained run for each fold; `resume_folds` trains them."""
    if not estimator.resolve(graph).method_class.learns_labels:
        raise InputError("folds are of labels, which this method does not learn from: take --method semi-supervised")
    folds = make_folds(graph, number, part=part)
    first = checked_seed(estimator.seed)
    members = [BGRL(**{**estimator.get_params(), "seed": first + fold.number}) for fold in folds]
    graphs = [fold(graph) for fold in folds]
    models = [
        member.build(folded)[0] for member, folded in zip(members, graphs, strict=True)
    ]  # may fail, so it is first
    try:
        run.mkdir(parents=True)
        with atomic_write(run / LIST_FILE) as temporary:
            temporary.write_text(json.dumps({"folds": number}) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"run folder {run} cannot be made: {error.strerror or error}") from error
    for member, model, folded, fold in zip(members, models, graphs, folds, strict=True):
        source = replace(where, fold=fold).to_dict()
        member.create_run(run / f"fold-{fold.number}", model, folded, source=source)


def resume_folds(folder: Path, graph: Graph | None = None, *, progress: bool | None = None) -> list[Run]:
    """Train the folds that are not finished, one after the other, each from its last checkpoint. `graph` is the one
    that they are folds of, if it has been loaded already."""
    runs = [Run.open(one) for one in fold_folders(folder)]
    for run in (run for run in runs if not run.is_finished):
        source = Source.from_dict(run.info["source"], run=run.folder)
        graph = replace(source, fold=None).load() if graph is None else graph
        assert source.fold is not None
        BGRL.resume(run.folder, source.fold(graph), progress=progress)
    return runs


def fold_folders(folder: Path) -> list[Path]:
    """The run folders of a folder of folds; none for any other folder."""
    if not (folder / LIST_FILE).exists():
        return []
    try:
        number = json.loads(read_text(folder / LIST_FILE))["folds"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{folder / LIST_FILE} is damaged: {error}") from error
    if not isinstance(number, int) or not 2 <= number <= 10_000:
        raise InputError(f"{folder / LIST_FILE} is damaged: folds is a whole number from 2 up")
    folders = [folder / f"fold-{index}" for index in range(number)]
    missing = [one.name for one in folders if not one.is_dir()]
    if missing:
        raise InputError(f"{folder} was cut before all of its folds began ({', '.join(missing)}): delete it, fit again")
    return folders


def member_folders(folders: Iterable[Path]) -> list[Path]:
    """All runs: of a folder of folds or of seeds, each of them."""
    return [one for folder in folders for one in (fold_folders(folder) or seed_folders(folder) or [folder])]


def answer_together(members: Iterable[tuple[BGRL, Graph]], *, nodes: Any = None) -> Predictions:
    """The mean of the models' probabilities: for the nodes without a label, or for these, by heads that learned from
    labels. Each model comes with its graph: the same nodes and classes, perhaps another split."""
    total: Predictions | None = None
    ids: Any = None
    number = 0
    for model, graph in members:
        own = model.predict(graph) if nodes is None else _classified(model, graph, nodes)
        if total is None:
            total, ids = own, graph.external_ids[own.nodes]
        elif own.class_names != total.class_names or not np.array_equal(graph.external_ids[own.nodes], ids):
            raise InputError(
                "models that answer together need the same nodes without a label, in the same order, and the same "
                "classes: fit them on the same tables"
            )
        else:
            total = replace(total, probabilities=total.probabilities + own.probabilities)
        number += 1
    if total is None:
        raise InputError("an ensemble needs at least one model")
    mean = total.probabilities / number
    return replace(total, labels=mean.argmax(1), probabilities=mean)


def _classified(model: BGRL, graph: Graph, nodes: Any) -> Predictions:
    p = model.classify(graph, nodes)
    return Predictions(np.asarray(nodes), p.argmax(1), p, model.model_.class_names)
