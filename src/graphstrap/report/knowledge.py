"""What a report finds out about the embeddings: scores by protocol, and which classes are confused."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.estimator import BGRL, random_init
from graphstrap.evaluate import has_published_splits, has_seen_test_labels
from graphstrap.graph import Graph
from graphstrap.hidden_edges import score_links
from graphstrap.report.scores import Confusion, Scores, confuse, has_classes, score

Array = np.ndarray[Any, Any]

PROTOCOLS = ("paper", "knn", "clustering")
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
    num_runs: int,
) -> Knowledge:
    """Evaluate models that differ by their seed, raw features and an untrained encoder beside.

    `protocols` None: PROTOCOLS, the published splits where there are any; without labels hidden edges, by the encoder
    as it is. `links` that is asked for trains anew.
    """
    model, h = models[0], embeddings[0]
    if not has_classes(graph):
        asked = protocols is not None and "links" in protocols
        return Knowledge(graph, h, _by_links(model, graph, asked=asked), None)
    candidates: dict[str, Sequence[Any]] = {}
    if len(graph.features) == 1 and graph.x is not None:
        candidates["raw features"] = [graph.x]
    candidates["random init"] = [random_init(graph, model.recipe_, seed=model.seed, device=model.device)]
    candidates[model.recipe_.method.name] = embeddings
    chosen = [name for name in protocols or PROTOCOLS if name != "links"]
    if "public" not in chosen and has_published_splits(graph):
        chosen.insert(0, "public")
    chosen = [name for name in chosen if not has_seen_test_labels(model.recipe_, graph, protocol=name)]
    scores = score(candidates, graph, executor=executor, protocols=chosen, num_runs=num_runs) if chosen else Scores({})
    if protocols is not None and "links" in protocols:
        scores.tables["links"] = score_links(model, graph)
    learned = has_seen_test_labels(model.recipe_, graph, protocol="paper")  # what confusions are counted on
    return Knowledge(graph, h, scores, None if learned else confuse(h, graph))


def _by_links(model: BGRL, graph: Graph, *, asked: bool) -> Scores | None:
    """Hidden edges; what cannot be hidden, in a graph that is too small, is no reason to have no report."""
    if graph.num_edges > MAX_LINKS and not asked:
        return None
    try:
        return Scores({"links": score_links(model, graph, refit=asked)})
    except InputError:
        if asked:
            raise
        return None
