"""BGRL against an independent NumPy version, and the laws of bootstrapping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import draw_views, make_random_graph
from torch import nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.bgrl import BGRL, MLP, average_over_neighbours, bootstrap_loss, target_decay_at
from graphstrap.run.recipe import Recipe

Array = np.ndarray[Any, Any]


def make_method(
    *, target_decay: float = 0.9, projector_size: int = 0, norm: str = "batch", target_hops: int = 0
) -> BGRL:
    settings: dict[str, Any] = {
        "encoder.hidden_sizes": [16],
        "encoder.embedding_size": 8,
        "encoder.norm": norm,
        "method.predictor_hidden_size": 10,
        "method.target_decay": target_decay,
        "method.projector_size": projector_size,
        "method.target_hops": target_hops,
        "train.steps": 100,
    }
    method: BGRL = build_method(Recipe().with_settings(settings), input_sizes=(12,), seed=0)
    return method


def cosine(a: Array, b: Array) -> float:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(1) / np.maximum(lengths, 1e-16)).mean())


@pytest.mark.parametrize(("projector_size", "target_hops"), [(0, 0), (6, 0), (0, 1), (6, 2)])
def test_loss_equals_an_independent_numpy_version(projector_size: int, target_hops: int) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method(projector_size=projector_size, norm="layer", target_hops=target_hops)
    views = draw_views([ViewSpec(edge_drop_prob=0.3, feature_mask_prob=0.2)] * 2, seed=0, step=1)
    loss, _ = method.loss(graph, views)

    def mlp(h: Array, module: torch.nn.Module) -> Array:
        if isinstance(module, torch.nn.Identity):
            return h
        w = {name: value.detach().numpy() for name, value in module.named_parameters()}
        z = h @ w["weight_1"] + w["bias_1"]
        result: Array = np.where(z > 0, z, w["slope"] * z) @ w["weight_2"] + w["bias_2"]
        return result

    h = [method.online(graph, view).detach().numpy() for view in views]
    t = [method.target(graph, view).detach().numpy() for view in views]
    q = [mlp(mlp(embedding, method.online_projector), method.predictor) for embedding in h]
    z = [mlp(embedding, method.target_projector) for embedding in t]
    if target_hops:
        counts = np.eye(30)
        np.add.at(counts, (graph.targets.numpy(), graph.indices.numpy()), 1.0)
        mean = np.linalg.matrix_power(counts / counts.sum(1, keepdims=True), target_hops)
        z = [mean @ (table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)) for table in z]
    assert float(loss.detach()) == pytest.approx(2 - cosine(q[0], z[1]) - cosine(q[1], z[0]), abs=1e-5)


def test_predictor_and_projectors_start_with_the_slope_of_pytorchs_prelu_and_without_biases() -> None:
    method = make_method(projector_size=6)
    for module in (method.predictor, method.online_projector, method.target_projector):
        assert isinstance(module, MLP)
        h = torch.randn(20, len(module.weight_1))
        torch.testing.assert_close(module(h), nn.PReLU()(h @ module.weight_1) @ module.weight_2)


def test_loss_is_zero_when_predictions_equal_targets_and_two_when_opposite() -> None:
    t = torch.randn(20, 5)
    assert float(bootstrap_loss(3 * t, t)) == pytest.approx(0, abs=1e-6)
    assert float(bootstrap_loss(-t, t)) == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize("target_hops", [0, 1])
def test_only_online_network_and_predictor_get_gradients(target_hops: int) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method(projector_size=4, target_hops=target_hops)
    loss, _ = method.loss(graph, [CLEAN, CLEAN])
    torch.autograd.backward(loss)
    for name, parameter in method.named_parameters():
        is_target = name.startswith("target")
        assert (parameter.grad is None) == is_target, name
        assert parameter.requires_grad != is_target, name


def test_online_and_target_start_from_different_weights() -> None:
    method, again = make_method(projector_size=6), make_method(projector_size=6)
    for online, target in ((method.online, method.target), (method.online_projector, method.target_projector)):
        for (name, ours), (same_name, other) in zip(
            online.state_dict().items(), target.state_dict().items(), strict=True
        ):
            assert name == same_name
            assert ours.data_ptr() != other.data_ptr()
            assert torch.equal(ours, other) == (ours.dim() < 2), name  # weights alone are random
    assert all(torch.equal(a, b) for a, b in zip(method.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(("decay", "expected"), [(1.0, "frozen"), (0.0, "copied")])
def test_decay_one_freezes_and_zero_copies(decay: float, expected: str) -> None:
    method = make_method(target_decay=decay)
    before = [parameter.clone() for parameter in method.target.parameters()]
    method.after_step(0)
    reference = before if expected == "frozen" else list(method.online.parameters())
    for ours, other in zip(method.target.parameters(), reference, strict=True):
        assert torch.equal(ours, other)


def test_target_moves_towards_online() -> None:
    """By the equation, parameters only: batch-norm statistics stay the target's own."""
    method = make_method(target_decay=0.9)
    old = [parameter.clone() for parameter in method.target.parameters()]
    statistics = [buffer.clone() for buffer in method.target.buffers()]
    method.after_step(30)
    decay = target_decay_at(30, base=0.9, total_steps=100)
    for new, before, online in zip(method.target.parameters(), old, method.online.parameters(), strict=True):
        torch.testing.assert_close(new, decay * before + (1 - decay) * online)
    assert all(torch.equal(a, b) for a, b in zip(method.target.buffers(), statistics, strict=True))


def test_decay_schedule_is_the_papers() -> None:
    for step in (0, 1, 500, 9_999, 10_000):
        expected = 1 - (1 - 0.99) / 2 * (math.cos(step * math.pi / 10_000) + 1)
        assert target_decay_at(step, base=0.99, total_steps=10_000) == pytest.approx(expected)
    assert target_decay_at(0, base=0.99, total_steps=10) == pytest.approx(0.99)
    assert target_decay_at(10, base=0.99, total_steps=10) == 1.0


def test_loss_of_a_batch_looks_at_its_roots_only() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    method = make_method(norm="layer")
    from dataclasses import replace

    rooted = replace(graph, num_roots=5)
    h, t = method.online(graph, CLEAN)[:5], method.target(graph, CLEAN)[:5]
    expected = 2 * bootstrap_loss(method.predictor(h), t)
    loss, _ = method.loss(rooted, [CLEAN, CLEAN])
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)


def test_embedding_uses_the_clean_graph_and_no_gradient(communities: Graph) -> None:
    method = build_method(Recipe(), input_sizes=communities.num_features, seed=0)
    h = method.embed(communities)
    assert not h.requires_grad
    assert h.shape == (120, 128)
    assert torch.equal(h, method.online(communities, View(ViewSpec(), 5)))


def test_the_target_embeds_where_that_is_asked_for(communities: Graph) -> None:
    recipe = Recipe().with_settings({"method.embed_with": "target"})
    method = build_method(recipe, input_sizes=communities.num_features, seed=0)
    assert method.frozen is method.target
    h = method.embed(communities)
    assert torch.equal(h, method.target(communities, CLEAN))
    assert not torch.equal(h, method.online.eval()(communities, CLEAN))


def test_averaging_keeps_what_all_neighbours_share_and_ignores_lengths() -> None:
    """A component whose targets point one way keeps that direction, however long each is; one hop reaches no further
    than neighbours."""
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    graph = Graph.from_edges(edges[0], edges[1], num_nodes=5)
    t = torch.tensor([[2.0, 0.0], [5.0, 0.0], [0.0, 3.0], [0.0, 1.0], [0.0, 9.0]])
    once = average_over_neighbours(graph, t, num_hops=1)
    torch.testing.assert_close(once[3:], torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    torch.testing.assert_close(once[0], torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(once[1], torch.tensor([2.0 / 3, 1.0 / 3]))
    assert average_over_neighbours(graph, t, num_hops=0) is t


def test_a_sampled_batch_has_no_neighbours_to_average_over() -> None:
    with pytest.raises(InputError, match=r"target_hops"):
        Recipe().with_settings({"method.target_hops": 1, "sampling.fan_outs": [5, 5]})
