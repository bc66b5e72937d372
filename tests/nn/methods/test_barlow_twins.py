"""Graph Barlow Twins against an independent NumPy version, and the laws of its loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import draw_views, make_random_graph

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.barlow_twins import BarlowTwins, cross_correlation, redundancy_loss
from graphstrap.run.recipe import Recipe

Array = np.ndarray[Any, Any]
SPECS = [ViewSpec(edge_drop_prob=0.3, feature_mask_prob=0.2)] * 2


def make_method(*, redundancy_weight: float = 0.0) -> BarlowTwins:
    encoder = {"encoder.hidden_sizes": [16], "encoder.embedding_size": 8, "encoder.norm": "layer"}
    settings = {"method.name": "barlow-twins", "method.redundancy_weight": redundancy_weight}
    method: BarlowTwins = build_method(Recipe().with_settings({**encoder, **settings}), input_sizes=(12,), seed=0)
    return method


@pytest.mark.parametrize("redundancy_weight", [0.0, 0.3])
def test_loss_equals_an_independent_numpy_version(redundancy_weight: float) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method(redundancy_weight=redundancy_weight)
    views = draw_views(SPECS, seed=0, step=1)
    loss, stats = method.loss(graph, views)
    h = [method.online(graph, view).detach().numpy().astype(np.float64) for view in views]
    correlation = np.corrcoef(h[0], h[1], rowvar=False)[:8, 8:]
    weight = redundancy_weight or 1 / 8
    expected = sum(
        (1 - correlation[i, j]) ** 2 if i == j else weight * correlation[i, j] ** 2 for i in range(8) for j in range(8)
    )
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)
    np.testing.assert_allclose(stats["embedding"].numpy(), h[0], atol=1e-6)


def test_loss_is_zero_when_views_agree_and_columns_are_uncorrelated() -> None:
    q, _ = torch.linalg.qr(torch.cat([torch.ones(50, 1), torch.randn(50, 6)], dim=1))
    h = q[:, 1:]  # columns of mean 0, orthogonal to each other
    correlation = cross_correlation(3 * h + 1, h)
    torch.testing.assert_close(correlation, torch.eye(6), atol=1e-5, rtol=0)
    assert float(redundancy_loss(correlation, weight=1.0)) == pytest.approx(0, abs=1e-6)
    assert float(redundancy_loss(torch.ones(6, 6), weight=0.5)) == pytest.approx(15)
    assert float(redundancy_loss(-torch.eye(6), weight=0.5)) == pytest.approx(24)


def test_small_embeddings_correlate_like_large_ones_and_dead_columns_harm_nothing() -> None:
    h = torch.randn(40, 5)
    torch.testing.assert_close(cross_correlation(1e-3 * h, h), cross_correlation(h, h), rtol=1e-3, atol=1e-4)
    dead = h.clone()
    dead[:, 2] = 7.0
    dead.requires_grad_()
    (gradient,) = torch.autograd.grad(redundancy_loss(cross_correlation(dead, dead), weight=0.2), dead)
    assert bool(gradient.isfinite().all())


def test_loss_does_not_depend_on_the_order_of_nodes() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=1)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(3))
    place = torch.argsort(order)
    assert graph.x is not None
    permuted = Graph.from_edges(
        place[graph.indices.long()], place[graph.targets], num_nodes=30, directed=True, x=graph.x.to_dense()[order]
    )
    method = make_method()
    views = draw_views([ViewSpec(feature_mask_prob=0.3)] * 2, seed=0, step=0)
    torch.testing.assert_close(method.loss(permuted, views)[0], method.loss(graph, views)[0], rtol=1e-4, atol=1e-4)


def test_correlations_stay_in_float32_under_bfloat16() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method()
    views = draw_views(SPECS, seed=0, step=1)
    expected, _ = method.loss(graph, views)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = method.loss(graph, views)
        torch.autograd.backward(loss)
        h = torch.randn(60, 4)
        assert cross_correlation(h, h).diagonal().tolist() == pytest.approx([1.0] * 4, abs=1e-5)
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=0.05)


def test_loss_of_a_batch_looks_at_its_roots_only() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method(redundancy_weight=0.1)
    h = method.online(graph, CLEAN)[:9]
    loss, _ = method.loss(replace(graph, num_roots=9), [CLEAN, CLEAN])
    torch.testing.assert_close(loss, redundancy_loss(cross_correlation(h, h), weight=0.1))


def test_the_recipe_builds_it_and_the_seed_gives_the_weights(communities: Graph) -> None:
    recipe = Recipe().with_settings({"method.name": "barlow-twins"})
    first, again = (build_method(recipe, input_sizes=(30,), num_nodes=120, seed=4) for _ in range(2))
    assert isinstance(first, BarlowTwins)
    assert isinstance(again, BarlowTwins)
    assert first.redundancy_weight == 1 / 128
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    h = first.embed(communities)
    assert not h.requires_grad
    assert torch.equal(h, first.online(communities, View(ViewSpec(), 5)))
