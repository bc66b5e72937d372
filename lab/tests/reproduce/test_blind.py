"""What is chosen by one half of the labels is reported on the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

from graphstrap.evaluation.protocols import evaluate, probe_runs
from graphstrap.evaluation.task import Split, Task
from graphstrap.graph import Graph
from graphstrap_lab.reproduce import blind
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


def test_the_half_is_the_one_that_settings_were_chosen_by() -> None:
    """Another half would report on labels that had a say in the recorded settings."""
    assert tuning_half(labelled()[0])[:6].tolist() == [189, 249, 245, 122, 164, 322]


def test_choosing_fits_on_a_fifth_of_all_labels_within_the_half_and_scores_on_its_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, h = labelled()
    seen: list[Split] = []

    def run(tasks: list[Task], splits: list[list[Split]]) -> list[list[float]]:
        seen.extend(splits[0])
        return probe_runs(tasks, splits)

    monkeypatch.setattr(blind, "probe_runs", run)
    tuning_scores([h], graph)
    for split in seen:
        assert (len(split.train), len(split.val)) == (360 // 5, 0)
        assert sorted([*split.train, *split.test]) == sorted(tuning_half(graph))
    assert len({tuple(split.train) for split in seen}) == 3


def test_what_is_reported_is_tested_on_the_other_half_alone() -> None:
    """Embeddings that know the labels of one half and nothing of the other's."""
    graph, _ = labelled()
    assert graph.labels is not None
    half, h = tuning_half(graph), torch.nn.functional.one_hot(graph.labels.clamp(min=0), 3).float()
    others = np.setdiff1d(np.arange(400), half)
    knows_others, knows_half = h.clone(), h.clone()
    knows_others[half], knows_half[others] = 0.0, 0.0
    assert untouched_accuracies([knows_others], graph, seeds=[0], num_runs=3) == [100.0]
    assert untouched_accuracies([knows_half], graph, seeds=[0], num_runs=3)[0] < 50.0


def test_where_no_label_had_a_say_it_is_the_protocol_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, h = labelled()
    monkeypatch.setattr(blind, "tuning_half", lambda graph: np.zeros(0, dtype=np.int64))
    found = untouched_accuracies([h, h], graph, seeds=[0, 1], num_runs=3)
    expected = [evaluate(h, graph, protocol="reference", num_runs=3, seed=seed).mean for seed in (0, 1)]
    assert found == pytest.approx(expected, abs=1e-4)


def test_only_tuned_rows_have_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = replace(labelled()[0], name="amazon-photo")
    (row,) = compute_cells(graph, "raw", Filling(device="cpu", quick=True), [0])
    assert UNTOUCHED not in row["accuracy"]
    monkeypatch.setitem(VARIANTS, "raw", replace(VARIANTS["raw"], tuned_on=("amazon-photo",)))
    (tuned,) = compute_cells(graph, "raw", Filling(device="cpu", quick=True), [0])
    assert graph.x is not None
    expected = untouched_accuracies([graph.x], graph, seeds=[0], num_runs=3)
    assert tuned["accuracy"] == {**row["accuracy"], UNTOUCHED: expected[0]}
