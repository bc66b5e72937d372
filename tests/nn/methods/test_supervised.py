"""Supervised networks against an independent NumPy version, and what they may not look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_random_graph

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.methods.supervised import Supervised, SupervisedSettings, dropout, fit_supervised, make_optimizer

Array = np.ndarray[Any, Any]
SHORT = SupervisedSettings(hidden_size=16, max_steps=60)


def make_model(encoder: str = "gcn", *, dropout_prob: float = 0.0) -> Supervised:
    generator, settings = torch.Generator().manual_seed(0), SupervisedSettings(hidden_size=6, dropout_prob=dropout_prob)
    return Supervised(encoder, (12,), num_classes=4, settings=settings, generator=generator)


def make_graph() -> Graph:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    return replace(graph, labels=torch.where(torch.arange(30) < 12, torch.arange(30) % 4, -1))


@pytest.mark.parametrize("encoder", ["gcn", "mlp"])
def test_loss_equals_an_independent_numpy_version(encoder: str) -> None:
    graph, model = make_graph(), make_model(encoder)
    loss = model.loss(graph, CLEAN)
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    adjacency = np.eye(30)
    adjacency[graph.targets, graph.indices] += 1.0
    degree = adjacency.sum(1)
    spread = adjacency / np.sqrt(degree[:, None] * degree[None, :]) if encoder == "gcn" else np.eye(30)
    assert graph.x is not None
    assert graph.labels is not None
    z = spread @ graph.x.to_dense().numpy() @ weights["online.input_weights.0"] + weights["online.layers.0.bias"]
    h = np.where(z > 0, z, weights["online.layers.0.slope"] * z)
    scores = spread @ h @ weights["weight"] + weights["bias"]
    losses = [np.log(np.exp(scores[i]).sum()) - scores[i, int(graph.labels[i])] for i in range(12)]
    assert float(loss.detach()) == pytest.approx(np.mean(losses), abs=1e-5)
    np.testing.assert_allclose(model.predict(graph), scores, rtol=1e-4, atol=1e-5)


def test_dropout_drops_its_part_and_keeps_the_mean() -> None:
    h = torch.ones(400, 50)
    dropped = dropout(h, 0.3, seed=5)
    assert np.unique(dropped.numpy()).tolist() == pytest.approx([0.0, 1 / 0.7])
    rate = float((dropped == 0).float().mean())
    assert abs(rate - 0.3) < 5 * (0.3 * 0.7 / 20_000) ** 0.5
    assert torch.equal(dropped, dropout(h, 0.3, seed=torch.tensor(5)))
    assert not torch.equal(dropped, dropout(h, 0.3, seed=6))
    assert dropout(h, 0.0, seed=5) is h


def test_dropout_is_for_training_alone_and_the_seed_decides() -> None:
    graph, model = make_graph(), make_model(dropout_prob=0.5)
    losses = [float(model.loss(graph, View(ViewSpec(), seed)).detach()) for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(model.predict(graph), model.predict(graph))


def test_the_penalty_is_on_the_first_weights_alone() -> None:
    model = make_model()
    penalised, others = make_optimizer(model, SupervisedSettings(weight_decay=0.1)).param_groups
    assert [tuple(one.shape) for one in penalised["params"]] == [(12, 6)]
    assert (penalised["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert len(others["params"]) == len(list(model.parameters())) - 1


@pytest.mark.parametrize("encoder", ["gcn", "mlp"])
def test_labels_outside_training_and_validation_do_not_matter(communities: Graph, encoder: str) -> None:
    assert communities.labels is not None
    train, val = torch.arange(0, 30), torch.arange(30, 50)
    shuffled = torch.cat([communities.labels[:50], communities.labels[50:].flip(0)])
    assert not torch.equal(shuffled, communities.labels)
    scores, same = (
        fit_supervised(graph, encoder=encoder, train=train, val=val, settings=SHORT).predict(graph)
        for graph in (communities, replace(communities, labels=shuffled))
    )
    assert torch.equal(scores, same)


def loss_on(nodes: torch.Tensor, graph: Graph, model: Supervised) -> float:
    assert graph.labels is not None
    return float(torch.nn.functional.cross_entropy(model.predict(graph)[nodes], graph.labels[nodes]))


@pytest.mark.parametrize("feature_dropout_prob", [0.0, 0.5])
def test_labels_are_learned(communities: Graph, feature_dropout_prob: float) -> None:
    train, val, test = torch.arange(0, 40), torch.arange(40, 80), torch.arange(80, 120)
    settings = replace(SHORT, feature_dropout_prob=feature_dropout_prob)
    model = fit_supervised(communities, encoder="gcn", train=train, val=val, settings=settings)
    assert loss_on(test, communities, model) < 0.5 < 1.0 < np.log(3)


def test_the_weights_of_the_lowest_validation_loss_are_kept(communities: Graph) -> None:
    """At a rate at which the loss goes up and down, more steps may only lower it; without patience it stops early."""
    train, val = torch.arange(0, 40), torch.arange(40, 80)

    def kept_loss(max_steps: int, patience: int = 1000) -> float:
        settings = replace(SHORT, learning_rate=0.5, max_steps=max_steps, patience=patience)
        model = fit_supervised(communities, encoder="gcn", train=train, val=val, settings=settings)
        return loss_on(val, communities, model)

    losses = [kept_loss(max_steps) for max_steps in range(1, 30, 4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
    assert kept_loss(29, patience=1) > losses[-1]
