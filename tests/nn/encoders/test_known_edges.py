"""Edges of another graph are read by name, as those of training were; what cannot be is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphstrap as gs
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.nn.encoders.edges import KnownEdges
from graphstrap.nn.model import Model
from same_graph import assert_same_graph, make_full_graph

SMALL: dict[str, Any] = {
    "encoder.hidden_sizes": [8],
    "encoder.embedding_size": 8,
    "encoder.own_features": 0,
    "method.predictor_hidden_size": 8,
    "train.steps": 3,
}


def small(encoder: str) -> dict[str, Any]:
    one_step = {"encoder.num_steps": 1} if encoder == "mpnn" else {}
    return {**SMALL, "encoder.name": encoder, **one_step}


def renamed(graph: Graph) -> Graph:
    """The same edges, their types numbered and their columns ordered otherwise, with one more of each."""
    assert graph.edge_types is not None
    assert graph.edge_columns is not None
    more = torch.cat([graph.edge_columns.flip(1), torch.zeros(graph.num_edges, 1)], dim=1)
    return replace(
        graph,
        edge_types=2 - graph.edge_types,
        edge_type_names=("likes", "answers", "cites"),
        edge_columns=more,
        edge_column_names=("width", "length", "depth"),
    )


def test_types_and_columns_go_by_name_and_others_are_left_out() -> None:
    graph = make_full_graph(seed=0)
    known = KnownEdges.of(graph)
    assert known.size == 5
    assert known.matched(graph) is graph
    assert_same_graph(known.matched(renamed(graph)), graph)
    only_weights = KnownEdges(has_weights=True).matched(graph)
    assert (only_weights.edge_types, only_weights.edge_columns, KnownEdges.of(only_weights).size) == (None, None, 1)
    without = known.matched(replace(graph, edge_weights=None)).edge_weights
    assert without is not None
    assert bool((without == 1).all())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edge_types": None}, "give a type for every edge"),
        ({"edge_type_names": ("cites", "rates")}, "edges of the type 'rates', and the model was trained on cites, ans"),
        ({"edge_columns": None, "edge_column_names": ()}, "2 numeric edge columns, this graph has 0"),
        ({"edge_column_names": ("length", "depth")}, "an edge column 'width'"),
    ],
)
def test_what_is_missing_is_named(change: dict[str, Any], words: str) -> None:
    graph = make_full_graph(seed=0)
    with pytest.raises(InputError, match=words):
        KnownEdges.of(graph).matched(replace(graph, **change))


def test_a_type_without_edges_need_not_be_known() -> None:
    graph = make_full_graph(seed=0)
    more = replace(graph, edge_type_names=("cites", "answers", "likes"))
    assert KnownEdges.of(graph).matched(more).edge_type_names == ("cites", "answers")


@pytest.mark.parametrize("name", ["gat", "mpnn"])
def test_a_saved_model_embeds_renamed_edges_the_same_and_starts_another(name: str, tmp_path: Path) -> None:
    graph = make_full_graph(seed=0)
    first = gs.BGRL(settings=small(name), device="cpu").fit(graph)
    first.save(tmp_path)
    loaded = gs.BGRL.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(loaded.embed(renamed(graph)), first.embed(graph))
    started = gs.BGRL(settings={**small(name), "train.learning_rate": 0.0}, device="cpu")
    started.fit(renamed(graph), start_from=first)
    np.testing.assert_allclose(started.embed(graph), first.embed(graph), rtol=1e-3, atol=1e-3)
    assert started.model_.edges == first.model_.edges


def test_other_encoders_take_edges_of_any_kind() -> None:
    graph = make_full_graph(seed=0)
    model = gs.BGRL(settings=small("gcn"), device="cpu").fit(graph)
    assert model.model_.edges is None
    bare = replace(graph, edge_types=None, edge_type_names=(), edge_columns=None, edge_column_names=())
    np.testing.assert_array_equal(model.embed(bare), model.embed(graph))


def test_a_model_of_before_they_were_kept_is_still_read(tmp_path: Path) -> None:
    graph = make_full_graph(seed=0)
    model = gs.BGRL(settings=small("gat"), device="cpu").fit(graph).model_
    replace(model, edges=None).save(tmp_path)
    assert Model.load(tmp_path).edges is None


@pytest.mark.parametrize("name", ["gat", "mpnn"])
def test_types_without_names_are_sampled(name: str) -> None:
    """A batch may lack the last of the types."""
    graph = make_full_graph(seed=0)
    kinds = torch.zeros(graph.num_edges, dtype=torch.int64)
    kinds[-1] = 3
    numbered = Graph.from_edges(graph.indices.long(), graph.targets, directed=True, num_nodes=30, edge_types=kinds)
    assert numbered.edge_type_names == ("0", "1", "2", "3")
    settings = {**small(name), "sampling.fan_outs": [2, 2], "sampling.batch_size": 4}
    assert gs.BGRL(settings=settings, device="cpu").fit(numbered).embed(numbered).shape == (30, 8)
    nameless = replace(numbered, edge_type_names=())
    assert gs.BGRL(settings=settings, device="cpu").fit(nameless).embed(nameless).shape == (30, 8)


def test_types_that_cannot_be_numbers_of_types_are_refused() -> None:
    for kind in (-1, 10**12):
        with pytest.raises(InputError, match="from 0 to 65,535"):
            Graph.from_edges([0], [1], edge_types=[kind])


@pytest.mark.parametrize("name", ["gat", "mpnn"])
def test_large_numbers_do_not_drown_the_rest(name: str) -> None:
    """A column of amounts in the millions: nodes with other features still get other embeddings."""
    graph = make_full_graph(seed=0)
    assert graph.edge_columns is not None
    large = replace(graph, edge_columns=1e6 * graph.edge_columns)
    model = gs.BGRL(settings=small(name), device="cpu").fit(large)
    h = model.embed(large)
    assert np.isfinite(h).all()
    other = model.embed(large.with_features(torch.rand(30, 7)))
    assert np.abs(h - other).max() > 0.05 * np.abs(h).max()
