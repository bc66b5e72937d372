"""ROC AUC of the probe is that of scikit-learn's logistic regression, C chosen by it on validation nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from graphstrap.errors import InputError
from graphstrap.evaluation.probe import STRENGTHS
from graphstrap.evaluation.protocols import evaluate, evaluate_many
from graphstrap.graph import Graph, Splits

Array = np.ndarray[Any, Any]


def make_task(seed: int = 0) -> tuple[Array, Graph]:
    """Two classes, the second rare among test nodes."""
    random = np.random.default_rng(seed)
    part = np.repeat([0, 1, 2], [150, 60, 200])
    labels = (random.random(410) < np.where(part == 2, 0.15, 0.5)).astype(np.int64)
    h = random.standard_normal((410, 8)) + 0.7 * labels[:, None] * (np.arange(8) < 3)
    splits = Splits(*(torch.from_numpy(part == which)[:, None] for which in range(3)))
    return h, replace(Graph.from_edges([0], [1], num_nodes=410, labels=labels), splits=splits)


def test_equals_scikit_learn() -> None:
    h, graph = make_task()
    assert graph.splits is not None
    assert graph.labels is not None
    train, val, test = (getattr(graph.splits, part)[:, 0].numpy() for part in ("train", "val", "test"))
    x, y = h / np.linalg.norm(h, axis=1, keepdims=True), graph.labels.numpy()
    models = [LogisticRegression(C=c, solver="liblinear", tol=1e-8).fit(x[train], y[train]) for c in STRENGTHS]
    on_val = [roc_auc_score(y[val], model.decision_function(x[val])) for model in models]
    best = int(np.argmax(on_val))
    expected = 100 * roc_auc_score(y[test], models[best].decision_function(x[test]))
    for solver in ("newton", "liblinear"):
        outcome = evaluate(h, graph, protocol="auc", solver=solver)
        assert outcome.metric == "auc"
        assert outcome.val_runs == pytest.approx([100 * on_val[best]], abs=0.3)
        assert outcome.mean == pytest.approx(expected, abs=0.3)


def test_a_perfect_order_gives_one_hundred_and_no_order_half() -> None:
    _, graph = make_task()
    assert graph.labels is not None
    perfect = graph.labels.numpy()[:, None] * 2.0 - 1.0
    assert evaluate(perfect, graph, protocol="auc").mean == 100.0
    noise = np.random.default_rng(9).standard_normal((410, 3))
    assert abs(evaluate(noise, graph, protocol="auc").mean - 50) < 4 * 100 / np.sqrt(12 * 30)


def test_many_together_give_what_each_gives_alone() -> None:
    (h, graph), (other, _) = make_task(0), make_task(1)
    alone = [evaluate(one, graph, protocol="auc").mean for one in (h, other)]
    together = evaluate_many([h, other], graph, protocol="auc", seeds=[0, 0])
    assert [one.mean for one in together] == pytest.approx(alone, abs=0.1)


def test_more_than_two_classes_are_refused() -> None:
    h, graph = make_task()
    with pytest.raises(InputError, match="exactly two classes"):
        evaluate(h, replace(graph, labels=torch.arange(410) % 3), protocol="auc")


def test_without_published_splits_random_ones_are_drawn() -> None:
    h, graph = make_task()
    graph = replace(graph, splits=None)
    outcome = evaluate(h, graph, protocol="auc", num_runs=3)
    assert len(outcome.runs) == len(set(outcome.runs)) == 3
    assert "tested on 80 %, 3 random splits" in outcome.detail
    together = evaluate_many([h, h], graph, protocol="auc", num_runs=3, seeds=[0, 1])
    assert together[0].runs == pytest.approx(outcome.runs, abs=0.1)
    assert together[1].runs != together[0].runs
