"""What a report finds out about the embeddings: scores by protocol, and which classes are confused."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from graphstrap.errors import InputError
from graphstrap.estimator import BGRL, random_init
from graphstrap.evaluate import has_published_splits, has_seen_test_labels
from graphstrap.evaluate._splits import published
from graphstrap.features import raw_features
from graphstrap.graph import Graph
from graphstrap.hidden_edges import score_links
from graphstrap.report.scores import MAX_LABELLED, Confusion, Scores, confuse, has_classes, score

Array = np.ndarray[Any, Any]

PROTOCOLS = ("paper", "knn", "clustering")
RARE, FEWEST_RARE = 0.2, 200  # a class, as a part of the labelled nodes; a tenth of those that are scored is fitted on
MAX_LINKS = 5_000_000  # edges of a graph without labels that `links` is tried on without being asked for


@dataclass(frozen=True, eq=False)
class Knowledge:
    """`h` are the embeddings of the first seed, which is the one that the map shows."""

    graph: Graph
    h: Array
    scores: Scores | None
    confusion: Confusion | None


def find_out(
    models: Sequence[BGRL],
    graph: Graph,
    embeddings: Sequence[Array],
    *,
    executor: Executor,
    protocols: Sequence[str] | None,
    num_runs: int | None,
) -> Knowledge:
    """Evaluate models that differ by their seed, raw features and an untrained encoder beside.

    `protocols` are run as they are given, and one that cannot be is refused; `links` among them trains anew. None:
    PROTOCOLS, and the published splits where there are any; without labels hidden edges, by the encoder as it is.
    `num_runs` None: a few splits, and more of them where labels are few.
    """
    model, h = models[0], embeddings[0]
    if protocols is None and not has_classes(graph):
        return Knowledge(graph, h, _by_links(model, graph), None)
    chosen, note = (list(protocols), "") if protocols is not None else _usual(model, graph)
    _check_honest(model, graph, protocols or ())
    by_labels = [name for name in chosen if name != "links"]
    scores = Scores({})
    if by_labels:
        candidates: dict[str, Sequence[Any]] = {}
        if (raw := raw_features(graph)) is not None:
            candidates["raw features"] = [raw]
        candidates["random init"] = [random_init(graph, model.recipe_, seed=model.seed, device=model.device)]
        candidates[model.recipe_.method.name] = embeddings
        scores = score(candidates, graph, executor=executor, protocols=by_labels, num_runs=num_runs)
    tables = {**scores.tables, **({"links": score_links(model, graph, progress=False)} if "links" in chosen else {})}
    notes = "; ".join(one for one in (scores.note, note) if one)
    scores = replace(scores, tables={name: tables[name] for name in chosen}, note=notes)
    learned = has_seen_test_labels(model.recipe_, graph, protocol="paper")  # what confusions are counted on
    return Knowledge(graph, h, scores, None if learned or not has_classes(graph) else confuse(h, graph))


def _usual(model: BGRL, graph: Graph) -> tuple[list[str], str]:
    """The protocols of a report for which nobody asked for others, and what is left out because it takes too long."""
    names, note, splits = [*(["auc"] if graph.splits is None and _is_one_rare(graph) else []), *PROTOCOLS], "", []
    if has_published_splits(graph) and graph.labels is not None:
        try:
            splits = published(graph.splits, np.flatnonzero(graph.labels.numpy() >= 0))
        except InputError as error:
            note = str(error)
    if splits:
        num_fitted = max(len(split.train) + len(split.val) for split in splits)
        if num_fitted <= MAX_LABELLED:
            names.insert(0, "public")
        else:
            note = (
                f"the published split has {num_fitted:,} nodes to fit on and was left out: --protocol public takes it"
            )
    return [name for name in names if not has_seen_test_labels(model.recipe_, graph, protocol=name)], note


def _is_one_rare(graph: Graph) -> bool:
    """Whether there are two classes of which one is rare, so that calling all nodes by the other scores high."""
    assert graph.labels is not None
    if graph.labels.is_floating_point() or graph.labels.dtype == torch.bool:
        return False  # no classes: the evaluation says so
    counts = torch.bincount(graph.labels[graph.labels >= 0], minlength=2)
    rare, total = int(counts.min()), int(counts.sum())
    num_scored = rare * min(1.0, MAX_LABELLED / max(1, total))
    return len(counts) == 2 and num_scored >= FEWEST_RARE and rare < RARE * total


def _check_honest(model: BGRL, graph: Graph, protocols: Sequence[str]) -> None:
    for name in protocols:
        if has_seen_test_labels(model.recipe_, graph, protocol=name):
            raise InputError(
                f"this model has learned from labels that the protocol {name!r} tests on: give the node table a split "
                "column and take 'public', or take 'links'"
            )


def _by_links(model: BGRL, graph: Graph) -> Scores | None:
    """Hidden edges; what cannot be hidden, in a graph that is too small, is no reason to have no report."""
    if graph.num_edges > MAX_LINKS:
        return None
    try:
        return Scores({"links": score_links(model, graph, refit=False)})
    except InputError:
        return None
