"""Fitting again: an estimator changes when training succeeds, and only then; its log is that of all sessions."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

import graphstrap as gs
from graphstrap.errors import InterruptedTrainingError
from graphstrap.run.recipe import Recipe

SETTINGS = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "encoder.own_features": 0,
    "method.predictor_hidden_size": 16,
    "train.steps": 25,
    "train.learning_rate": 0.01,
    "train.log_every": 5,
}


def make_estimator(**more: object) -> gs.BGRL:
    return gs.BGRL(settings={**SETTINGS, **more}, seed=0, device="cpu")


def steps_of(records: list[dict[str, Any]]) -> list[int]:
    return [record["step"] for record in records]


def interrupt_at(step: int) -> Any:
    """A mirror that gets Ctrl-C when this step is logged."""

    def mirror(record: Mapping[str, Any]) -> None:
        if record["step"] == step:
            os.kill(os.getpid(), signal.SIGINT)

    return mirror


def test_an_estimator_starts_from_itself(communities: gs.Graph) -> None:
    slow = {"train.learning_rate": 1e-6, "train.steps": 2}
    first = make_estimator().fit(communities)
    other = make_estimator(**slow).fit(communities, start_from=first)
    first.set_params(settings={**SETTINGS, **slow})
    first.fit(communities, start_from=first)
    assert np.array_equal(first.embed(communities), other.embed(communities))
    assert not np.allclose(make_estimator(**slow).fit(communities).embed(communities), other.embed(communities))


def test_a_fit_that_fails_or_is_stopped_leaves_the_estimator_as_it_was(communities: gs.Graph) -> None:
    model = make_estimator().fit(communities)
    before = (model.embed(communities), model.model_, model.recipe_, model.reasons_, model.metrics_)
    model.set_params(settings={**SETTINGS, "train.graphs_per_step": 3}, recipe=Recipe())
    with pytest.raises(gs.InputError, match="graphs_per_step"):
        model.fit(communities)
    model.set_params(settings=SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        model.fit(communities, mirrors=[interrupt_at(5)])
    assert np.array_equal(model.embed(communities), before[0])
    now = (model.model_, model.recipe_, model.reasons_, model.metrics_)
    assert all(a is b for a, b in zip(now, before[1:], strict=True))


def test_a_loop_over_settings_that_goes_on_after_errors_stops_at_ctrl_c(communities: gs.Graph) -> None:
    tried = []

    def search() -> None:
        for rate in (0.01, 0.02):
            tried.append(rate)
            with contextlib.suppress(Exception):
                make_estimator(**{"train.learning_rate": rate}).fit(communities, mirrors=[interrupt_at(5)])

    with pytest.raises(InterruptedTrainingError):
        search()
    assert tried == [0.01]


@pytest.mark.parametrize("num_seeds", [1, 2])
@pytest.mark.parametrize(
    "wrong", [{"train.graphs_per_step": 3}, {"sampling.fan_outs": [3, 3], "sampling.root_types": ["paper"]}]
)
def test_a_mistake_that_training_finds_leaves_no_folder(
    communities: gs.Graph, tmp_path: Path, wrong: dict[str, Any], num_seeds: int
) -> None:
    def fit(**settings: object) -> None:
        if num_seeds == 1:
            make_estimator(**settings).fit(communities, run=tmp_path / "run")
        else:
            gs.fit_seeds(make_estimator(**settings), communities, seeds=range(num_seeds), run=tmp_path / "run")

    with pytest.raises(gs.InputError):
        fit(**wrong)
    assert list(tmp_path.iterdir()) == []
    fit()


def test_a_run_that_has_taken_steps_is_never_removed(communities: gs.Graph, tmp_path: Path) -> None:
    def refuse(record: Mapping[str, Any]) -> None:
        if record["step"] == 5:
            raise gs.InputError("no space")

    with pytest.raises(gs.InputError, match="no space"):
        make_estimator().fit(communities, run=tmp_path / "run", mirrors=[refuse])
    assert (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("known", ["four", "one class", "none"])
def test_too_few_labels_to_evaluate_by_do_not_end_training(
    communities: gs.Graph, known: str, caplog: pytest.LogCaptureFixture
) -> None:
    number = torch.arange(120)
    assert communities.labels is not None
    kept = {"four": number < 4, "one class": communities.labels == 0, "none": number < 0}[known]
    graph = replace(communities, labels=torch.where(kept, communities.labels, -1))
    model = make_estimator(**{"train.evaluate_every": 10}).fit(graph)
    assert model.metrics_[-1]["step"] == 25
    assert "training is not evaluated" in caplog.text


def test_the_log_is_that_of_all_sessions(communities: gs.Graph, tmp_path: Path) -> None:
    with pytest.raises(InterruptedTrainingError):
        make_estimator().fit(communities, run=tmp_path / "run", mirrors=[interrupt_at(10)])
    resumed = gs.BGRL.resume(tmp_path / "run", communities)
    assert steps_of(resumed.metrics_) == [1, 5, 10, 15, 20, 25]
    assert gs.BGRL.load(tmp_path / "run").metrics_ == resumed.metrics_
    resumed.save(tmp_path / "model")
    assert gs.BGRL.load(tmp_path / "model").metrics_ == []


def test_numpys_numbers_give_a_model_that_opens_again(communities: gs.Graph, tmp_path: Path) -> None:
    settings = {**SETTINGS, "train.learning_rate": np.float64(0.01), "train.steps": np.int64(3)}
    model = gs.BGRL(settings=settings, seed=np.int64(3), device="cpu")  # type: ignore[arg-type]
    h = model.fit(communities, run=tmp_path / "run").embed(communities)
    assert np.array_equal(gs.BGRL.load(tmp_path / "run", device="cpu").embed(communities), h)
    fitted = gs.fit_seeds(model, communities, seeds=np.arange(2), run=tmp_path / "seeds")
    assert [one.model_.seed for one in fitted] == [0, 1]
    for seed in (None, 1.5):
        with pytest.raises(gs.InputError, match="a seed is a whole number"):
            gs.BGRL(settings=settings, seed=seed).fit(communities)  # type: ignore[arg-type]


def test_a_warm_start_says_how_features_are_really_prepared(communities: gs.Graph, tmp_path: Path) -> None:
    used = {"encoder.own_features": 3, "data.feature_scaling": "column"}
    first = make_estimator(**used).fit(communities)
    asked = {"encoder.own_features": 0, "data.feature_scaling": "row", "train.steps": 5}
    warm = make_estimator(**asked).fit(communities, start_from=first, run=tmp_path / "run")
    assert (warm.recipe_.encoder.own_features, warm.recipe_.data.feature_scaling) == (3, "column")
    assert warm.recipe_.train.steps == 5
    assert warm.embed(communities).shape == (120, 8 + 4 * 3)
    assert gs.BGRL.load(tmp_path / "run").recipe_ == warm.recipe_


def test_a_norm_over_the_graph_is_embedded_whole() -> None:
    graph = make_communities(num_nodes=60, num_classes=3, seed=0)
    model = make_estimator(**{"encoder.norm": "graph", "train.steps": 2}).fit(graph)
    assert np.isfinite(model.embed(graph)).all()
    with pytest.raises(gs.InputError, match="without a norm over the graph"):
        model.embed(graph, how="layers")
