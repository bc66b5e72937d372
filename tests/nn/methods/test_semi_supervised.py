"""Semi-supervised BGRL: the loss is its equation, and no label reaches what it must not: detectors are planted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities, train

import graphstrap as gs
from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits, View, ViewSpec
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn.methods import build_method, semi_supervised
from graphstrap.nn.methods.semi_supervised import (
    SemiSupervised,
    append_labels,
    average_decay_at,
    hide_roots,
    labelled_loss,
)
from graphstrap.run.recipe import Recipe
from graphstrap.train.batches import make_batches
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer

SETTINGS: dict[str, Any] = {
    "method.name": "semi-supervised",
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "method.predictor_hidden_size": 16,
    "method.target_decay": 0.9,
    "train.steps": 40,
    "train.warmup_steps": 4,
    "train.learning_rate": 0.02,
    "train.precision": "fp32",
}
SAMPLED: dict[str, Any] = {"sampling.fan_outs": [4, 3], "sampling.batch_size": 44}
VIEWS = [View(ViewSpec(edge_drop_prob=0.2, feature_mask_prob=0.2), seed) for seed in (1, 2)]


def with_splits(graph: Graph, *, num_train: int, seed: int = 0) -> Graph:
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    masks = torch.zeros(3, graph.num_nodes, 1, dtype=torch.bool)
    for mask, part in zip(
        masks, (order[:num_train], order[num_train : num_train + 30], order[num_train + 30 :]), strict=True
    ):
        mask[part] = True
    return replace(graph, splits=Splits(*masks))


def make_method(graph: Graph, **more: Any) -> SemiSupervised:
    recipe = Recipe().with_settings({**SETTINGS, **{key.replace("__", "."): value for key, value in more.items()}})
    method: SemiSupervised = build_method(recipe, input_sizes=graph.num_features, num_classes=3, seed=0)
    return method


# ---- the equation ----------------------------------------------------------------------------------------------------


def test_the_supervised_part_against_numpy() -> None:
    scores, labels = torch.randn(6, 3), torch.tensor([0, -1, 2, 2, -1, 1])
    p = np.exp(scores.numpy())
    p /= p.sum(1, keepdims=True)
    expected = -np.mean([math.log(p[i, c]) for i, c in enumerate(labels.tolist()) if c >= 0])
    assert float(labelled_loss(scores, labels)) == pytest.approx(expected, rel=1e-5)
    assert float(labelled_loss(scores, torch.full((6,), -1))) == 0.0


@pytest.mark.parametrize("auxiliary", ["bgrl", "grace"])
def test_the_loss_is_supervised_plus_weight_times_auxiliary(communities: Graph, auxiliary: str) -> None:
    more = {"method__auxiliary": auxiliary, "method__num_negatives": 16, "encoder__norm": "layer"}
    weighted, plain = (make_method(communities, method__auxiliary_weight=weight, **more) for weight in (0.7, 0.0))
    alone = weighted.auxiliary.loss(communities, VIEWS)[0]
    torch.testing.assert_close(weighted.loss(communities, VIEWS)[0], plain.loss(communities, VIEWS)[0] + 0.7 * alone)


def test_weight_zero_learns_from_labels_alone(communities: Graph) -> None:
    method = make_method(communities, method__auxiliary_weight=0.0)
    torch.autograd.backward(method.loss(communities, VIEWS)[0])
    for name, parameter in method.named_parameters():
        wanted = name.startswith(("auxiliary.online.", "head."))
        assert (parameter.grad is not None) == wanted, name
        assert parameter.requires_grad == wanted, name


def test_averages_move_towards_the_encoder_and_get_no_gradient(communities: Graph) -> None:
    method = make_method(communities)
    with torch.no_grad():
        for parameter in method.head.parameters():
            parameter.fill_(1.0)
        for parameter in method.averaged_head.parameters():
            parameter.fill_(0.0)
    method.after_step(0)
    assert float(method.averaged_head.bias[0]) == pytest.approx(0.9)  # decay 0.1 at first
    assert average_decay_at(1000, base=0.99, total_steps=10**6) == pytest.approx(0.99, abs=1e-4)
    assert average_decay_at(5, base=0.99, total_steps=10**6) == pytest.approx(6 / 15)
    assert float(average_decay_at(torch.tensor(5), base=0.99, total_steps=10**6)) == pytest.approx(6 / 15)
    torch.autograd.backward(method.loss(communities, VIEWS)[0])
    assert all(parameter.grad is None for parameter in method.averaged.parameters())
    assert all(parameter.grad is None for parameter in method.averaged_head.parameters())


@pytest.mark.parametrize("label_inputs", [False, True])
def test_unlabelled_subgraphs_are_left_out_of_the_clean_pass_and_change_nothing(
    communities: Graph, label_inputs: bool
) -> None:
    labels = torch.where(torch.arange(120) % 3 == 0, communities.labels, -1)  # type: ignore[arg-type]
    graph = replace(communities, labels=labels)
    batch = Gatherer(graph).fill(Sampler(graph, [4, 3], disjoint=True).sample(torch.arange(50), seed=0))
    more = {"encoder__norm": "layer", "method__auxiliary_weight": 0.0, "method__label_inputs": label_inputs}
    method = make_method(graph, sampling__fan_outs=[4, 3], **more)
    shown = method.inputs(batch)
    assert batch.labels is not None
    whole = labelled_loss(method.head(shown.roots_of(method.online(shown))), batch.roots_of(batch.labels))
    torch.testing.assert_close(method.loss(batch, VIEWS)[0], whole)


# ---- roots -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.0, 1.0, 3.0, 10.0, 43.0])
def test_a_batch_has_so_many_unlabelled_roots_for_each_labelled_one(communities: Graph, ratio: float) -> None:
    labels = torch.where(torch.arange(120) < 50, communities.labels, -1)  # type: ignore[arg-type]
    hidden = replace(communities, labels=labels)
    recipe = Recipe().with_settings({**SETTINGS, **SAMPLED, "method.unlabelled_ratio": ratio})
    batches = make_batches(hidden, recipe=recipe, seed=0, device=torch.device("cpu"))
    for step in range(1, 6):
        batch = batches(step)
        assert batch.labels is not None
        has_label = batch.roots_of(batch.labels) >= 0
        assert batch.num_roots == 44
        assert int(has_label.sum()) == round(44 / (1 + ratio))
    batches.close()


# ---- labels as inputs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disjoint", [False, True])
def test_a_roots_own_label_is_hidden_wherever_it_recurs_and_others_are_shown(
    communities: Graph, disjoint: bool
) -> None:
    roots = torch.arange(0, 60, 2)
    sampler = Sampler(communities, [5, 5], disjoint=disjoint)
    batch = Gatherer(communities).fill(sampler.sample(roots, seed=0))
    shown = hide_roots(batch)
    assert batch.node_ids is not None
    assert batch.labels is not None
    for place in range(batch.num_nodes):
        node = int(batch.node_ids[place])
        own = {node} & (set(roots.tolist()) if batch.owners is None else {int(roots[batch.owners[place]])})
        assert int(shown[place]) == (-1 if own else int(batch.labels[place]))
    assert bool((shown >= 0).any())


@pytest.mark.parametrize("sparse", [False, True])
def test_labels_become_columns(communities: Graph, sparse: bool) -> None:
    assert isinstance(communities.x, SparseMatrix)
    block = communities.x if sparse else communities.x.to_dense()
    labels = torch.arange(120) % 4 - 1
    wide = append_labels(block, labels, 3)
    assert wide is not None
    dense = wide.to_dense()
    expected = torch.zeros(120, 3)
    expected[labels >= 0, labels[labels >= 0]] = 1.0
    assert torch.equal(dense, torch.cat([communities.x.to_dense(), expected], dim=1))


# ---- leaks -----------------------------------------------------------------------------------------------------------


def test_training_labels_are_those_of_the_training_nodes(communities: Graph) -> None:
    graph = with_splits(communities, num_train=20)
    assert graph.splits is not None
    labels = graph.training_labels
    assert torch.equal(labels >= 0, graph.splits.train[:, 0])


@pytest.mark.parametrize("more", [{}, SAMPLED, {**SAMPLED, "method.label_inputs": True, "sampling.disjoint": True}])
def test_labels_of_validation_and_test_nodes_change_nothing(communities: Graph, more: dict[str, Any]) -> None:
    """The detector: other labels there give the same weights and the same predictions, bit for bit."""
    graph = with_splits(communities, num_train=30)
    assert graph.splits is not None
    assert graph.labels is not None
    poisoned = replace(graph, labels=torch.where(graph.splits.train[:, 0], graph.labels, (graph.labels + 1) % 3))
    nodes = (~graph.splits.train[:, 0]).nonzero().squeeze(1)
    fitted = [
        gs.Embedder(settings={**SETTINGS, **more, "train.steps": 8}, device="cpu").fit(one) for one in (graph, poisoned)
    ]
    states = [one.model_.module.state_dict() for one in fitted]
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))
    predictions = [one.classify(g, nodes) for one, g in zip(fitted, (graph, poisoned), strict=True)]
    assert np.array_equal(predictions[0], predictions[1])
    embeddings = [one.embed(g) for one, g in zip(fitted, (graph, poisoned), strict=True)]
    assert np.array_equal(embeddings[0], embeddings[1])


@pytest.mark.parametrize("disjoint", [False, True])
def test_the_detector_of_own_labels_stays_silent_and_would_cry(monkeypatch: pytest.MonkeyPatch, disjoint: bool) -> None:
    """Labels at random, the same features for all: only a root's own label can tell its label. Hidden, the loss stays
    at that of guessing; shown, it falls."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (300,), generator=generator)
    source, target = torch.randint(0, 300, (2, 900), generator=generator)
    graph = Graph.from_edges(source, target, num_nodes=300, x=torch.ones(300, 2), labels=labels)
    more: dict[str, Any] = {"method.label_inputs": True, "method.auxiliary_weight": 0.0, "method.unlabelled_ratio": 0.0}
    more |= {
        "sampling.disjoint": disjoint,
        "sampling.fan_outs": [3, 3],
        "sampling.batch_size": 100,
        "encoder.norm": "layer",
    }
    recipe = Recipe().with_settings({**SETTINGS, **more, "train.steps": 60})

    def final_loss() -> float:
        method = build_method(recipe, input_sizes=graph.num_features, num_classes=3, seed=0)
        records = train(method, graph, recipe=recipe, seed=0)
        return float(np.mean([record["loss"] for record in records[-2:]]))

    assert final_loss() > 0.97 * math.log(3)
    monkeypatch.setattr(semi_supervised, "hide_roots", lambda batch: batch.labels)
    assert final_loss() < 0.85 * math.log(3)


# ---- from end to end -------------------------------------------------------------------------------------------------


def test_unlabelled_nodes_help(communities: Graph) -> None:
    graph = with_splits(make_communities(num_nodes=300, num_classes=3, seed=2), num_train=9)
    assert graph.splits is not None
    assert graph.labels is not None
    rest = graph.splits.test[:, 0].nonzero().squeeze(1)
    scores = []
    for weight in (0.0, 1.0):
        found = []
        for seed in range(3):
            settings = {**SETTINGS, "method.auxiliary_weight": weight, "train.steps": 100}
            model = gs.Embedder(settings=settings, seed=seed, device="cpu").fit(graph)
            found.append(float((model.classify(graph, rest).argmax(1) == graph.labels[rest].numpy()).mean()))
        scores.append(np.mean(found))
    assert scores[1] > scores[0]
    assert scores[1] > 0.6


@pytest.mark.parametrize("more", [{}, {**SAMPLED, "method.label_inputs": True, "method.inference_passes": 3}])
def test_predict_fills_in_the_missing_labels(communities: Graph, tmp_path: Any, more: dict[str, Any]) -> None:
    assert communities.labels is not None
    graph = replace(communities, labels=torch.where(torch.arange(120) % 4 == 0, -1, communities.labels))
    model = gs.Embedder(settings={**SETTINGS, **more, "train.evaluate_every": 20}, device="cpu").fit(graph)
    predictions = model.predict(graph)
    assert np.array_equal(predictions.nodes, np.arange(0, 120, 4))
    np.testing.assert_allclose(predictions.probabilities.sum(1), 1.0, rtol=1e-5)
    assert (predictions.labels == communities.labels.numpy()[::4]).mean() > 0.6
    model.save(tmp_path / "model")
    again = gs.Embedder.load(tmp_path / "model", device="cpu").predict(graph)
    assert np.array_equal(again.probabilities, predictions.probabilities)


def test_validation_accuracy_is_logged(communities: Graph) -> None:
    graph = with_splits(communities, num_train=30)
    model = gs.Embedder(settings={**SETTINGS, "train.evaluate_every": 20}, device="cpu").fit(graph)
    assert [record["step"] for record in model.metrics_ if "accuracy" in record] == [20, 40]


def test_graphs_without_labels_to_learn_are_refused(communities: Graph) -> None:
    with pytest.raises(InputError, match="one label column"):
        gs.Embedder(settings=SETTINGS).fit(replace(communities, labels=None))
    with pytest.raises(InputError, match="at least two classes"):
        gs.Embedder(settings=SETTINGS).fit(replace(communities, labels=torch.zeros(120).long()))
    with pytest.raises(InputError, match="label_inputs"):
        Recipe().with_settings({**SETTINGS, "method.label_inputs": True})
    with pytest.raises(InputError, match="learns no classes"):
        gs.Embedder(settings={"train.steps": 1}).fit(communities).classify(communities, [0])
