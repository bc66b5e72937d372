"""The learning rate of the paper's appendix."""

from __future__ import annotations

import math

import pytest

from graphstrap.train.step import learning_rate_at


def test_schedule_is_the_papers() -> None:
    for step in (1, 500, 1_000, 5_500, 9_999):
        if step <= 1_000:
            expected = step * 5e-4 / 1_000
        else:
            expected = 5e-4 * (1 + math.cos((step - 1_000) * math.pi / 9_000)) * 0.5
        assert learning_rate_at(step, base=5e-4, warmup_steps=1_000, total_steps=10_000) == pytest.approx(expected)


def test_ends_at_zero_and_needs_no_warmup() -> None:
    assert learning_rate_at(100, base=1.0, warmup_steps=10, total_steps=100) == pytest.approx(0, abs=1e-12)
    assert learning_rate_at(0, base=1.0, warmup_steps=0, total_steps=100) == 1.0
    assert learning_rate_at(5, base=1.0, warmup_steps=5, total_steps=5) == 1.0


def test_a_constant_rate_is_constant_after_the_warm_up() -> None:
    rates = [learning_rate_at(s, base=0.1, warmup_steps=4, total_steps=20, schedule="constant") for s in range(21)]
    assert rates[:5] == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1])
    assert set(rates[4:]) == {0.1}
