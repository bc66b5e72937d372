"""Monitors tell a healthy embedding from a collapsed one."""

from __future__ import annotations

import pytest
import torch

from graphstrap.train.log import monitor_embeddings


def test_collapsed_embeddings_have_no_spread() -> None:
    values = monitor_embeddings(torch.ones(50, 8))
    assert values["spread"] == pytest.approx(0, abs=1e-6)
    assert values["mean_norm"] == pytest.approx(8**0.5)


def test_effective_rank_counts_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    isotropic = torch.randn(5000, 8, generator=generator)
    assert monitor_embeddings(isotropic)["effective_rank"] == pytest.approx(8, abs=0.1)
    line = torch.randn(5000, 1, generator=generator) @ torch.randn(1, 8, generator=generator)
    assert monitor_embeddings(line)["effective_rank"] == pytest.approx(1, abs=0.01)


def test_spread_ignores_scale() -> None:
    h = torch.randn(100, 8, generator=torch.Generator().manual_seed(1))
    one, ten = monitor_embeddings(h), monitor_embeddings(10 * h)
    assert one["spread"] == pytest.approx(ten["spread"], rel=1e-5)
    assert ten["mean_norm"] == pytest.approx(10 * one["mean_norm"], rel=1e-5)
