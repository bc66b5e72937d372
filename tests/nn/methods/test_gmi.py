"""GMI against an independent NumPy version and against the dense form of its topology term."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_random_graph

from graphstrap.graph import Graph, View, ViewSpec
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.gmi import (
    GMI,
    drawn_edges,
    drawn_non_edges,
    jensen_shannon_loss,
    neighbor_means,
    other_nodes,
    random_words,
    topology_loss,
)
from graphstrap.run.recipe import Recipe

Array = np.ndarray[Any, Any]
CPU = torch.device("cpu")


def make_method(*layer_sizes: int, norm: str = "none") -> GMI:
    *hidden, size = layer_sizes or (8,)
    encoder = {"encoder.hidden_sizes": hidden, "encoder.embedding_size": size, "encoder.norm": norm}
    recipe = Recipe().with_settings({"method.name": "gmi", "method.num_negatives": 3, **encoder})
    method: GMI = build_method(recipe, input_sizes=(12,), seed=0)
    return method


def dense_features(graph: Graph) -> Array:
    assert isinstance(graph.x, SparseMatrix)
    return graph.x.to_dense().numpy().astype(np.float64)


def dense_adjacency(graph: Graph) -> Array:
    a = np.zeros((graph.num_nodes, graph.num_nodes))
    a[graph.targets.numpy(), graph.indices.numpy()] = 1.0
    return a


def prelu(z: Array, slope: Array) -> Array:
    return np.where(z > 0, z, slope * z)


def softplus(z: Array) -> Array:
    result: Array = np.log(1 + np.exp(z))
    return result


def sigmoid(z: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-z))
    return result


@pytest.mark.parametrize("layer_sizes", [(8,), (16, 8)])
@pytest.mark.parametrize("seed", [77, torch.tensor(77)])
def test_loss_equals_an_independent_numpy_version(layer_sizes: tuple[int, ...], seed: int | torch.Tensor) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method(*layer_sizes)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    loss, stats = method.loss(graph, [View(ViewSpec(), seed)])

    w = {name: value.detach().numpy() for name, value in method.named_parameters()}
    a, x = dense_adjacency(graph), dense_features(graph)
    scale = (a.sum(1) + 1) ** -0.5
    a_hat = scale[:, None] * (a + np.eye(30)) * scale[None, :]
    weights = [w["online.input_weights.0"], *(w[name] for name in w if name.startswith("online.weights"))]
    h = x
    for index, weight in enumerate(weights):
        z = a_hat @ (h @ weight) + w[f"online.layers.{index}.bias"]
        h = prelu(z, w[f"online.layers.{index}.slope"])
    around = prelu(a @ (x @ weights[0]) / np.maximum(a.sum(1), 1)[:, None], w["slope"])

    words = random_words(12, 30, 77, CPU)
    others = other_nodes(words).numpy()
    q, r = w["feature_weights.0"], w["neighbor_weight"]
    own_scores = sigmoid(x @ q @ h.T + w["feature_bias"])  # [j, i]
    neighbor_scores = sigmoid(h @ r @ around.T + w["neighbor_bias"])
    terms = []
    for scores, drawn in ((own_scores, others[:3]), (neighbor_scores, others[3:6])):
        mismatched = [softplus(scores[drawn[k, i], i]) for k in range(3) for i in range(30)]
        terms.append(softplus(-scores.diagonal()).mean() + np.mean(mismatched))
    linked, unlinked = [], []
    loops = [(i, i) for i in range(30)]
    pairs = [*zip(graph.targets.tolist(), graph.indices.tolist(), strict=True), *loops]
    for word in words[6:9].flatten().tolist():
        i, j = pairs[word % len(pairs)]
        linked.append(softplus(-h[i] @ h[j]))
    for k in range(9, 12):
        unlinked += [softplus(h[i] @ h[others[k, i]]) for i in range(30) if not a[i, others[k, i]]]
    expected = 0.8 * terms[0] + terms[1] + 2 * np.mean(linked) + np.mean(unlinked)
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(stats["embedding"].numpy(), h, atol=1e-5)


def test_topology_term_is_the_dense_one() -> None:
    """Over all pairs it is the authors' weighted cross-entropy of the whole matrix, but for one nearly 1 factor."""
    graph = make_random_graph(num_nodes=30, num_edges=40, seed=2)
    h = 0.3 * torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    truth = dense_adjacency(graph) + np.eye(30)
    chance, num_edges = sigmoid((h @ h.T).numpy().astype(np.float64)), truth.sum() / 2
    weight_1, weight_2 = (900 - num_edges) / num_edges, 900 / (900 - num_edges)
    dense = weight_2 * (-weight_1 * truth * np.log(chance) - (1 - truth) * np.log(1 - chance)).mean()

    first, second = (torch.from_numpy(part).flatten() for part in np.indices((30, 30)))
    is_linked = torch.from_numpy(truth).flatten() > 0
    ours = topology_loss(h, (first[is_linked], second[is_linked]), (first, second, (~is_linked).long()))
    unlinked_mean = -(np.log(1 - chance) * (1 - truth)).sum() / (1 - truth).sum()
    nearly_one = (900 - 2 * num_edges) / (900 - num_edges)
    assert 0.9 < nearly_one < 1
    assert float(ours) == pytest.approx(dense + (1 - nearly_one) * unlinked_mean, abs=1e-5)


def test_drawn_pairs_are_linked_and_unlinked() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=200, seed=0)
    a = dense_adjacency(graph)
    words = random_words(40, 30, 5, CPU)
    i, j = (part.numpy() for part in drawn_edges(graph, words))
    assert (a + np.eye(30))[i, j].all()
    every_pair = graph.num_edges + 30
    assert len(np.unique(i * 30 + j)) > 0.9 * every_pair  # all are drawn sooner or later
    i, j, counts = (part.numpy() for part in drawn_non_edges(graph, words))
    assert (i != j).all()
    np.testing.assert_array_equal(counts, 1 - a[i, j])
    assert 0 < counts.mean() < 1


def test_other_nodes_are_others_and_equally_likely() -> None:
    drawn = other_nodes(random_words(2000, 7, 3, CPU))
    assert not bool((drawn == torch.arange(7)).any())
    counts = torch.bincount(drawn[:, 2], minlength=7)
    assert int(counts[2]) == 0
    assert all(abs(int(count) - 2000 / 6) < 5 * (2000 / 6) ** 0.5 for k, count in enumerate(counts) if k != 2)


def test_mean_of_neighbours_leaves_the_node_out() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    h = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    a = dense_adjacency(graph)
    assert (a.sum(1) == 0).any()
    expected = a @ h.numpy() / np.maximum(a.sum(1), 1)[:, None]
    np.testing.assert_allclose(neighbor_means(graph, h).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 1e6])
def test_mean_of_neighbours_does_not_care_how_large_weights_are(scale: float) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0, weighted=True)
    assert graph.edge_weights is not None
    h = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    scaled = replace(graph, edge_weights=graph.edge_weights * scale)
    torch.testing.assert_close(neighbor_means(scaled, h), neighbor_means(graph, h), rtol=1e-4, atol=1e-5)


def test_matching_rows_cost_less_than_mismatched_ones() -> None:
    rows, others = 5 * torch.eye(6), other_nodes(random_words(3, 6, 1, CPU))
    no_bias = torch.zeros(1)
    assert jensen_shannon_loss(rows, rows, no_bias, others) < jensen_shannon_loss(-rows, rows, no_bias, others)


def test_graphs_without_edges_have_a_finite_loss() -> None:
    lonely = Graph.from_edges([], [], num_nodes=5, x=np.eye(5, 12, dtype=np.float32))
    loss, _ = make_method().loss(lonely, [View(ViewSpec(), 5)])
    assert bool(torch.isfinite(loss))


def test_negatives_are_five_unless_the_recipe_says_otherwise() -> None:
    assert build_method(Recipe().with_settings({"method.name": "gmi"}), input_sizes=(12,), seed=0).num_negatives == 5
    asked = Recipe().with_settings({"method.name": "gmi", "method.num_negatives": 2})
    assert build_method(asked, input_sizes=(12,), seed=0).num_negatives == 2
