"""Collapse, divergence and under-training are told from the log, and a healthy run is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphstrap.report.health import Gain, Health, check_health


def make_records(losses: Any, **columns: Any) -> list[dict[str, Any]]:
    rows = []
    for index, loss in enumerate(losses):
        row: dict[str, Any] = {"step": 1 + 10 * index, "loss": float(loss)}
        row |= {"spread": 1.0, "mean_norm": 5.0, "effective_rank": 60.0}
        rows.append(row | {name: float(values[index]) for name, values in columns.items()})
    return rows


FALLING = 0.5 + 1.5 * np.exp(-np.linspace(0, 8, 30))


def gain(points: float, error: float = 0.1) -> Gain:
    return Gain(points, error, 48)


def judge(records: list[dict[str, Any]], **options: Any) -> Health:
    return check_health(records, **{"steps": 300, "embedding_size": 128, "finished": True, **options})


def kinds(health: Health) -> list[str]:
    return [finding.kind for finding in health.findings]


def test_a_healthy_run_is_praised_in_a_sentence() -> None:
    health = judge(make_records(FALLING), gain=gain(12.3))
    assert health.verdict == "healthy"
    assert health.findings == ()
    assert "2.00 to 0.50" in health.headline
    assert "60 of its 128" in health.headline
    assert "12.3 points" in health.headline


@pytest.mark.parametrize("column", ["spread", "effective_rank"])
def test_collapse_is_the_headline_however_low_the_loss(column: str) -> None:
    records = make_records(FALLING - 0.5, **{column: np.geomspace(1 if column == "spread" else 60, 0.01, 30)})
    health = judge(records)
    assert health.verdict == "bad"
    assert kinds(health) == ["collapsed"]
    assert "collapsed" in health.headline
    assert health.findings[0].advice


def test_dimensions_that_random_weights_had_are_not_missed() -> None:
    ranks = np.concatenate([[105.0, 42.0, 25.0], np.full(27, 22.0)])
    assert judge(make_records(FALLING, effective_rank=ranks)).verdict == "healthy"


def test_lost_dimensions_are_a_warning() -> None:
    health = judge(make_records(FALLING, effective_rank=np.linspace(90, 20, 30)))
    assert (health.verdict, kinds(health)) == ("warning", ["shrinking"])


@pytest.mark.parametrize(
    "records",
    [
        [*make_records(FALLING), {"step": 301, "diverged": True}],
        make_records(np.linspace(1, 3, 30)),
        make_records(FALLING, mean_norm=np.geomspace(1, 1e6, 30)),
        [*make_records(FALLING), {"step": 301, "loss": float("nan")}],
    ],
)
def test_divergence_is_found(records: list[dict[str, Any]]) -> None:
    health = judge(records, finished=False)
    assert health.verdict == "bad"
    assert kinds(health)[0] == "diverged"
    assert "learning_rate" in health.findings[0].advice


def test_a_loss_that_still_falls_is_undertrained_and_one_that_flattens_is_not() -> None:
    assert kinds(judge(make_records(np.linspace(2, 1, 30)))) == ["undertrained"]
    assert kinds(judge(make_records(np.full(30, 2.0)))) == ["undertrained"]
    assert kinds(judge(make_records(FALLING))) == []


def test_noise_at_the_end_is_not_taken_for_progress() -> None:
    noise = np.random.default_rng(0).normal(0, 0.04, 30)
    assert kinds(judge(make_records(FALLING + noise))) == []


def test_training_that_adds_nothing_is_said_so() -> None:
    health = judge(make_records(FALLING), gain=gain(-2.0))
    assert kinds(health) == ["nothing added"]
    assert "--set encoder.own_weight=4" in health.findings[0].advice  # own columns are there by default
    assert kinds(judge(make_records(FALLING), gain=gain(3.0))) == []


def test_a_gain_that_chance_may_give_is_not_praised() -> None:
    doubtful = judge(make_records(FALLING), gain=gain(9.0, error=5.0))
    assert doubtful.verdict == "healthy"
    assert "on 48 test nodes it cannot be told apart from an untrained encoder (+9.0 points)" in doubtful.headline
    assert "beats" not in doubtful.headline
    assert "beats an untrained encoder by 11.0 points" in judge(make_records(FALLING), gain=gain(11.0, 5.0)).headline
    assert "on 48 test nodes cannot be told from none" in judge(make_records(FALLING), gain=gain(-9.0, 5.0)).headline
    assert "cannot be told" not in judge(make_records(FALLING), gain=gain(-11.0, 5.0)).headline


def test_a_cut_run_is_unfinished_not_undertrained() -> None:
    health = judge(make_records(np.linspace(2, 1, 10)), finished=False)
    assert kinds(health) == ["unfinished"]
    assert "91 of 300" in health.headline


def test_the_worst_finding_is_the_headline() -> None:
    health = judge(make_records(np.linspace(2, 1, 30), spread=np.zeros(30)), gain=gain(0.0))
    assert health.verdict == "bad"
    assert kinds(health) == ["collapsed", "undertrained", "nothing added"]


def test_nothing_logged_is_no_reason_to_fail() -> None:
    assert judge([]).verdict == "healthy"
    assert kinds(judge([], finished=False)) == ["unfinished"]
