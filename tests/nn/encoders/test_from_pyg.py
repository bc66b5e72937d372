"""An encoder of the user's own: what a view keeps is what the module gets, and training, files and seeds work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities, make_random_graph
from torch import Tensor, nn

import graphstrap as gs
from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.io.pyg import import_pyg
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.encoders.from_pyg import encoder_of
from graphstrap.nn.encoders.gcn import GCN
from graphstrap.run.recipe import ENCODERS
from same_graph import make_hetero_graph

pyg_nn = import_pyg("nn")
pytestmark = pytest.mark.usefixtures("forget_added_encoders")
SMALL: dict[str, Any] = {
    "encoder.name": "mine",
    "encoder.embedding_size": 16,
    "encoder.own_features": 0,
    "method.predictor_hidden_size": 16,
    "train.steps": 30,
}
OF_ANY = {key: value for key, value in SMALL.items() if key != "method.predictor_hidden_size"}  # of any method


def make_sage(num_features: int, embedding_size: int) -> nn.Module:
    sage: nn.Module = pyg_nn.GraphSAGE(num_features, 16, num_layers=2, out_channels=embedding_size, norm="batch_norm")
    return sage


class TwoConvolutions(nn.Module):
    """Our GCN, as a user of PyG writes it."""

    def __init__(self, num_features: int, embedding_size: int) -> None:
        super().__init__()
        self.first, self.second = pyg_nn.GCNConv(num_features, 12), pyg_nn.GCNConv(12, embedding_size)
        self.slopes = nn.ParameterList(torch.tensor([0.25]) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = nn.functional.prelu(self.first(x, edge_index), self.slopes[0])
        return nn.functional.prelu(self.second(h, edge_index), self.slopes[1])


@pytest.mark.parametrize("mask_elements", [False, True])
@pytest.mark.parametrize("shuffle_nodes", [False, True])
def test_convolutions_of_pyg_give_what_ours_give_on_every_view(mask_elements: bool, shuffle_nodes: bool) -> None:
    graph = make_random_graph(num_nodes=50, num_edges=200, seed=3)
    generator = torch.Generator().manual_seed(0)
    theirs = encoder_of(TwoConvolutions)(graph.num_features, [6], generator=generator)
    ours = GCN(graph.num_features, [12, 6], norm="none", generator=generator)
    with torch.no_grad():
        for weight, conv in ((ours.input_weights[0], "first"), (ours.weights[0], "second")):
            theirs.module.get_parameter(f"{conv}.lin.weight").copy_(weight.T)
    for seed in range(3):
        spec = ViewSpec(0.4, 0.3, mask_elements=mask_elements, shuffle_nodes=shuffle_nodes)
        for view in (CLEAN, View(spec, seed)):
            torch.testing.assert_close(theirs(graph, view), ours(graph, view), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["GraphSAGE", "GIN", "GAT"])
def test_modules_of_pyg_learn_without_labels(kind: str) -> None:
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    make = getattr(pyg_nn, kind)
    gs.add_encoder("mine", lambda size_in, size_out: make(size_in, 16, num_layers=2, out_channels=size_out))
    model = gs.Embedder(seed=0, settings=SMALL).fit(graph)
    assert model.metrics_[-1]["loss"] < model.metrics_[0]["loss"]
    assert model.embed(graph).shape == (120, 16)


@pytest.mark.parametrize("method", ["grace", "dgi", "barlow-twins", "semi-supervised"])
def test_other_methods_take_it_too(method: str) -> None:
    graph = make_communities(num_nodes=60, num_classes=3, seed=0)
    gs.add_encoder("mine", make_sage)
    model = gs.Embedder(seed=0, settings={**OF_ANY, "method.name": method, "train.steps": 3}).fit(graph)
    assert model.embed(graph).shape == (60, 16)


def test_sampled_batches(communities: Graph) -> None:
    gs.add_encoder("mine", make_sage)
    settings = {**SMALL, "sampling.fan_outs": [4, 4], "sampling.batch_size": 32, "train.steps": 3}
    model = gs.Embedder(settings=settings).fit(communities)
    assert model.embed(communities, how="sampled").shape == (120, 16)


def test_same_seed_same_bits_whatever_the_global_generator_says(communities: Graph) -> None:
    gs.add_encoder("mine", make_sage)
    found = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        found.append(gs.Embedder(seed=5, settings=SMALL).fit(communities).embed(communities))
        assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(found[0], found[1])


def test_a_run_is_read_back_where_the_encoder_is_known(communities: Graph, tmp_path: Path) -> None:
    gs.add_encoder("mine", make_sage)
    model = gs.Embedder(seed=0, settings=SMALL).fit(communities, run=tmp_path / "run")
    again = gs.Embedder.load(tmp_path / "run")
    assert np.array_equal(again.embed(communities), model.embed(communities))
    ENCODERS.forget("mine")
    with pytest.raises(InputError, match=r"add_encoder adds one, and so can a package"):
        gs.Embedder.load(tmp_path / "run")


def test_what_cannot_be_is_said(communities: Graph) -> None:
    with pytest.raises(InputError, match="give yours another name"):
        gs.add_encoder("gcn", make_sage)
    gs.add_encoder("mine", lambda size_in, size_out: make_sage(size_in, size_out + 1))
    with pytest.raises(InputError, match=r"gave \(120, 17\)"):
        gs.Embedder(settings=SMALL).fit(communities)
    gs.add_encoder("mine", make_sage)  # a second time: the new one counts
    with pytest.raises(InputError, match="one node type"):
        gs.Embedder(settings=SMALL).fit(make_hetero_graph(seed=0))
    for method in ("gmi", "mvgrl"):
        with pytest.raises(InputError, match="encoder"):
            gs.Embedder(settings={**OF_ANY, "method.name": method}).fit(communities)


def test_what_a_module_draws_is_a_function_of_the_seed(communities: Graph) -> None:
    class Dropping(torch.nn.Module):
        def __init__(self, num_features: int, size: int) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(num_features, size)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(self.linear(x), 0.5, self.training)

    gs.add_encoder("mine", Dropping)
    found = [gs.Embedder(seed=seed, settings=SMALL).fit(communities).embed(communities) for seed in (1, 1, 2)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


class InPlaceWithDropout(nn.Module):
    def __init__(self, num_features: int, embedding_size: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(num_features, 32), nn.Linear(32, embedding_size)
        self.norm, self.dropout = nn.BatchNorm1d(embedding_size), nn.Dropout(0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h: Tensor = self.norm(self.second(self.dropout(self.first(torch.relu_(x)).relu())))
        return h


def test_statistics_of_the_clean_graph_are_those_without_dropout_and_features_stay() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 6, generator=generator)
    graph = Graph.from_edges(torch.arange(199), torch.arange(1, 200), x=x.clone())
    encoder = encoder_of(InPlaceWithDropout)([6], [8], generator=generator)
    recalibrate_batch_norm(encoder, [graph])
    h = encoder.eval()(graph)
    torch.testing.assert_close(h.std(0, correction=0), torch.ones(8), rtol=0.01, atol=0)  # var of n - 1
    assert torch.equal(graph.x, x)  # type: ignore[arg-type]
