"""Baselines on the protocols' splits: sane accuracies, and no look at a test label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

from graphstrap.api import baselines
from graphstrap.api.baselines import evaluate_label_propagation, evaluate_supervised
from graphstrap.errors import InputError
from graphstrap.evaluation.registry import Evaluation
from graphstrap.evaluation.task import Index, fifths, run_generator, tenths
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.datasets import load
from graphstrap.nn.methods.label_propagation import propagate_labels
from graphstrap.nn.methods.supervised import Supervised, SupervisedSettings, fit_supervised

SHORT = SupervisedSettings(max_steps=50)
BASELINES: dict[str, Callable[..., Evaluation]] = {
    "labels": evaluate_label_propagation,
    "gcn": partial(evaluate_supervised, encoder="gcn", settings=SHORT),
    "mlp": partial(evaluate_supervised, encoder="mlp", settings=SHORT),
}


@pytest.fixture
def many() -> Graph:
    """300 nodes in three communities: guessing gives a third."""
    return make_communities(num_nodes=300, num_classes=3, seed=0)


def with_splits(graph: Graph, *, num_val: int, num_train: int = 60) -> Graph:
    order, masks = torch.arange(graph.num_nodes)[:, None].repeat(1, 2), []
    for low, high in ((0, num_train), (60, 60 + num_val), (150, 300)):
        masks.append((order >= low) & (order < high))
    return replace(graph, splits=Splits(*masks))


@pytest.mark.parametrize("protocol", ["paper", "reference", "public"])
@pytest.mark.parametrize(("name", "at_least"), [("labels", 90), ("gcn", 90), ("mlp", 50)])
def test_accuracy_is_sane_and_the_protocol_is_named(many: Graph, name: str, at_least: float, protocol: str) -> None:
    found = BASELINES[name](with_splits(many, num_val=40), protocol=protocol, num_runs=2, device="cpu")
    assert found.mean > at_least
    assert found.protocol == protocol
    assert len(found.runs) == 2
    assert ("2 published splits" if protocol == "public" else "2 random splits") in str(found)


@pytest.mark.parametrize("protocol", ["paper", "reference", "public"])
@pytest.mark.parametrize("name", ["labels", "gcn"])
def test_test_labels_do_not_leak(many: Graph, name: str, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other labels on test nodes change the accuracy, but no prediction."""
    graph = with_splits(many, num_val=0)
    predictions: list[torch.Tensor] = []
    accuracy = baselines._accuracy

    def noting(predicted: torch.Tensor, labels: torch.Tensor, nodes: Index) -> float:
        predictions.append(predicted)
        return accuracy(predicted, labels, nodes)

    monkeypatch.setattr(baselines, "_accuracy", noting)
    nodes = np.arange(300)
    test = np.arange(150, 300)
    if protocol != "public":
        test = (tenths if protocol == "paper" else fifths)(nodes, run_generator(0, 0)).test
    assert graph.labels is not None
    shuffled = graph.labels.clone()
    shuffled[test] = graph.labels[test].flip(0)
    found = [
        BASELINES[name](replace(graph, labels=labels), protocol=protocol, num_runs=1, device="cpu").runs[0]
        for labels in (graph.labels, shuffled)
    ]
    half = len(predictions) // 2
    assert found[0] != found[1]
    assert all(torch.equal(a, b) for a, b in zip(predictions[:half], predictions[half:], strict=True))


@pytest.mark.parametrize("protocol", ["paper", "reference"])
@pytest.mark.parametrize("name", ["labels", "gcn"])
def test_the_split_is_the_protocols_and_nothing_is_chosen_or_tested_on_what_was_learned(
    many: Graph, name: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned, asked = [], []
    accuracy = baselines._accuracy

    def noting_propagate(graph: Graph, labels: torch.Tensor, train: torch.Tensor, **rest: Any) -> torch.Tensor:
        learned.append(train.numpy())
        return propagate_labels(graph, labels, train, **rest)

    def noting_fit(graph: Graph, *, train: torch.Tensor, val: torch.Tensor, **rest: Any) -> Supervised:
        learned.append(np.concatenate([train.numpy(), val.numpy()]))
        assert not set(train.tolist()) & set(val.tolist())
        return fit_supervised(graph, train=train, val=val, **rest)

    def noting_accuracy(predicted: torch.Tensor, labels: torch.Tensor, nodes: Index) -> float:
        asked.append(nodes)
        return accuracy(predicted, labels, nodes)

    monkeypatch.setattr(baselines, "propagate_labels", noting_propagate)
    monkeypatch.setattr(baselines, "fit_supervised", noting_fit)
    monkeypatch.setattr(baselines, "_accuracy", noting_accuracy)
    BASELINES[name](many, protocol=protocol, num_runs=1, seed=3, device="cpu")
    assert all(not set(a) & set(b) for a, b in zip(learned, asked, strict=True))
    split = (tenths if protocol == "paper" else fifths)(np.arange(300), run_generator(3, 0))
    assert np.array_equal(asked[-1], split.test)
    known = split.train if name == "labels" else np.concatenate([split.train, split.val])
    assert np.array_equal(learned[-1], known)


@pytest.mark.parametrize("name", ["labels", "gcn"])
def test_published_training_nodes_in_the_order_of_their_classes_are_halved_fairly(many: Graph, name: str) -> None:
    """Nodes sorted by class, training nodes without validation nodes: each half must know every class."""
    assert many.labels is not None
    assert isinstance(many.x, SparseMatrix)
    order = many.labels.argsort(stable=True)
    place = torch.empty_like(order).index_copy_(0, order, torch.arange(300))
    train = torch.arange(300)[:, None] % 100 < 20
    graph = Graph.from_edges(
        place[many.indices.long()],
        place[many.targets],
        num_nodes=300,
        x=many.x.to_dense()[order],
        labels=many.labels[order],
    )
    graph = replace(graph, splits=Splits(train, torch.zeros_like(train), ~train))
    found = BASELINES[name](graph, protocol="public", device="cpu")
    assert found.mean > 80
    assert "learned from train, of which half is for validation" in found.detail
    assert "half" not in BASELINES[name](with_splits(many, num_val=40), protocol="public", device="cpu").detail


def test_a_run_is_that_of_its_seed_alone(many: Graph) -> None:
    two, three = (evaluate_label_propagation(many, num_runs=n, device="cpu").runs for n in (2, 3))
    assert two == three[:2]
    settings = replace(SHORT, max_steps=5)
    again = [evaluate_supervised(many, num_runs=1, settings=settings, device="cpu").runs for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize(("encoder", "at_least"), [("gcn", 90), ("mlp", 85)])
def test_supervised_networks_read_digits(encoder: str, at_least: float) -> None:
    """Raw features have 90 there, by a linear probe."""
    settings = SupervisedSettings(max_steps=100)
    found = evaluate_supervised(load("digits"), encoder=encoder, num_runs=1, settings=settings, device="cpu")
    assert found.mean > at_least


def test_label_propagation_reads_digits() -> None:
    assert evaluate_label_propagation(load("digits"), num_runs=1, device="cpu").mean > 94


def test_unlabelled_nodes_take_no_part(many: Graph) -> None:
    assert many.labels is not None
    labels = torch.where(torch.arange(300) % 4 == 0, -1, many.labels)
    for evaluate_one in BASELINES.values():
        assert evaluate_one(replace(many, labels=labels), num_runs=1, device="cpu").mean > 50


def test_what_cannot_be_evaluated_is_named(many: Graph) -> None:
    for evaluate_one in (evaluate_label_propagation, evaluate_supervised):
        with pytest.raises(InputError, match="protocol must be one of paper, reference, public"):
            evaluate_one(many, protocol="knn")
        with pytest.raises(InputError, match="num_runs"):
            evaluate_one(many, num_runs=0)
        with pytest.raises(InputError, match="one class number"):
            evaluate_one(replace(many, labels=None))
        with pytest.raises(InputError, match="edge weight is negative"):
            evaluate_one(replace(many, edge_weights=torch.full((many.num_edges,), -1.0)))
        with pytest.raises(InputError, match="two training nodes"):
            evaluate_one(with_splits(many, num_train=1, num_val=0), protocol="public")
    with pytest.raises(InputError, match="gcn or mlp"):
        evaluate_supervised(many, encoder="gat")
    with pytest.raises(InputError, match="published splits"):
        evaluate_label_propagation(many, protocol="public")
