"""MVGRL against an independent NumPy version, its diffusion against an inverse, and its refusal of what cannot fit."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_random_graph

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn.encoders.gcn import GCN, shuffled_rows
from graphstrap.nn.methods import build_method, mvgrl
from graphstrap.nn.methods.mvgrl import MVGRL, diffusion, discrimination_loss, mvgrl_bytes
from graphstrap.run.recipe import Recipe

Array = np.ndarray[Any, Any]


def make_method(*layer_sizes: int, norm: str = "none", num_features: int = 12) -> MVGRL:
    *hidden, size = layer_sizes or (8,)
    encoder = {"encoder.hidden_sizes": hidden, "encoder.embedding_size": size, "encoder.norm": norm}
    recipe = Recipe().with_settings({"method.name": "mvgrl", **encoder})
    method: MVGRL = build_method(recipe, input_sizes=(num_features,), seed=0)
    return method


def dense_a_hat(graph: Graph) -> Array:
    a = np.eye(graph.num_nodes)
    source, target = graph.indices.numpy(), graph.targets.numpy()
    weights = np.ones(graph.num_edges) if graph.edge_weights is None else graph.edge_weights.numpy()
    np.add.at(a, (target, source), weights)
    scale = a.sum(1) ** -0.5
    result: Array = scale[:, None] * a * scale[None, :]
    return result


def dense_features(graph: Graph) -> Array:
    assert isinstance(graph.x, SparseMatrix)
    return graph.x.to_dense().numpy().astype(np.float64)


def numpy_gcn(encoder: GCN, a: Array, x: Array) -> Array:
    w = {name: value.detach().numpy() for name, value in encoder.named_parameters()}
    h = x
    for index, weight in enumerate([w["input_weights.0"], *(w[name] for name in w if name.startswith("weights"))]):
        z: Array = a @ h @ weight + w[f"layers.{index}.bias"]
        h = np.where(z > 0, z, w[f"layers.{index}.slope"] * z)
    return h


@pytest.mark.parametrize("layer_sizes", [(8,), (16, 8)])
@pytest.mark.parametrize("seed", [77, torch.tensor(77)])
def test_loss_equals_an_independent_numpy_version(layer_sizes: tuple[int, ...], seed: int | torch.Tensor) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method(*layer_sizes)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    loss, stats = method.loss(graph, [View(ViewSpec(), seed)])

    a, x = dense_a_hat(graph), dense_features(graph)
    s = 0.2 * np.linalg.inv(np.eye(30) - 0.8 * a)
    order = shuffled_rows(graph, View(ViewSpec(), 77), 0).numpy()
    f, g = method.online.adjacency, method.online.diffusion
    h_1, h_2, n_1, n_2 = (
        numpy_gcn(encoder, spread, rows)
        for encoder, spread, rows in ((f, a, x), (g, s, x), (f, a, x[order]), (g, s, x[order]))
    )
    weight, bias = method.weight.detach().numpy(), method.bias.detach().numpy()
    c_1, c_2 = (1 / (1 + np.exp(-h.mean(0))) for h in (h_1, h_2))
    logits = np.concatenate([h @ weight @ c + bias for h, c in ((h_1, c_2), (h_2, c_1), (n_1, c_2), (n_2, c_1))])
    truth = np.repeat([1.0, 0.0], 60)
    chance = 1 / (1 + np.exp(-logits))
    expected = -(truth * np.log(chance) + (1 - truth) * np.log(1 - chance)).mean()
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(stats["embedding"].numpy(), h_1 + h_2, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_diffusion_equals_an_inverse(weighted: bool) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=1, weighted=weighted)
    expected = 0.2 * np.linalg.inv(np.eye(30) - 0.8 * dense_a_hat(graph))
    np.testing.assert_allclose(diffusion(graph, 0.2).numpy(), expected, atol=1e-6)


def test_rows_of_a_regular_graphs_diffusion_sum_to_one() -> None:
    nodes = np.arange(20)
    ring = Graph.from_edges(nodes, (nodes + 1) % 20, num_nodes=20)
    s = diffusion(ring, 0.2)
    torch.testing.assert_close(s.sum(1), torch.ones(20))
    assert bool((s > 0).all())
    torch.testing.assert_close(s, s.T)
    torch.testing.assert_close(diffusion(ring, 1.0), torch.eye(20))


def test_diffusion_is_made_once_for_a_graph_and_forgotten_with_it() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    assert diffusion(graph, 0.2) is diffusion(graph, 0.2)
    assert not torch.equal(diffusion(graph, 0.2), diffusion(graph, 0.5))
    made = weakref.ref(diffusion(graph, 0.2))
    del graph
    gc.collect()
    assert made() is None


def test_what_cannot_fit_is_refused_before_anything_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*arguments: Any) -> None:
        raise AssertionError("allocated")

    monkeypatch.setattr(mvgrl, "free_memory", lambda device: 16 * 10**9)
    monkeypatch.setattr(mvgrl, "_diffuse", allocate)
    many = Graph.from_edges([0], [1], num_nodes=55_500, x=np.ones((55_500, 1), np.float32))
    method = make_method(num_features=1)
    for attempt in (lambda: method.loss(many, [CLEAN]), lambda: method.embed(many)):
        with pytest.raises(InputError, match=r"^OOM: needs about 37 GB of 16 GB: .* 55,500 nodes"):
            attempt()
    few = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    with pytest.raises(AssertionError, match="allocated"):
        diffusion(few, 0.2)


def test_memory_estimate_grows_with_the_square_of_the_nodes() -> None:
    assert mvgrl_bytes(200_000) == 4 * mvgrl_bytes(100_000) == 12 * 200_000**2
    assert mvgrl_bytes(1000, layer_sizes=(512, 512)) > mvgrl_bytes(1000, layer_sizes=(512,))


def test_discriminator_that_knows_nothing_loses_log_two() -> None:
    h = torch.randn(4, 20, 6)
    loss = discrimination_loss((h[0], h[1]), (h[2], h[3]), torch.zeros(6, 6), torch.zeros(1))
    assert float(loss) == pytest.approx(np.log(2), abs=1e-6)


def test_other_encoders_than_gcn_are_refused() -> None:
    recipe = Recipe().with_settings({"method.name": "mvgrl", "encoder.name": "mean-pooling"})
    with pytest.raises(InputError, match="knows only GCN, got MeanPooling"):
        build_method(recipe, input_sizes=(12,), seed=0)


def test_encoders_start_from_different_weights_that_follow_from_the_seed() -> None:
    method, again = (
        build_method(Recipe().with_settings({"method.name": "mvgrl"}), input_sizes=(12,), seed=0) for _ in range(2)
    )
    assert not torch.equal(method.online.adjacency.input_weights[0], method.online.diffusion.input_weights[0])
    assert all(torch.equal(a, b) for a, b in zip(method.parameters(), again.parameters(), strict=True))
