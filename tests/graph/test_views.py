"""Laws of the hash: the same bits everywhere, the right rate, no relation between seeds."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstrap.graph.views import child_seed, drop_threshold, hash32, keep, mix

seeds = st.integers(0, 2**63 - 1)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, start=st.integers(0, 2**62))
def test_python_numpy_and_torch_give_the_same_bits(seed: int, start: int) -> None:
    ids = [start + 7 * k for k in range(50)]
    expected = [hash32(i, seed) for i in ids]
    assert hash32(np.array(ids, dtype=np.int64), seed).tolist() == expected
    assert hash32(torch.tensor(ids), seed).tolist() == expected
    assert hash32(torch.tensor(ids), torch.tensor(seed)).tolist() == expected


def test_known_bits() -> None:
    """Golden values: a change of the hash would silently change every published number."""
    assert [hash32(i, 42) for i in range(4)] == [2715240501, 1867341340, 3154600757, 1946101172]
    assert hash32(2**40 + 5, 2**50 + 3) == 584292460


@settings(max_examples=20, deadline=None)
@given(seed=seeds, drop_prob=st.floats(0, 1))
def test_drop_rate_is_within_its_binomial_bound(seed: int, drop_prob: float) -> None:
    count = 20_000
    kept = int(keep(torch.arange(count), seed, drop_threshold(drop_prob)).sum())
    assert abs(kept - count * (1 - drop_prob)) <= 6 * np.sqrt(count * drop_prob * (1 - drop_prob)) + 1e-6


def test_nothing_is_dropped_at_zero_and_everything_at_one() -> None:
    ids = torch.arange(10_000)
    assert bool(keep(ids, 5, drop_threshold(0.0)).all())
    assert not bool(keep(ids, 5, drop_threshold(1.0)).any())


def test_mix_is_a_bijection_on_a_sample() -> None:
    words = torch.arange(1_000_000)
    assert len(torch.unique(mix(words))) == len(words)


def test_neighbouring_seeds_are_unrelated() -> None:
    ids = torch.arange(50_000)
    for high_bit in (1, 2**20, 2**40):
        agree = (keep(ids, 7, drop_threshold(0.5)) == keep(ids, 7 ^ high_bit, drop_threshold(0.5))).float().mean()
        assert abs(float(agree) - 0.5) < 0.02


def test_ids_beyond_32_bits_are_told_apart() -> None:
    low = torch.arange(50_000)
    agree = (keep(low, 3, drop_threshold(0.5)) == keep(low + 2**32, 3, drop_threshold(0.5))).float().mean()
    assert abs(float(agree) - 0.5) < 0.02


def test_per_id_thresholds() -> None:
    ids = torch.arange(40_000)
    drop_prob = torch.where(ids % 2 == 0, 0.1, 0.9)
    kept = keep(ids, 11, drop_threshold(drop_prob)).float()
    assert abs(float(kept[::2].mean()) - 0.9) < 0.02
    assert abs(float(kept[1::2].mean()) - 0.1) < 0.02
    assert np.array_equal(drop_threshold(drop_prob.numpy()), drop_threshold(drop_prob).numpy())


def test_children_of_a_seed_differ_and_repeat() -> None:
    children = {child_seed(0, step, view) for step in range(1000) for view in range(2)}
    assert len(children) == 2000
    assert child_seed(0, 3, 1) == child_seed(0, 3, 1) != child_seed(1, 3, 1)
    assert all(0 <= child < 2**63 for child in children)


@settings(max_examples=20, deadline=None)
@given(seed=seeds, size=st.integers(32_760, 100_000), stride=st.sampled_from([5, 2**40 + 3]), by_column=st.booleans())
def test_many_ids_are_asked_in_parts_with_the_same_answers(seed: int, size: int, stride: int, by_column: bool) -> None:
    ids = torch.arange(2 * size).reshape(size, 2) * stride
    before = ids.clone()
    threshold = drop_threshold(torch.tensor([0.2, 0.7])) if by_column else drop_threshold(0.4)
    assert torch.equal(keep(ids, seed, threshold), hash32(ids, seed) >= threshold)
    assert torch.equal(keep(ids.T, seed, 1 << 31), hash32(ids.T, seed) >= 1 << 31)
    assert torch.equal(ids, before)
