"""DGI against an independent NumPy version, and the laws of the view that shuffles features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import draw_views, make_random_graph

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.encoders.gcn import GCN, shuffled_rows
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.dgi import DGI, discrimination_loss
from graphstrap.ops import _torch
from graphstrap.run.recipe import Recipe

Array = np.ndarray[Any, Any]


def shuffled(seed: int | torch.Tensor) -> View:
    return View(ViewSpec(shuffle_nodes=True), seed)


def make_gcn(seed: int = 0) -> GCN:
    return GCN((12,), (16, 8), norm="layer", generator=torch.Generator().manual_seed(seed))


def make_method() -> DGI:
    encoder = {"encoder.hidden_sizes": [16], "encoder.embedding_size": 8, "encoder.norm": "layer"}
    recipe = Recipe().with_settings({"method.name": "dgi", **encoder})
    method: DGI = build_method(recipe, input_sizes=(12,), seed=0)
    return method


def with_rows(graph: Graph, rows: torch.Tensor) -> Graph:
    """The graph whose node i has the features of node rows[i]."""
    assert graph.x is not None
    return graph.with_features(graph.x.to_dense()[rows])


# ---- the view --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_nodes", [1, 2, 30, 1000])
def test_shuffling_is_a_permutation_that_follows_from_the_seed(num_nodes: int) -> None:
    graph = make_random_graph(num_nodes=num_nodes, num_edges=90, seed=0)
    rows = shuffled_rows(graph, shuffled(7), 0)
    assert torch.equal(rows.sort().values, torch.arange(num_nodes))
    assert torch.equal(rows, shuffled_rows(graph, shuffled(7), 0))
    assert torch.equal(rows, shuffled_rows(graph, shuffled(torch.tensor(7)), 0))
    if num_nodes >= 30:
        assert not torch.equal(rows, shuffled_rows(graph, shuffled(8), 0))


def test_every_node_gets_every_nodes_features_equally_often() -> None:
    graph = make_random_graph(num_nodes=6, num_edges=9, seed=0)
    counts = torch.zeros(6, 6)
    for seed in range(2000):
        counts[torch.arange(6), shuffled_rows(graph, shuffled(seed), 0)] += 1
    assert float((counts / 2000 - 1 / 6).abs().max()) < 5 * (5 / 36 / 2000) ** 0.5


@pytest.mark.parametrize(
    "masks",
    [{}, {"edge_drop_prob": 0.4}, {"feature_mask_prob": 0.5}, {"edge_drop_prob": 0.4, "feature_mask_prob": 0.3}],
)
def test_a_shuffled_view_equals_the_graph_with_its_feature_rows_permuted(masks: dict[str, float]) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=120, seed=4)
    view = View(ViewSpec(shuffle_nodes=True, **masks), 17)  # type: ignore[arg-type]
    permuted = with_rows(graph, shuffled_rows(graph, view, 0))
    encoder, other = make_gcn(), make_gcn(1)
    expected = encoder(permuted, View(ViewSpec(**masks), 17))  # type: ignore[arg-type]
    torch.testing.assert_close(encoder(graph, view), expected, rtol=1e-4, atol=1e-5)
    h, t = encoder.encode_all([other], graph, view)
    torch.testing.assert_close(h, encoder(graph, view), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(t, other(graph, view), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(h, encoder(graph, View(ViewSpec(**masks), 17)))  # type: ignore[arg-type]


def test_a_view_that_keeps_all_shares_what_backends_made_for_the_clean_graph() -> None:
    assert shuffled(3).masks is CLEAN
    for spec in (ViewSpec(edge_drop_prob=0.1), ViewSpec(feature_mask_prob=0.1), ViewSpec(torch.zeros(4))):
        view = View(spec, 3)
        assert view.masks is view


def test_shuffled_gradients_equal_those_of_the_reference_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=120, seed=4)
    encoder, upstream = make_gcn(), torch.randn(30, 8)

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(encoder(graph, shuffled(3)), list(encoder.parameters()), upstream)

    fast = gradients()
    monkeypatch.setattr("graphstrap.ops._backend_of", lambda tensor: _torch)
    for ours, reference in zip(fast, gradients(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-3, atol=1e-4)


def test_whose_features_a_node_gets_follows_from_global_ids() -> None:
    """The same nodes in another order: the same pairs of receiver and giver."""
    graph = make_random_graph(num_nodes=40, num_edges=90, seed=0)
    ids = 3 * torch.randperm(40, generator=torch.Generator().manual_seed(1)) + 2**33
    order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    first, second = replace(graph, node_ids=ids), replace(graph, node_ids=ids[order])
    givers = ids[shuffled_rows(first, shuffled(9), 0)]
    assert torch.equal(givers[order], ids[order][shuffled_rows(second, shuffled(9), 0)])


def test_node_types_are_shuffled_each_within_itself() -> None:
    graph = Graph.from_edges(
        [0, 1, 2],
        [3, 3, 4],
        num_nodes=7,
        features=(torch.rand(3, 4), torch.rand(4, 2)),
        type_offsets=(0, 3, 7),
        node_types=("a", "b"),
    )
    assert sorted(shuffled_rows(graph, shuffled(1), 0).tolist()) == [0, 1, 2]
    assert sorted(shuffled_rows(graph, shuffled(1), 1).tolist()) == [0, 1, 2, 3]
    without = graph.with_features(graph.features[0], None)
    encoder = GCN((4, 0), (6,), generator=torch.Generator().manual_seed(0))
    assert encoder(without, shuffled(1)).shape == (7, 6)


# ---- the method ------------------------------------------------------------------------------------------------------


def test_loss_equals_an_independent_numpy_version() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method()
    with torch.no_grad():
        method.discriminator.weight.mul_(3)  # scores that are worth comparing
        method.discriminator.bias.fill_(0.3)
    views = draw_views([ViewSpec(edge_drop_prob=0.9)], seed=0, step=1)
    loss, stats = method.loss(graph, views)
    corrupted = with_rows(graph, shuffled_rows(graph, shuffled(views[0].seed), 0))
    h, k = (method.online(g, CLEAN).detach().double().numpy() for g in (graph, corrupted))
    summary = 1 / (1 + np.exp(-h.mean(0)))
    weight = method.discriminator.weight.detach().numpy()
    total = 0.0
    for i in range(30):
        for node, is_real in ((h[i], True), (k[i], False)):
            probability = 1 / (1 + np.exp(-(node @ weight @ summary + 0.3)))
            total -= np.log(probability if is_real else 1 - probability)
    assert float(loss.detach()) == pytest.approx(total / 60, abs=1e-5)
    np.testing.assert_allclose(stats["embedding"].numpy(), h, atol=1e-6)


def test_guessing_costs_ln_2_and_knowing_nothing() -> None:
    assert float(discrimination_loss(torch.zeros(4), torch.zeros(4))) == pytest.approx(np.log(2))
    assert float(discrimination_loss(torch.full((4,), 50.0), torch.full((4,), -50.0))) == pytest.approx(0, abs=1e-6)


def test_only_the_seed_of_the_first_view_is_read() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method()
    plain, _ = method.loss(graph, [View(ViewSpec(), 5)])
    dropped, _ = method.loss(graph, [View(ViewSpec(edge_drop_prob=0.5), torch.tensor(5)), CLEAN])
    other, _ = method.loss(graph, [View(ViewSpec(), 6)])
    assert float(plain.detach()) == float(dropped.detach()) != float(other.detach())


def test_loss_does_not_depend_on_the_order_of_nodes() -> None:
    """Nodes are known by their global ids, so the corrupted graph is the same one too."""
    graph = replace(make_random_graph(num_nodes=30, num_edges=90, seed=1), node_ids=torch.arange(30))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(3))
    place = torch.argsort(order)
    assert graph.x is not None
    permuted = Graph.from_edges(
        place[graph.indices.long()],
        place[graph.targets],
        num_nodes=30,
        directed=True,
        x=graph.x.to_dense()[order],
        node_ids=order,
    )
    method = make_method()
    views = [View(ViewSpec(), 11)]
    torch.testing.assert_close(method.loss(permuted, views)[0], method.loss(graph, views)[0], rtol=1e-5, atol=1e-6)


def test_loss_of_a_batch_looks_at_its_roots_only() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method()
    h, k = method.online(graph, CLEAN)[:5], method.online(graph, shuffled(2))[:5]
    summary = torch.sigmoid(h.mean(0))
    expected = discrimination_loss(method.discriminator(h, summary), method.discriminator(k, summary))
    loss, _ = method.loss(replace(graph, num_roots=5), [View(ViewSpec(), 2)])
    torch.testing.assert_close(loss, expected)


def test_the_recipe_builds_it_and_the_seed_gives_the_weights(communities: Graph) -> None:
    recipe = Recipe().with_settings({"method.name": "dgi"})
    first, again = (build_method(recipe, input_sizes=(30,), num_nodes=120, seed=4) for _ in range(2))
    assert isinstance(first, DGI)
    assert isinstance(again, DGI)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    h = first.embed(communities)
    assert not h.requires_grad
    assert torch.equal(h, first.online(communities, View(ViewSpec(), 5)))
