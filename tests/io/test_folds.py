"""Folds: disjoint, complete, alike in size; what a model leaves out cannot reach it (a detector is planted)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

import graphstrap as gs
from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.io.generate import mag
from graphstrap.io.source import Fold, fold_numbers, make_folds

SETTINGS: dict[str, Any] = {
    "method.name": "semi-supervised",
    "encoder.hidden_sizes": [8],
    "encoder.embedding_size": 8,
    "method.predictor_hidden_size": 8,
    "sampling.fan_outs": [4, 3],
    "sampling.batch_size": 40,
    "method.label_inputs": True,
    "method.unlabelled_ratio": 1.0,
    "train.steps": 12,
    "train.learning_rate": 0.02,
    "train.precision": "fp32",
}


@pytest.fixture(scope="module")
def tiny() -> Graph:
    return mag(0.0002, num_features=8)


def with_splits(*, num_train: int = 40, num_val: int = 50) -> Graph:
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(0))
    masks = torch.zeros(3, 120, 1, dtype=torch.bool)
    for mask, part in zip(masks, torch.tensor_split(order, [num_train, num_train + num_val]), strict=True):
        mask[part] = True
    return replace(graph, splits=Splits(*masks))


@pytest.mark.parametrize("part", ["val", "all"])
@pytest.mark.parametrize("number", [2, 5])
def test_folds_are_disjoint_and_cover_everything(tiny: Graph, part: str, number: int) -> None:
    assert tiny.splits is not None
    assert tiny.labels is not None
    train, val, test = (mask[:, 0] for mask in (tiny.splits.train, tiny.splits.val, tiny.splits.test))
    cut = val if part == "val" else train | val
    times_held_out = torch.zeros(tiny.num_nodes, dtype=torch.int64)
    for fold in make_folds(tiny, number, part=part):
        folded = fold(tiny).splits
        assert folded is not None
        own_train, own_val = folded.train[:, 0], folded.val[:, 0]
        assert not bool((own_train & own_val).any())
        assert torch.equal(own_train | own_val, train | val)
        assert torch.equal(folded.test[:, 0], test)
        times_held_out += own_val
    assert torch.equal(times_held_out, cut.long())


def test_folds_are_alike_in_size_and_do_not_depend_on_what_the_labels_are() -> None:
    graph = with_splits()
    folds = fold_numbers(graph, 4, part="all")
    sizes = torch.bincount(folds[folds >= 0])
    assert int(sizes.max() - sizes.min()) <= 1
    assert torch.equal(folds, fold_numbers(_poisoned(graph, folds >= 0), 4, part="all"))


def test_validation_nodes_are_cut_where_there_are_any() -> None:
    assert {fold.part for fold in make_folds(with_splits(), 5)} == {"val"}
    assert {fold.part for fold in make_folds(with_splits(num_val=0), 5)} == {"all"}
    assert {fold.part for fold in make_folds(replace(with_splits(), splits=None), 5)} == {"all"}
    for number in (1, 51):
        with pytest.raises(InputError, match="between 2 and the 50"):
            make_folds(with_splits(), number, part="val")
    with pytest.raises(InputError, match="label"):
        make_folds(replace(with_splits(), labels=None), 2)
    with pytest.raises(InputError, match="val, all"):
        make_folds(with_splits(), 2, part="test")


@pytest.mark.parametrize("saved", [None, [], {"number": 0}, {"number": 2, "of": 2, "part": "val"}, {"number": "0"}])
def test_a_damaged_fold_is_refused(saved: Any) -> None:
    assert Fold.from_dict(asdict(Fold(1, 3, "all"))) == Fold(1, 3, "all")
    with pytest.raises(InputError, match="fold"):
        Fold.from_dict(saved)


@pytest.mark.parametrize("part", ["val", "all"])
def test_labels_that_are_held_out_reach_neither_weights_nor_predictions(part: str) -> None:
    """Planted: other labels in the fold. Nothing may change; other labels elsewhere must change something."""
    graph = with_splits()
    fold = make_folds(graph, 3, part=part)[1]
    held_out = fold_numbers(graph, 3, part=part) == 1
    assert graph.splits is not None
    hidden = held_out | graph.splits.test[:, 0]
    found = [_outcome(fold(_poisoned(graph, where)), held_out) for where in (None, hidden, ~hidden)]
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert any(not torch.equal(found[0][name], found[2][name]) for name in found[0])


def _poisoned(graph: Graph, where: torch.Tensor | None) -> Graph:
    assert graph.labels is not None
    if where is None:
        return graph
    labels = torch.where(where, (graph.labels + 1) % 3, graph.labels)
    return replace(graph, labels=labels)


def _outcome(graph: Graph, asked: torch.Tensor) -> dict[str, torch.Tensor]:
    """The weights that training ends with, and the probabilities of the nodes that were held out."""
    model = gs.Embedder(settings=SETTINGS, device="cpu")
    model.fit(graph)
    probabilities = model.classify(graph, np.flatnonzero(asked.numpy()))
    return {**model.model_.module.state_dict(), "probabilities": torch.from_numpy(probabilities)}
