"""What the encoder sees: scaling learned from the training graph, structural features, and matching of columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_communities, make_random_graph

import graphstrap as gs
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph import blocks as scaled
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn import features
from graphstrap.nn.features import FeatureTransform, id_numbers, raw_features, structural_features
from graphstrap.ops import _torch
from same_graph import make_hetero_graph


def dense_graph(columns: int = 4, *, names: tuple[str, ...] | None = None, seed: int = 0) -> Graph:
    x = torch.randn(20, columns, generator=torch.Generator().manual_seed(seed)) * 3 + 5
    return Graph.from_edges(torch.arange(19), torch.arange(1, 20), x=x, feature_names=names)


def test_row_scaling_sums_to_one_and_leaves_empty_rows() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=80, seed=0)
    scaled = FeatureTransform.fit(graph, scaling="row", structural_size=8)(graph)
    assert isinstance(scaled.x, SparseMatrix)
    assert graph.x is not None
    sums, empty = scaled.x.to_dense().sum(1), graph.x.to_dense().sum(1) == 0
    torch.testing.assert_close(sums[~empty], torch.ones(int((~empty).sum())))
    assert bool((sums[empty] == 0).all())


def test_column_scaling_uses_the_training_graphs_statistics() -> None:
    graph, other = dense_graph(), dense_graph(seed=1)
    transform = FeatureTransform.fit(graph, scaling="column", structural_size=8)
    scaled = transform(graph).x
    assert isinstance(scaled, torch.Tensor)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(4))
    assert isinstance(graph.x, torch.Tensor)
    assert isinstance(other.x, torch.Tensor)
    expected = (other.x - graph.x.mean(0)) / graph.x.std(0, correction=0)
    result = transform(other).x
    assert isinstance(result, torch.Tensor)
    torch.testing.assert_close(result, expected)


def test_a_constant_column_stays_finite() -> None:
    graph = Graph.from_edges([0], [1], x=torch.ones(3, 2))
    scaled = FeatureTransform.fit(graph, scaling="column", structural_size=8)(graph).x
    assert isinstance(scaled, torch.Tensor)
    assert bool((scaled == 0).all())


@pytest.mark.parametrize("scaling", ["row", "column", "none"])
def test_state_round_trips(scaling: str) -> None:
    graph = dense_graph()
    transform = FeatureTransform.fit(graph, scaling=scaling, structural_size=8)
    again = FeatureTransform.from_state(*transform.state())
    one, other = transform(graph).x, again(graph).x
    assert isinstance(one, torch.Tensor)
    assert isinstance(other, torch.Tensor)
    assert torch.equal(one, other)


def test_columns_are_matched_by_name_and_missing_ones_named() -> None:
    graph = dense_graph(names=("a", "b", "c", "d"))
    transform = FeatureTransform.fit(graph, scaling="none", structural_size=8)
    assert isinstance(graph.x, torch.Tensor)
    shuffled = replace(graph, features=(graph.x[:, [2, 0, 3, 1]],), feature_names=("c", "a", "d", "b"))
    matched = transform(shuffled).x
    assert isinstance(matched, torch.Tensor)
    assert torch.equal(matched, graph.x)
    with pytest.raises(InputError, match="'b'"):
        transform(replace(graph, feature_names=("a", "x", "c", "d")))


def test_another_width_is_refused_in_words() -> None:
    transform = FeatureTransform.fit(dense_graph(4), scaling="none", structural_size=8)
    with pytest.raises(InputError, match="trained on 4 feature columns, this graph has 3"):
        transform(dense_graph(3))


def test_structural_features_follow_the_node_not_its_place() -> None:
    """The same graph with its nodes in another order, known by the same ids: each node keeps its features."""
    source, target = torch.arange(29), torch.arange(1, 30)
    names = np.array([f"node {i}" for i in range(30)])
    graph = Graph.from_edges(source, target, ids=names)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    moved = Graph.from_edges(place[source], place[target], ids=names[order.numpy()])
    ours, theirs = (structural_features(g, num_columns=16) for g in (graph, moved))
    assert ours.shape == (30, 18)
    torch.testing.assert_close(theirs, ours[order], rtol=1e-4, atol=1e-5)


def test_structural_features_tell_communities_apart() -> None:
    block = torch.ones(20, 20).triu(1).nonzero()
    edges = torch.cat([block, block + 20, torch.tensor([[0, 20]])])
    features = structural_features(Graph.from_edges(edges[:, 0], edges[:, 1]), num_columns=64)[:, :64]
    unit = torch.nn.functional.normalize(features, dim=1)
    similarity = unit @ unit.T
    assert float(similarity[1:20, 1:20].mean()) > float(similarity[1:20, 21:].mean()) + 0.5


def test_structural_features_outlast_rounding_in_graphs_that_mix_fast() -> None:
    """After sixteen hops nodes differ by less than float32 tells from their mean; both ways of adding up agree."""
    generator = torch.Generator().manual_seed(0)
    kind = torch.arange(200) // 100
    chance = torch.where(kind[:, None] == kind, 0.4, 0.2)
    edges = torch.rand(200, 200, generator=generator).lt(chance).triu(1).nonzero()
    graph = Graph.from_edges(edges[:, 0], edges[:, 1], num_nodes=200)
    ours = structural_features(graph, num_columns=32)[:, :32]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "propagate", lambda g, view, h, norm: _torch.propagate(g, view, [h], norm)[0])
        theirs = structural_features(graph, num_columns=32)[:, :32]
    assert float((ours * theirs).sum(1).min()) > 0.999
    alike = ours @ ours.T
    assert float(alike[kind[:, None] == kind].mean()) > float(alike[kind[:, None] != kind].mean()) + 0.5


@pytest.mark.parametrize("number", [5, -7, 1234567890123456789, -(2**63), 2**63 - 1])
def test_an_id_is_the_same_number_as_integer_and_as_text(number: int) -> None:
    assert id_numbers(np.array([number])) == id_numbers(np.array([str(number)]))


def test_other_texts_are_no_numbers() -> None:
    texts = ["--5", "05", "+5", "5.0", "", "-", "-0", "٣", str(2**63), "9" * 5000]
    assert len(set(id_numbers(np.array([*texts, "5", "0", "3"])).tolist())) == len(texts) + 3


def test_a_type_without_nodes_is_scaled_as_it_is() -> None:
    graph = Graph.from_edges(
        [0],
        [1],
        num_nodes=2,
        features=(torch.rand(2, 3), torch.rand(0, 2)),
        type_offsets=(0, 2, 2),
        node_types=("a", "b"),
    )
    transform = FeatureTransform.fit(graph, scaling="column", structural_size=4)
    later = replace(graph, features=(torch.rand(1, 3), torch.tensor([[2.0, 3.0]])), type_offsets=(0, 1, 2))
    assert torch.equal(transform(later).features[1], torch.tensor([[2.0, 3.0]]))  # type: ignore[arg-type]


def test_raw_features_are_compared_as_the_encoder_gets_them() -> None:
    graph = dense_graph()
    assert isinstance(graph.x, torch.Tensor)
    drowned = graph.with_features(graph.x * torch.tensor([1e5, 1.0, 1.0, 1e-3]))
    torch.testing.assert_close(raw_features(drowned), raw_features(graph))
    bag = make_random_graph(num_nodes=40, num_edges=80, seed=0)
    assert raw_features(bag) is bag.x
    assert raw_features(bag.with_features(None)) is None
    assert raw_features(make_hetero_graph(seed=0)) is None


def test_a_type_without_features_gets_structural_ones() -> None:
    graph = Graph.from_edges(
        [0, 1], [2, 2], num_nodes=3, features=(torch.ones(2, 4), None), type_offsets=(0, 2, 3), node_types=("a", "b")
    )
    transform = FeatureTransform.fit(graph, scaling="row", structural_size=8)
    assert transform.output_sizes == (4, 10)
    assert transform(graph).num_features == (4, 10)


def seen(transform: FeatureTransform, graph: Graph) -> torch.Tensor:
    x = transform(graph).x
    assert x is not None
    return x.to_dense()


@pytest.mark.parametrize("scaling", ["row", "column", "none"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_structural_columns_stand_beside_features_as_long_as_those_are(scaling: str, is_sparse: bool) -> None:
    graph = make_random_graph(num_nodes=40, num_edges=160, seed=0)
    assert graph.x is not None
    graph = graph if is_sparse else graph.with_features(graph.x.to_dense())
    plain = FeatureTransform.fit(graph, scaling=scaling, structural_size=8)
    transform = FeatureTransform.fit(graph, scaling=scaling, structural_size=8, structural_columns="always")
    assert transform.output_sizes == (plain.output_sizes[0] + 10,)
    before, after = seen(plain, graph), seen(transform, graph)
    features, structural = after[:, :-10], after[:, -10:]
    torch.testing.assert_close(features, before)
    expected = structural_features(graph, num_columns=8) * before.norm(dim=1).mean()
    torch.testing.assert_close(structural, expected)
    again = FeatureTransform.from_state(*transform.state())
    torch.testing.assert_close(seen(again, graph), after)


def test_a_graph_without_features_has_its_structural_columns_once() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=160, seed=0).with_features(None)
    one, other = (
        FeatureTransform.fit(graph, scaling="none", structural_size=8, structural_columns=columns)(graph).x
        for columns in ("missing", "always")
    )
    assert isinstance(one, torch.Tensor)
    assert isinstance(other, torch.Tensor)
    assert torch.equal(one, other)


def test_a_table_too_large_to_hold_gets_no_columns_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = FeatureTransform.fit(dense_graph(), scaling="none", structural_size=8, structural_columns="always")
    with pytest.raises(InputError, match="structural_columns"):
        transform.when_read(dense_graph())
    monkeypatch.setattr(scaled, "MANY_VALUES", 10)
    with pytest.raises(InputError, match="structural_columns"):
        transform(dense_graph())


def test_communities_are_found_beside_features_that_are_noise() -> None:
    """Two columns of noise: without structural columns there is nothing to tell communities by."""
    graph = make_communities(num_nodes=150, num_classes=3, seed=0)
    noise = torch.randn(150, 2, generator=torch.Generator().manual_seed(0))
    graph = replace(graph.with_features(noise), feature_names=None)
    settings = {"train.steps": 60, "encoder.hidden_sizes": [32], "encoder.embedding_size": 16}
    missing, always = (
        gs.evaluate(
            gs.BGRL(settings={**settings, "data.structural_columns": columns}, device="cpu").fit(graph).embed(graph),
            graph,
        ).mean
        for columns in ("missing", "always")
    )
    assert always > missing + 10


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1.0, 1e9])
def test_the_unit_of_a_column_makes_no_difference(unit: float) -> None:
    x = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    x[:, 2] = 0.1  # says nothing in any unit
    graph = make_random_graph(num_nodes=40, num_edges=80, seed=0)

    def scaled(table: torch.Tensor) -> torch.Tensor:
        given = graph.with_features(table)
        found = FeatureTransform.fit(given, scaling="column", structural_size=8)(given).x
        assert isinstance(found, torch.Tensor)
        return found

    torch.testing.assert_close(scaled(unit * x)[:, :2], scaled(x)[:, :2], rtol=1e-4, atol=1e-5)
    assert scaled(unit * x)[:, 2].abs().max() < 1e-5
