"""What is chosen by one half of the labels is reported on the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

from graphstrap.evaluation.protocols import evaluate
from graphstrap.graph import Graph
from graphstrap_lab.reproduce.blind import UNTOUCHED, tuning_half, tuning_scores, untouched_accuracies
from graphstrap_lab.reproduce.cells import Filling, compute_cells
from graphstrap_lab.reproduce.variants import VARIANTS


def labelled() -> tuple[Graph, torch.Tensor]:
    """A graph with some labels, and embeddings that know a little about them."""
    graph = make_communities(num_nodes=400, num_classes=3, seed=0)
    assert graph.labels is not None
    labels = torch.where(torch.arange(400) % 10 == 0, -1, graph.labels)
    noise = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    return replace(graph, labels=labels), torch.nn.functional.one_hot(graph.labels, 3) + 0.7 * noise


def changed(graph: Graph, nodes: np.ndarray[Any, Any]) -> Graph:
    """The graph with other labels of these nodes."""
    assert graph.labels is not None
    labels = graph.labels.clone()
    labels[nodes] = (labels[nodes] + 1) % 3
    return replace(graph, labels=labels)


def test_choosing_does_not_see_the_other_half() -> None:
    graph, h = labelled()
    assert graph.labels is not None
    half = tuning_half(graph)
    others = np.setdiff1d(np.flatnonzero(graph.labels.numpy() >= 0), half)
    assert abs(len(half) - len(others)) <= 1
    assert tuning_scores([h], changed(graph, others)) == tuning_scores([h], graph)
    assert tuning_scores([h], changed(graph, half[:100])) != tuning_scores([h], graph)


def test_what_is_reported_is_tested_on_the_other_half_alone() -> None:
    graph, h = labelled()
    (found,) = untouched_accuracies([h], graph, seeds=[0], num_runs=5)
    expected = evaluate(h, graph, protocol="reference", seed=0).mean
    assert abs(found - expected) < 10.0  # half of the same test nodes, the same probes
    assert found != expected


def test_only_tuned_rows_have_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = replace(labelled()[0], name="amazon-photo")
    (row,) = compute_cells(graph, "raw", Filling(device="cpu", quick=True), [0])
    assert UNTOUCHED not in row["accuracy"]
    monkeypatch.setitem(VARIANTS, "raw", replace(VARIANTS["raw"], tuned_on=("amazon-photo",)))
    (tuned,) = compute_cells(graph, "raw", Filling(device="cpu", quick=True), [0])
    assert graph.x is not None
    expected = untouched_accuracies([graph.x], graph, seeds=[0], num_runs=3)
    assert tuned["accuracy"] == {**row["accuracy"], UNTOUCHED: expected[0]}
