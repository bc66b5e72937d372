"""Roots of a step: every candidate once an epoch, never twice in a batch, and a function of (seed, step)."""

from __future__ import annotations

import pytest
import torch

from graphstrap.train.batches import roots_at
from graphstrap.train.sampling.draw import permuted


@pytest.mark.parametrize("size", [1, 2, 3, 10, 99, 100, 101, 1023, 4097])
def test_an_order_holds_every_number_once(size: int) -> None:
    assert torch.equal(permuted(torch.arange(size), size=size, seed=7).sort().values, torch.arange(size))


def test_every_number_is_equally_likely_at_every_place() -> None:
    size, num_orders = 12, 3000
    counts = torch.zeros(size, size)
    for seed in range(num_orders):
        counts[torch.arange(size), permuted(torch.arange(size), size=size, seed=seed)] += 1
    expected = num_orders / size
    assert float(((counts - expected) ** 2 / expected).sum()) < 174  # 121 degrees of freedom, 99.9 %


def test_an_epoch_visits_every_candidate_once() -> None:
    candidates = torch.arange(100, 160)
    visited = torch.cat([roots_at(step, candidates=candidates, batch_size=15, seed=3) for step in range(1, 5)])
    assert torch.equal(visited.sort().values, candidates)
    second = torch.cat([roots_at(step, candidates=candidates, batch_size=15, seed=3) for step in range(5, 9)])
    assert torch.equal(second.sort().values, candidates)
    assert not torch.equal(visited, second)


@pytest.mark.parametrize(("size", "batch_size"), [(7, 4), (10, 9), (5, 5), (5, 50), (1000, 7)])
def test_a_batch_has_no_node_twice_across_the_end_of_an_epoch(size: int, batch_size: int) -> None:
    for step in range(1, 60):
        roots = roots_at(step, candidates=size, batch_size=batch_size, seed=0)
        assert len(roots) == len(torch.unique(roots)) == min(size, batch_size)
        assert torch.equal(roots, roots_at(step, candidates=size, batch_size=batch_size, seed=0))
