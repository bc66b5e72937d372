"""Adaptive probabilities follow the centralities, which equal NetworkX's; the mean stays what the recipe says."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from conftest import make_random_graph, train

from graphstrap.errors import InputError
from graphstrap.graph import Graph, View, ViewSpec
from graphstrap.io.networkx import to_networkx
from graphstrap.nn.methods import build_method
from graphstrap.ops._torch import kept_columns, kept_edges
from graphstrap.run.recipe import Recipe
from graphstrap.train.centrality import CENTRALITIES, adaptive_specs, eigenvector_centrality, pagerank


def test_pagerank_equals_networkx() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=150, seed=0)
    directed = networkx.DiGraph(list(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)))
    directed.add_nodes_from(range(40))
    expected = networkx.pagerank(directed, alpha=0.85, tol=1e-10, max_iter=1000)
    ours = pagerank(graph, num_iterations=100)
    torch.testing.assert_close(ours, torch.tensor([expected[i] for i in range(40)]).float(), rtol=1e-3, atol=1e-5)
    assert float(ours.sum()) == pytest.approx(1.0, abs=1e-4)


def test_eigenvector_centrality_equals_networkx(communities: Graph) -> None:
    undirected = networkx.Graph(to_networkx(communities))
    undirected.remove_edges_from(networkx.selfloop_edges(undirected))
    components: list[list[int]] = [sorted(each) for each in networkx.connected_components(undirected)]
    largest = max(components, key=len)
    expected = networkx.eigenvector_centrality_numpy(undirected.subgraph(largest))
    ours = eigenvector_centrality(communities, num_iterations=2000)[largest]
    exact = np.array([expected[node] for node in largest])
    np.testing.assert_allclose(ours.numpy() / np.linalg.norm(ours.numpy()), exact, atol=2e-3)


def test_walks_are_long_enough_for_a_star_whose_nodes_take_turns() -> None:
    star = Graph.from_edges(torch.zeros(30, dtype=torch.int64), torch.arange(1, 31))
    walk = torch.zeros(31, 31, dtype=torch.float64)  # the chance to go from column to row
    walk[0, 1:], walk[1:, 0] = 1.0, 1 / 30
    exact = torch.linalg.solve(torch.eye(31) - 0.85 * walk, torch.full((31,), 0.15 / 31, dtype=torch.float64))
    torch.testing.assert_close(CENTRALITIES["pagerank"](star), exact.float(), atol=5e-4, rtol=0)


def test_the_eigenvector_of_a_long_path_is_half_a_sine_wave() -> None:
    """Its second eigenvalue is close to the first: too few rounds leave the ends too central."""
    path = Graph.from_edges(torch.arange(19), torch.arange(1, 20))
    wave = torch.sin(torch.arange(1, 21) * (torch.pi / 21))
    torch.testing.assert_close(CENTRALITIES["eigenvector"](path), wave / wave.norm(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("centrality", CENTRALITIES)
def test_probabilities_have_the_recipes_mean_and_fall_with_importance(communities: Graph, centrality: str) -> None:
    (spec,) = adaptive_specs(
        communities, [ViewSpec(edge_drop_prob=0.2, feature_mask_prob=0.1)], centrality=centrality, max_drop_prob=1.0
    )
    edges, columns = spec.edge_drop_prob, spec.feature_mask_prob
    assert isinstance(edges, torch.Tensor)
    assert isinstance(columns, torch.Tensor)
    assert float(edges.mean()) == pytest.approx(0.2, rel=0.05)
    assert float(columns.mean()) == pytest.approx(0.1, rel=0.05)
    score = CENTRALITIES[centrality](communities)[communities.targets]
    order = torch.argsort(score)
    assert bool((edges[order].diff() <= 1e-6).all())
    assert float(edges[score.argmax()]) == pytest.approx(0.0, abs=1e-6)


def test_probabilities_are_cut() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=300, seed=1)
    (spec,) = adaptive_specs(graph, [ViewSpec(edge_drop_prob=0.9)], centrality="degree", max_drop_prob=0.7)
    assert isinstance(spec.edge_drop_prob, torch.Tensor)
    assert float(spec.edge_drop_prob.max()) == pytest.approx(0.7)


def test_where_all_matter_alike_nothing_changes() -> None:
    ring = Graph.from_edges(torch.arange(12), (torch.arange(12) + 1) % 12, x=torch.ones(12, 3))
    for centrality in CENTRALITIES:
        (spec,) = adaptive_specs(ring, [ViewSpec(edge_drop_prob=0.3, feature_mask_prob=0.2)], centrality=centrality)
        torch.testing.assert_close(spec.edge_drop_prob, torch.full((24,), 0.3))
        torch.testing.assert_close(spec.feature_mask_prob, torch.full((3,), 0.2))


def test_views_drop_at_those_rates(communities: Graph) -> None:
    (spec,) = adaptive_specs(communities, [ViewSpec(edge_drop_prob=0.4, feature_mask_prob=0.4)], centrality="degree")
    kept = torch.stack([kept_edges(communities, View(spec, seed)) for seed in range(400)])  # type: ignore[misc]
    assert isinstance(spec.edge_drop_prob, torch.Tensor)
    assert float((kept.float().mean(0) - (1 - spec.edge_drop_prob)).abs().max()) < 5 * 0.5 / 400**0.5
    columns = kept_columns(View(spec, 1), num_columns=30, block=0, device=torch.device("cpu"))
    assert columns is not None
    assert columns.shape == (30,)


def test_a_recipe_with_a_centrality_trains(communities: Graph) -> None:
    recipe = Recipe().with_settings({"views.centrality": "pagerank", "train.steps": 20, "encoder.hidden_sizes": [16]})
    method = build_method(recipe, input_sizes=communities.num_features, seed=0)
    records = train(method, communities, recipe=recipe, seed=0)
    assert records[-1]["loss"] < records[0]["loss"]


def test_several_node_types_are_refused(communities: Graph) -> None:
    several = Graph(
        indptr=communities.indptr,
        indices=communities.indices,
        features=(None, None),
        type_offsets=(0, 60, 120),
        node_types=("a", "b"),
    )
    with pytest.raises(InputError, match="several"):
        adaptive_specs(several, [ViewSpec(edge_drop_prob=0.3)], centrality="degree")


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("is_bag", [True, False])
def test_of_words_it_counts_whether_they_are_there(is_sparse: bool, is_bag: bool) -> None:
    generator = np.random.default_rng(0)
    x = (generator.random((50, 8)) < 0.3) * generator.random((50, 8)).astype(np.float32) * (1.0 if is_bag else -1.0)
    edges = generator.integers(50, size=(2, 200))
    graph = Graph.from_edges(*edges, num_nodes=50, x=scipy.sparse.csr_matrix(x) if is_sparse else x)
    (spec,) = adaptive_specs(graph, [ViewSpec(feature_mask_prob=0.3)], centrality="degree", max_drop_prob=1.0)
    s = np.log((x != 0 if is_bag else np.abs(x)).T @ graph.in_degrees.numpy())
    expected = 0.3 * (s.max() - s) / (s.max() - s.mean())
    np.testing.assert_allclose(torch.as_tensor(spec.feature_mask_prob).numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("centrality", list(CENTRALITIES))
def test_both_directions_have_one_fate_where_they_go_together(centrality: str) -> None:
    source, target = torch.randint(60, (2, 300), generator=torch.Generator().manual_seed(0))
    graph = Graph.from_edges(source, target**2 // 60, num_nodes=60)
    spec = ViewSpec(edge_drop_prob=0.4, drop_directions_together=True)
    kept = kept_edges(graph, View(adaptive_specs(graph, [spec], centrality=centrality)[0], 5))
    assert kept is not None
    pairs = set(zip(graph.indices[kept].tolist(), graph.targets[kept].tolist(), strict=True))
    assert 0 < len(pairs) < graph.num_edges
    assert pairs == {(t, s) for s, t in pairs}
