"""The columns of `instant`: what they are, that every way of embedding gives them, and what stands beside a trained
embedding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities, make_random_graph

import graphstrap as gs
from graphstrap.api.estimator import Embedder, embed_instantly
from graphstrap.api.layerwise import embed_layers
from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn.methods.instant import HopColumns
from graphstrap.run.recipe import Recipe

BRIEF = {"train.steps": 2, "encoder.hidden_sizes": [8], "encoder.embedding_size": 8, "encoder.own_features": 3}
Array = np.ndarray[Any, Any]


def fitted(graph: Graph, *, num_columns: int = 5, num_hops: int = 2) -> HopColumns:
    return HopColumns(graph.num_features, num_columns=num_columns, num_hops=num_hops).fit(graph)


def unit(x: Array) -> Array:
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    scaled: Array = np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
    return scaled


def test_the_columns_are_those_of_the_equation(communities: Graph) -> None:
    """From V, and nothing else of the code: own rows, centred, and their averages by a dense A_hat."""
    columns = fitted(communities)
    assert communities.x is not None
    rows = unit(communities.x.to_dense().double().numpy()) @ columns.bases[0].double().numpy()
    adjacency = np.eye(communities.num_nodes)
    adjacency[communities.targets.numpy(), communities.indices.long().numpy()] += 1
    scale = 1 / np.sqrt(adjacency.sum(1))
    a_hat = scale[:, None] * adjacency * scale[None, :]
    z_0 = unit(rows - rows.mean(0))
    expected = np.concatenate([unit(z) for z in (z_0, a_hat @ z_0, a_hat @ a_hat @ z_0)], axis=1) / np.sqrt(3)
    np.testing.assert_allclose(columns(communities).numpy(), expected, rtol=1e-3, atol=1e-5)


def test_all_columns_keep_every_angle() -> None:
    """With as many columns as features and no hops, it is a rotation: cosines between nodes stay."""
    graph = make_communities(num_nodes=100, num_classes=3, seed=0)
    assert graph.x is not None
    dense = graph.x.to_dense() + 0.01
    graph = graph.with_features(dense)
    h = fitted(graph, num_columns=30, num_hops=0)(graph)
    rows = torch.nn.functional.normalize(dense, dim=1)
    torch.testing.assert_close(h @ h.T, rows @ rows.T, rtol=1e-3, atol=1e-4)


def test_every_part_has_the_same_length(communities: Graph) -> None:
    lengths = fitted(communities)(communities).view(-1, 3, 5).norm(dim=2)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 3**-0.5))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_layer_by_layer_in_blocks_and_on_disk_the_numbers_are_the_same(
    is_sparse: bool, weighted: bool, tmp_path: Path
) -> None:
    graph = make_random_graph(num_nodes=120, num_edges=700, seed=0, weighted=weighted)
    assert isinstance(graph.x, SparseMatrix)
    graph = graph if is_sparse else graph.with_features(graph.x.to_dense())
    columns = fitted(graph)
    expected = columns(graph).numpy()
    for rows_per_block in (7, 64, 1000):
        h = embed_layers(columns, graph, rows_per_block=rows_per_block)
        np.testing.assert_allclose(h, expected, rtol=1e-4, atol=1e-6)
    on_disk = embed_layers(columns, graph, rows_per_block=50, folder=tmp_path / "work")
    np.testing.assert_allclose(on_disk, expected, rtol=1e-4, atol=1e-6)


def test_node_types_have_columns_of_their_own() -> None:
    """A type's rows are compressed by its own V, also one without features, which gets structural ones."""
    graph = make_communities(num_nodes=90, num_classes=3, seed=0)
    assert isinstance(graph.x, SparseMatrix)
    first = graph.x.select_rows(torch.arange(50))
    typed = replace(graph, features=(first, None), type_offsets=(0, 50, 90), node_types=("user", "item"), labels=None)
    h = Embedder("instant", settings={"method.num_columns": 4, "method.num_hops": 1}, device="cpu").fit_transform(typed)
    assert h.shape == (90, 8)
    assert np.isfinite(h).all()
    np.testing.assert_allclose((h**2).sum(1), 1.0, rtol=1e-4)


def test_sampled_batches_of_every_neighbour_give_the_whole_graph(communities: Graph) -> None:
    largest = int(communities.in_degrees.max())
    settings = {"method.num_columns": 4, "method.num_hops": 2, "sampling.fan_outs": [largest, largest]}
    model = Embedder("instant", settings=settings, device="cpu").fit(communities)
    np.testing.assert_allclose(
        model.embed(communities, how="sampled"), model.embed(communities, how="full"), rtol=1e-3, atol=1e-5
    )
    with pytest.raises(InputError, match=r"method\.num_hops is 3: give as many"):
        Recipe().with_settings({"method.name": "instant", "sampling.fan_outs": [5, 5]})


def test_nothing_is_trained_and_a_saved_model_gives_the_same(communities: Graph, tmp_path: Path) -> None:
    model = gs.Instant(device="cpu").fit(communities, run=tmp_path / "run")
    h = model.embed(communities)
    assert model.metrics_ == []
    assert "nothing is trained" in model.reasons_[-1]
    assert np.array_equal(Embedder.load(tmp_path / "run", device="cpu").embed(communities), h)
    assert np.array_equal(embed_instantly(communities, device="cpu"), h)


def test_new_nodes_get_columns_of_the_same_meaning(communities: Graph) -> None:
    """V and m are those of the training graph: a part of it that no edge leaves is embedded as in the whole."""
    twice = gs.join_graphs([communities, make_communities(num_nodes=60, num_classes=3, seed=1)])
    model = gs.Instant(device="cpu").fit(communities)
    np.testing.assert_allclose(
        model.embed(twice)[: communities.num_nodes], model.embed(communities), rtol=1e-5, atol=1e-6
    )


def test_it_says_more_of_the_communities_than_features_alone(communities: Graph) -> None:
    assert communities.x is not None
    raw = gs.evaluate(communities.x, communities, protocol="knn").mean
    assert gs.evaluate(embed_instantly(communities), communities, protocol="knn").mean > raw + 5


def test_what_stands_beside_an_embedding_is_weighted_and_saved(communities: Graph, tmp_path: Path) -> None:
    plain, weighted = (
        Embedder("bgrl", settings={**BRIEF, "encoder.own_hops": 1, "encoder.own_weight": weight}, device="cpu").fit(
            communities
        )
        for weight in (1.0, 4.0)
    )
    expected = plain.embed(communities) * np.array([1.0] * 8 + [4.0] * 6, dtype=np.float32)
    assert np.array_equal(weighted.embed(communities), expected)
    for how in ("full", "layers"):
        np.testing.assert_allclose(weighted.embed(communities, how=how), expected, rtol=1e-3, atol=1e-5)
    weighted.save(tmp_path / "model")
    assert np.array_equal(Embedder.load(tmp_path / "model").embed(communities), expected)
    settings = {**BRIEF, "encoder.own_weight": 4.0, "train.steps": 1}
    warm = Embedder("bgrl", settings=settings, device="cpu").fit(communities, start_from=plain).embed(communities)
    assert np.array_equal(warm[:, 8:], expected[:, 8:])


def test_more_columns_than_features_are_cut_and_several_types_refused() -> None:
    graph = make_communities(num_nodes=50, num_classes=3, seed=0)
    settings = {**BRIEF, "encoder.own_features": 500}
    assert Embedder("bgrl", settings=settings, device="cpu").fit(graph).embed(graph).shape == (50, 8 + 4 * 30)
    typed = replace(graph, features=(None, None), type_offsets=(0, 20, 50), node_types=("user", "item"), labels=None)
    with pytest.raises(InputError, match="one node type"):
        Embedder("bgrl", settings=settings, device="cpu").fit(typed)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_many_rows_are_fitted_by_some_of_them(is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_communities(num_nodes=300, num_classes=3, seed=0)
    assert isinstance(graph.x, SparseMatrix)
    graph = graph if is_sparse else graph.with_features(graph.x.to_dense())
    all_rows = fitted(graph, num_columns=3).bases[0]
    monkeypatch.setattr("graphstrap.nn.methods.instant._ROWS_FITTED", 150)
    some_rows = fitted(graph, num_columns=3).bases[0]
    cosines = torch.linalg.svdvals(all_rows.T @ some_rows)  # of the angles between the two spaces
    assert not torch.equal(all_rows, some_rows)
    assert float(cosines.max()) > 0.9  # the leading one at least


def test_constant_and_missing_features_give_numbers() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=100, seed=0)
    for block in (torch.ones(40, 3), torch.zeros(40, 3), None):
        h = gs.Instant(device="cpu").fit_transform(graph.with_features(block))
        assert np.isfinite(h).all()


@pytest.mark.parametrize("key", ["own_weight", "own_hops"])
def test_a_weight_or_hops_of_nothing_are_refused(key: str) -> None:
    with pytest.raises(InputError, match=rf"encoder\.{key} is of own features"):
        Recipe().with_settings({f"encoder.{key}": 4})


def test_averages_over_newer_nodes_are_refused() -> None:
    sampling = {"sampling.by_time": True, "sampling.disjoint": True, "sampling.fan_outs": [5, 5]}
    with pytest.raises(InputError, match="averages over newer nodes"):
        Recipe().with_settings({"encoder.own_features": 8, "encoder.own_hops": 1, **sampling})


def test_a_view_drops_edges_of_the_averages(communities: Graph) -> None:
    """As an encoder it follows the view's edges; the clean view is every edge."""
    columns = fitted(communities, num_hops=1)
    view = gs.View(gs.ViewSpec(edge_drop_prob=1.0), 1)
    own = columns(communities, view)
    torch.testing.assert_close(own[:, :5], own[:, 5:])
    assert not torch.allclose(columns(communities, CLEAN)[:, 5:], own[:, 5:])


def test_there_are_no_more_columns_than_features_have() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=80, seed=0).with_features(torch.rand(40, 2))
    h = gs.Instant(device="cpu", settings={"data.structural_columns": "missing"}).fit(graph).embed(graph)
    assert h.shape == (40, 4 * 2)
