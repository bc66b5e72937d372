"""The loop: learns, logs, stops cleanly, and resumes bit for bit wherever it is cut."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import train
from torch import Tensor

from graphstrap.errors import DivergedError, InterruptedTrainingError
from graphstrap.graph import Graph, View
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.bgrl import BGRL
from graphstrap.ops.adamw import AdamW
from graphstrap.run.folder import Run
from graphstrap.run.recipe import Recipe

SETTINGS = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "method.predictor_hidden_size": 16,
    "train.steps": 30,
    "train.warmup_steps": 3,
    "train.learning_rate": 0.01,
    "train.log_every": 5,
}


def recipe(**more: Any) -> Recipe:
    return Recipe().with_settings({**SETTINGS, **{f"train.{key}": value for key, value in more.items()}})


def make_run(folder: Path, graph: Graph, **more: Any) -> Run:
    return Run.create(folder, recipe=recipe(**more), source={}, seed=0, device="cpu", graph=graph)


def make_method(graph: Graph, **more: Any) -> BGRL:
    method: BGRL = build_method(recipe(**more), input_sizes=graph.num_features, seed=0)
    return method


class StopAt(BGRL):
    """Fails, or gets a signal, in the middle of a given step."""

    stop_step = 0
    how = "error"

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, dict[str, Tensor]]:
        self.count = getattr(self, "count", 0) + 1
        if self.count == self.stop_step and self.how == "error":
            raise RuntimeError("power cut")
        if self.count == self.stop_step:
            os.kill(os.getpid(), signal.SIGINT if self.how == "interrupt" else signal.SIGTERM)
        return super().loss(batch, views)


def stopping(method: BGRL, *, step: int, how: str) -> StopAt:
    method.__class__ = StopAt
    assert isinstance(method, StopAt)
    method.stop_step, method.how = step, how
    return method


def states_equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(s, t) for (a, s), (b, t) in pairs)


def test_training_is_repeatable_and_lowers_the_loss(communities: Graph) -> None:
    first, second = make_method(communities), make_method(communities)
    records = train(first, communities, recipe=recipe(), seed=0)
    assert records[-1]["loss"] < records[0]["loss"]
    assert [record["step"] for record in records] == [1, 5, 10, 15, 20, 25, 30]
    train(second, communities, recipe=recipe(), seed=0)
    assert states_equal(first, second)


def test_another_seed_gives_other_views(communities: Graph) -> None:
    first, second = make_method(communities), make_method(communities)
    train(first, communities, recipe=recipe(), seed=0)
    train(second, communities, recipe=recipe(), seed=1)
    assert not states_equal(first, second)


@pytest.mark.parametrize("cuts", [[7], [1], [30], [4, 3, 9, 2, 8]])
def test_resumed_equals_uninterrupted(communities: Graph, tmp_path: Path, cuts: list[int]) -> None:
    whole = make_method(communities)
    expected = train(whole, communities, recipe=recipe(), seed=0)
    run = make_run(tmp_path / "run", communities, checkpoint_seconds=0.0)
    for cut in cuts:
        broken = stopping(make_method(communities), step=cut, how="error")
        with pytest.raises(RuntimeError, match="power cut"):
            train(broken, communities, recipe=recipe(checkpoint_seconds=0.0), seed=0, run=Run.open(run.folder))
    resumed = make_method(communities)
    train(resumed, communities, recipe=recipe(checkpoint_seconds=0.0), seed=0, run=Run.open(run.folder))
    assert states_equal(whole, resumed)
    timeless = [{k: v for k, v in record.items() if k != "steps_per_second"} for record in run.metrics()]
    assert timeless == [{k: v for k, v in record.items() if k != "steps_per_second"} for record in expected]


@pytest.mark.parametrize("how", ["interrupt", "terminate"])
def test_a_signal_finishes_the_step_and_saves(communities: Graph, tmp_path: Path, how: str) -> None:
    run = make_run(tmp_path / "run", communities)
    stopped = stopping(make_method(communities), step=12, how=how)
    with pytest.raises(InterruptedTrainingError) as stop:
        train(stopped, communities, recipe=recipe(), seed=0, run=run)
    assert stop.value.step == 12
    whole, resumed = make_method(communities), make_method(communities)
    train(whole, communities, recipe=recipe(), seed=0)
    train(resumed, communities, recipe=recipe(), seed=0, run=run)
    assert states_equal(whole, resumed)


def test_a_signal_after_the_step_saves_as_well(communities: Graph, tmp_path: Path) -> None:
    """It comes while step 14 is noted, when what that step saves is decided already."""
    settings = {"evaluate_every": 7}
    run = make_run(tmp_path / "run", communities, **settings)
    method, calls = make_method(communities), iter(range(4))

    def interrupt_second(method: object) -> dict[str, Any]:
        if next(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return {}

    with pytest.raises(InterruptedTrainingError) as stop:
        train(method, communities, recipe=recipe(**settings), seed=0, run=run, evaluate=interrupt_second)
    saved = make_method(communities)
    assert run.restore(saved, AdamW([p for p in saved.parameters() if p.requires_grad])) == stop.value.step == 15
    assert states_equal(method, saved)


def test_a_loss_that_is_no_number_stops_training_and_keeps_the_last_good_checkpoint(
    communities: Graph, tmp_path: Path
) -> None:
    class Poisoned(BGRL):
        def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, dict[str, Tensor]]:
            self.count = getattr(self, "count", 0) + 1
            loss, stats = super().loss(batch, views)
            return (loss * float("nan"), stats) if self.count == 8 else (loss, stats)

    run = make_run(tmp_path / "run", communities, checkpoint_seconds=0.0)
    method = make_method(communities)
    method.__class__ = Poisoned
    with pytest.raises(DivergedError, match=r"step 8.*learning_rate"):
        train(method, communities, recipe=recipe(checkpoint_seconds=0.0), seed=0, run=run)
    assert run.metrics()[-1] == {"step": 8, "diverged": True}
    good = make_method(communities)
    optimizer = AdamW([p for p in good.parameters() if p.requires_grad])
    assert run.restore(good, optimizer) == 7
    assert all(bool(tensor.isfinite().all()) for tensor in good.state_dict().values())


def test_evaluation_while_training_is_logged(communities: Graph) -> None:
    records = train(
        make_method(communities),
        communities,
        recipe=recipe(evaluate_every=7),
        seed=0,
        evaluate=lambda method: {"accuracy": 12.5},
    )
    assert [record["step"] for record in records if "accuracy" in record] == [7, 14, 21, 28, 30]


def test_a_clock_that_jumps_moves_no_checkpoint(
    communities: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of day runs back and forth by days; checkpoints go by a clock that never does."""
    days = iter(range(10**6))
    monkeypatch.setattr("time.time", lambda: 86_400.0 * (-1) ** next(days) * next(days))
    saved: list[int] = []
    monkeypatch.setattr(Run, "checkpoint", lambda self, module, optimizer, step: saved.append(step))
    train(
        make_method(communities),
        communities,
        recipe=recipe(checkpoint_seconds=3600.0),
        seed=0,
        run=make_run(tmp_path / "run", communities, checkpoint_seconds=3600.0),
    )
    assert saved == [30]


def test_speed_is_that_of_training_alone(communities: Graph) -> None:
    slept = []

    def dawdle(method: object) -> dict[str, Any]:
        started = time.perf_counter()
        time.sleep(0.3)
        slept.append(time.perf_counter() - started)
        return {}

    started = time.perf_counter()
    records = train(make_method(communities), communities, recipe=recipe(evaluate_every=10), seed=0, evaluate=dawdle)
    total = time.perf_counter() - started
    seconds = sum(5 / record["steps_per_second"] for record in records if record["step"] > 1)
    assert len(slept) >= 3
    assert seconds <= (total - sum(slept)) * 1.1  # speeds are rounded; with the sleep it would be about twice as much
