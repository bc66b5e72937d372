"""GRACE against an independent NumPy version, and the laws of its negatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import draw_views, make_random_graph

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.grace import GRACE, draw_negatives, info_nce
from graphstrap.run.recipe import Recipe
from graphstrap.train.centrality import adaptive_specs

Array = np.ndarray[Any, Any]
CPU = torch.device("cpu")
SPECS = [ViewSpec(edge_drop_prob=0.3, feature_mask_prob=0.2)] * 2


def make_method(*, norm: str = "layer", **settings: Any) -> GRACE:
    encoder = {"encoder.hidden_sizes": [16], "encoder.embedding_size": 8, "encoder.norm": norm}
    settings = {f"method.{name}": value for name, value in settings.items()}
    recipe = Recipe().with_settings({"method.name": "grace", "method.temperature": 0.4, **encoder, **settings})
    method: GRACE = build_method(recipe, input_sizes=(12,), seed=0)
    return method


def projections(num_nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    z_1, z_2 = torch.randn(2, num_nodes, 6, generator=generator)
    return z_1.requires_grad_(), z_2.requires_grad_()


def numpy_loss(z_1: Array, z_2: Array, *, temperature: float, negatives: list[list[int]]) -> float:
    """Written out node by node; `negatives` lists each node's."""
    u, v = (z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-30) for z in (z_1, z_2))
    total = 0.0
    for one, other in ((u, v), (v, u)):
        for i, chosen in enumerate(negatives):
            positive = np.exp(one[i] @ other[i] / temperature)
            inter = sum(np.exp(one[i] @ other[j] / temperature) for j in chosen)
            intra = sum(np.exp(one[i] @ one[j] / temperature) for j in chosen)
            total -= np.log(positive / (positive + inter + intra))
    return float(total / (2 * len(negatives)))


def negatives_of(drawn: torch.Tensor, num_nodes: int) -> list[list[int]]:
    """Each node's negatives, by the words of the page: all of the block's draw but itself, or else but the last."""
    rows, size = drawn.tolist(), drawn.shape[1] - 1
    draws = enumerate(rows[node // size] for node in range(num_nodes))
    return [[j for j in draw if j != node] if node in draw else draw[:-1] for node, draw in draws]


@pytest.mark.parametrize("centrality", ["none", "degree", "pagerank", "eigenvector"])
@pytest.mark.parametrize(("num_negatives", "projector_size"), [(0, 0), (0, 5), (4, 0), (29, 0)])
def test_loss_equals_an_independent_numpy_version(num_negatives: int, projector_size: int, centrality: str) -> None:
    """GRACE's, and GCA's, whose views follow a centrality."""
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method(projector_size=projector_size, num_negatives=num_negatives)
    specs = SPECS if centrality == "none" else adaptive_specs(graph, SPECS, centrality=centrality)
    views = draw_views(specs, seed=0, step=1)
    loss, stats = method.loss(graph, views)

    def project(h: Array) -> Array:
        w = {name: value.detach().numpy() for name, value in method.projector.named_parameters()}
        assert w["weight_1"].shape == (8, projector_size or 8)
        hidden = h @ w["weight_1"] + w["bias_1"]
        result: Array = np.where(hidden > 0, hidden, np.expm1(hidden)) @ w["weight_2"] + w["bias_2"]
        return result

    h = [method.online(graph, view).detach() for view in views]
    negatives = [[j for j in range(30) if j != i] for i in range(30)]
    if num_negatives == 4:
        negatives = negatives_of(draw_negatives(30, 4, seed=views[0].seed, device=CPU), 30)
    expected = numpy_loss(project(h[0].numpy()), project(h[1].numpy()), temperature=0.4, negatives=negatives)
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-5)
    assert torch.equal(stats["embedding"], h[0])


def test_similarities_kept_or_recomputed_give_the_same_loss_and_gradient() -> None:
    z = projections(30)
    kept = info_nce(*z, temperature=0.3, keep_similarities=True)
    recomputed = info_nce(*z, temperature=0.3)
    torch.testing.assert_close(recomputed, kept)
    for ours, expected in zip(torch.autograd.grad(recomputed, z), torch.autograd.grad(kept, z), strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("num_negatives", [29, 30, 1000])
def test_all_other_nodes_drawn_give_the_full_loss_and_gradient(num_negatives: int) -> None:
    z = projections(30)
    full = info_nce(*z, temperature=0.3)
    sampled = info_nce(*z, temperature=0.3, drawn=draw_negatives(30, num_negatives, seed=5, device=CPU))
    torch.testing.assert_close(sampled, full)
    for ours, expected in zip(torch.autograd.grad(sampled, z), torch.autograd.grad(full, z), strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("num_negatives", [1, 2, 5, 8, 11, 12])
def test_negatives_are_k_distinct_other_nodes_and_all_equally_likely(num_negatives: int) -> None:
    """Which is what makes (N - 1) / k times their sum an unbiased estimate of the sum over all others."""
    num_nodes, num_seeds = 13, 1000
    counts = np.zeros((num_nodes, num_nodes))
    for seed in range(num_seeds):
        chosen = negatives_of(draw_negatives(num_nodes, num_negatives, seed=seed, device=CPU), num_nodes)
        for node, others in enumerate(chosen):
            assert len(set(others)) == len(others) == num_negatives
            counts[node, others] += 1
    assert (counts.diagonal() == 0).all()
    rate = num_negatives / (num_nodes - 1)
    bound = 5 * (rate * (1 - rate) / num_seeds) ** 0.5
    between = counts[~np.eye(num_nodes, dtype=bool)] / num_seeds
    assert np.abs(between - rate).max() <= bound


def test_every_node_serves_as_a_negative_and_few_serve_more_than_one_block() -> None:
    for num_negatives in range(1, 100):
        drawn = draw_negatives(100, num_negatives, seed=3, device=CPU)
        assert set(drawn.flatten().tolist()) == set(range(100))
        assert drawn.numel() <= 2 * 100


def test_negatives_follow_from_the_seed_alone_be_it_a_number_or_a_tensor() -> None:
    seed = 0x1234_5678_9ABC_DEF0
    drawn = draw_negatives(50, 6, seed=seed, device=CPU)
    assert torch.equal(drawn, draw_negatives(50, 6, seed=torch.tensor(seed), device=CPU))
    assert not torch.equal(drawn, draw_negatives(50, 6, seed=seed + 1, device=CPU))


def saved_bytes(num_nodes: int, **settings: Any) -> int:
    """The size of all that the loss keeps for its backward pass."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    z = projections(num_nodes)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        info_nce(*z, temperature=0.5, **settings)
    return sum(kept.values())


def test_kept_similarities_grow_with_the_square_of_nodes_and_subsampled_and_recomputed_ones_linearly() -> None:
    kept = {"keep_similarities": True}
    assert saved_bytes(800, **kept) == pytest.approx(4 * saved_bytes(400, **kept), rel=0.1)
    assert saved_bytes(800, **kept) == pytest.approx(4 * 4 * 800**2, rel=0.1)  # four N x N matrices of float32
    drawn = {num_nodes: draw_negatives(num_nodes, 8, seed=0, device=CPU) for num_nodes in (400, 800)}
    assert saved_bytes(800, drawn=drawn[800]) < 2.1 * saved_bytes(400, drawn=drawn[400])
    assert saved_bytes(800) < 2.1 * saved_bytes(400)


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
    torch.testing.assert_close(method.loss(permuted, views)[0], method.loss(graph, views)[0], rtol=1e-4, atol=1e-5)


def test_loss_falls_to_zero_when_views_agree_and_nodes_are_far_apart() -> None:
    z = torch.eye(6)
    assert float(info_nce(z, z, temperature=0.01)) == pytest.approx(0, abs=1e-6)
    assert float(info_nce(torch.ones(6, 4), torch.ones(6, 4), temperature=1.0)) == pytest.approx(np.log(11))


@pytest.mark.parametrize("num_negatives", [0, 3])
def test_a_node_without_a_direction_gets_no_gradient(num_negatives: int) -> None:
    z_1, z_2 = projections(12)
    with torch.no_grad():
        z_1[4] = 0
    drawn = draw_negatives(12, num_negatives, seed=0, device=CPU) if num_negatives else None
    gradients = torch.autograd.grad(info_nce(z_1, z_2, temperature=0.5, drawn=drawn), (z_1, z_2))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert not gradients[0][4].any()


def test_loss_of_a_batch_looks_at_its_roots_only() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method()
    z = method.projector(method.online(graph, CLEAN)[:5])
    loss, _ = method.loss(replace(graph, num_roots=5), [CLEAN, CLEAN])
    torch.testing.assert_close(loss, info_nce(z, z, temperature=0.4))


@pytest.mark.parametrize("num_negatives", [0, 3])
def test_one_node_has_nothing_to_be_told_from(num_negatives: int) -> None:
    z = projections(1)
    drawn = draw_negatives(1, num_negatives, seed=0, device=CPU) if num_negatives else None
    loss = info_nce(*z, temperature=0.5, drawn=drawn)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    assert all(float(gradient.abs().max()) < 1e-6 for gradient in torch.autograd.grad(loss, z))


def test_gca_is_grace_on_other_views_and_the_seed_gives_the_weights(communities: Graph) -> None:
    recipe = Recipe().with_settings({"method.name": "gca", "method.temperature": 0.2, "method.projector_size": 7})
    first, again = (build_method(recipe, input_sizes=(30,), num_nodes=120, seed=4) for _ in range(2))
    assert isinstance(first, GRACE)
    assert isinstance(again, GRACE)
    assert first.settings.temperature == 0.2
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    h = first.embed(communities)
    assert not h.requires_grad
    assert torch.equal(h, first.online(communities, View(ViewSpec(), 5)))
