"""Label propagation against a dense NumPy iteration, and its laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import make_random_graph

from graphstrap.graph import Graph
from graphstrap.nn.methods.label_propagation import propagate_labels


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("num_steps", "restart"), [(0, 0.0), (1, 0.0), (7, 0.0), (7, 0.3)])
def test_scores_equal_a_dense_numpy_iteration(num_steps: int, restart: float, weighted: bool) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0, weighted=weighted)
    labels, train = torch.arange(30) % 4, torch.tensor([3, 0, 17, 29, 6])
    scores = propagate_labels(graph, labels, train, num_steps=num_steps, restart=restart)

    adjacency = np.eye(30)
    adjacency[graph.targets, graph.indices] += 1.0 if graph.edge_weights is None else graph.edge_weights.numpy()
    degree = adjacency.sum(1)
    spread = adjacency / np.sqrt(degree[:, None] * degree[None, :])
    known = np.zeros((30, 4))
    known[train, labels[train]] = 1.0
    expected = known
    for _ in range(num_steps):
        expected = (1 - restart) * spread @ expected
        expected[train] = known[train]
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_one_label_in_each_of_two_cliques_labels_both() -> None:
    source, target = np.nonzero(np.triu(np.kron(np.eye(2), np.ones((6, 6))), 1))
    graph = Graph.from_edges(source, target, num_nodes=13)  # the last node is isolated
    labels = torch.tensor([0] * 6 + [1] * 6 + [1])
    scores = propagate_labels(graph, labels, torch.tensor([2, 9]), num_steps=3, restart=0.1)
    assert torch.equal(scores.argmax(1)[:12], labels[:12])
    assert scores[12].tolist() == [0.0, 0.0]


def test_only_training_labels_are_looked_at() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    labels, train = torch.arange(30) % 4, torch.tensor([3, 0, 17, 29, 6])
    shuffled = torch.arange(30).flip(0) % 4
    shuffled[train] = labels[train]
    assert not torch.equal(shuffled, labels)
    scores, same = (propagate_labels(graph, one, train, num_steps=5, restart=0.1) for one in (labels, shuffled))
    assert torch.equal(scores, same)


def test_known_labels_never_change_and_more_steps_reach_further() -> None:
    path = Graph.from_edges(range(9), range(1, 10))
    labels, train = torch.tensor([0] * 9 + [1]), torch.tensor([0])
    for num_steps in (1, 4):
        scores = propagate_labels(path, labels, train, num_steps=num_steps, restart=0.0)
        assert scores[0].tolist() == [1.0, 0.0]
        assert torch.equal(scores[:, 0] > 0, torch.arange(10) <= num_steps)


@pytest.mark.parametrize(("num_steps", "restart"), [(-1, 0.1), (3, 1.0), (3, -0.1)])
def test_wrong_settings_are_named(num_steps: int, restart: float) -> None:
    graph = make_random_graph(num_nodes=10, num_edges=20, seed=0)
    with pytest.raises(ValueError, match="num_steps must be at least 0 and restart"):
        propagate_labels(graph, torch.zeros(10).long(), torch.tensor([0]), num_steps=num_steps, restart=restart)
