"""BGRL with decorrelated columns: the two terms, by an independent NumPy version and where they are known."""

from __future__ import annotations

import numpy as np
import torch
from conftest import draw_views

from graphstrap.graph import Graph, ViewSpec
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.bgrl_cca import BGRLCCA, correlation_loss, standardized
from graphstrap.run.recipe import Recipe

SETTINGS = {"method.name": "bgrl-cca", "encoder.hidden_sizes": [16], "encoder.embedding_size": 8}


def make(graph: Graph, **more: float) -> BGRLCCA:
    recipe = Recipe().with_settings(SETTINGS | {f"method.{name}": value for name, value in more.items()})
    method = build_method(recipe, input_sizes=graph.num_features, seed=0)
    assert isinstance(method, BGRLCCA)
    return method


def test_the_loss_is_that_of_the_equation(communities: Graph) -> None:
    method = make(communities, agreement_weight=0.5, decorrelation_weight=0.2)
    views = draw_views([ViewSpec(0.3, 0.2)] * 2, seed=0, step=1)
    loss, stats = method.loss(communities, views)
    bootstrap, embeddings = method.bootstrap(communities, views)
    assert torch.equal(stats["embedding"], embeddings[0].detach())
    n_1, n_2 = (
        (h - h.mean(0)) / np.sqrt(h.var(0, ddof=1) + 1e-4)
        for h in (one.detach().double().numpy() for one in embeddings)
    )
    squares = [np.square(n.T @ n / len(n)) for n in (n_1, n_2)]
    off = sum((one.sum() - np.trace(one)) / len(one) for one in squares)
    expected = float(bootstrap.detach()) + 0.5 * np.square(n_1 - n_2).mean() + 0.2 * off
    np.testing.assert_allclose(float(loss.detach()), expected, rtol=1e-5)


def test_without_its_terms_it_is_bgrl(communities: Graph) -> None:
    method = make(communities, agreement_weight=0.0, decorrelation_weight=0.0)
    views = draw_views([ViewSpec(0.3, 0.2)] * 2, seed=0, step=1)
    recipe = Recipe().with_settings({**SETTINGS, "method.name": "bgrl"})
    plain = build_method(recipe, input_sizes=communities.num_features, seed=0)
    assert torch.equal(method.loss(communities, views)[0], plain.loss(communities, views)[0])


def test_uncorrelated_columns_cost_nothing_and_copies_the_most() -> None:
    random = torch.Generator().manual_seed(0)
    columns = torch.cat([torch.ones(100, 1), torch.randn(100, 6, generator=random)], dim=1)
    q, _ = torch.linalg.qr(columns)  # the rest are orthogonal to each other and to the ones, so of mean 0
    assert float(correlation_loss(standardized(10 * q[:, 1:]))) < 1e-6
    copies = standardized(q[:, 1:2].repeat(1, 6) * 10)
    torch.testing.assert_close(float(correlation_loss(copies)), 5 * (99 / 100) ** 2, rtol=1e-3, atol=0.0)


def test_constant_columns_do_no_harm() -> None:
    assert torch.equal(standardized(torch.full((10, 3), 7.0)), torch.zeros(10, 3))
