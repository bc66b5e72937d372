"""The MPNN is its equations on concatenated inputs, and learns on a real graph of several node types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_random_graph
from torch import Tensor

import graphstrap as gs
from graphstrap.errors import InputError
from graphstrap.graph import Graph, View, ViewSpec
from graphstrap.nn.encoders.mpnn import MPNN
from graphstrap.ops._torch import kept_edges
from graphstrap.run.recipe import Recipe


def mlp(z: Tensor, first: Tensor, hidden: Any) -> Tensor:
    """The hidden layers of an MLP, its first weight given."""
    z = F.prelu(z @ first + hidden.biases[0], hidden.slopes[0])
    for weight, bias, slope in zip(hidden.weights, hidden.biases[1:], hidden.slopes[1:], strict=True):
        z = F.prelu(z @ weight + bias, slope)
    return z


def gathered(ends: Tensor, messages: Tensor, aggregation: str) -> Tensor:
    rows = [messages[ends == node] for node in range(20)]
    return torch.stack([part.sum(0) / (max(1, len(part)) if aggregation == "mean" else 1) for part in rows])


@pytest.mark.parametrize(("hidden", "aggregation"), [((16, 12), "mean"), ((16,), "sum")])
def test_forward_is_the_equations_on_concatenations(hidden: tuple[int, ...], aggregation: str) -> None:
    graph = make_random_graph(num_nodes=20, num_edges=60, seed=2)
    graph = replace(graph, edge_columns=torch.randn(graph.num_edges, 3))
    view = View(ViewSpec(edge_drop_prob=0.4), 5)
    generator = torch.Generator().manual_seed(0)
    encoder = MPNN((12,), (*hidden, 8), num_steps=2, aggregation=aggregation, edge_size=3, generator=generator)
    for parameter in encoder.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)  # biases that matter
    kept = kept_edges(graph, view)
    assert kept is not None
    source, target = graph.indices.long()[kept], graph.targets[kept]
    x: Tensor = graph.x.to_dense()  # type: ignore[union-attr]
    h = encoder.norms[0](x @ encoder.input_weights[0] + encoder.type_biases[0])
    for step, norm in zip(encoder.steps, list(encoder.norms)[1:], strict=True):
        s: Any = step
        inputs = torch.cat([h[source], h[target], graph.edge_columns[kept].asinh()], dim=1)  # type: ignore[index]
        message = mlp(inputs, torch.cat([s.source, s.target, s.edge]), s.edge_mlp) @ s.message
        received, sent = (gathered(end, message, aggregation) for end in (target, source))
        inputs = torch.cat([h, received, sent], dim=1)
        update = mlp(inputs, torch.cat([s.own, s.received, s.sent]), s.node_mlp) @ s.out + s.out_bias
        h = norm(h + update)
    torch.testing.assert_close(encoder(graph, view), h, rtol=1e-3, atol=1e-4)


def test_steps_that_are_made_again_give_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, view = make_random_graph(num_nodes=20, num_edges=60, seed=2), View(ViewSpec(edge_drop_prob=0.4), 5)
    encoder = MPNN((12,), (16, 12, 8), num_steps=2, generator=torch.Generator().manual_seed(0))
    gradients, num_calls = [], []
    for free in (1 << 40, 0):
        calls: list[object] = []
        handles = [step.register_forward_pre_hook(lambda *given: calls.append(given[0])) for step in encoder.steps]  # noqa: B023
        monkeypatch.setattr("graphstrap.nn.encoders.mpnn.free_memory", lambda device, free=free: free)
        gradients.append(torch.autograd.grad(encoder(graph, view).square().sum(), list(encoder.parameters())))
        num_calls.append(len(calls))
        for handle in handles:
            handle.remove()
    assert num_calls == [2, 4]
    assert all(torch.equal(first, second) for first, second in zip(*gradients, strict=True))


def test_messages_go_both_ways() -> None:
    """On the one edge 0 -> 1, each end hears of the other."""
    graph = Graph.from_edges([0], [1], num_nodes=2, directed=True, x=torch.rand(2, 4))
    encoder = MPNN((4,), (8, 6), num_steps=1, generator=torch.Generator().manual_seed(0))
    alone = replace(graph, indptr=torch.zeros_like(graph.indptr), indices=graph.indices[:0])
    difference = (encoder(graph) - encoder(alone)).abs().amax(1)
    assert (difference > 1e-3).all()


def test_an_mlp_needs_a_hidden_layer() -> None:
    with pytest.raises(InputError, match="at least one"):
        Recipe().with_settings({"encoder.name": "mpnn", "encoder.hidden_sizes": []})


ACM: dict[str, Any] = {
    "encoder.name": "mpnn",
    "encoder.hidden_sizes": [16, 16],
    "encoder.embedding_size": 16,
    "encoder.num_steps": 1,
    "encoder.norm": "layer",
    "method.predictor_hidden_size": 32,
    "method.target_decay": 0.5,  # of the averaged weights too, which classify: ten steps are few
    "data.feature_scaling": "row",
    "data.structural_size": 16,
    "train.steps": 10,
    "train.warmup_steps": 0,
    "train.schedule": "constant",
    "train.log_every": 1,
}


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("method", ["bgrl", "semi-supervised"])
def test_it_trains_on_acm_with_labels_and_without(data_folder: Path, method: str) -> None:
    """Four node types, one of them without features, eight edge types; nothing says so. BGRL alone lowers its loss;
    with cross-entropy on the training papers besides, test papers are told apart."""
    graph = gs.load("hetero-acm-hgb")
    assert graph.node_types == ("paper", "author", "subject", "term")
    model = gs.Embedder(settings={**ACM, "method.name": method}, device="cpu").fit(graph)
    assert model.metrics_[-1]["loss"] < 0.8 * model.metrics_[0]["loss"]
    assert model.embed(graph).shape == (graph.num_nodes, 16)
    if method == "semi-supervised":
        assert graph.splits is not None
        assert graph.labels is not None
        test = graph.splits.test[:, 0].nonzero()[:, 0]
        found = model.classify(graph, test).argmax(1)
        assert np.mean(found == graph.labels[test].numpy()) > 0.5  # the largest class is 35 %
