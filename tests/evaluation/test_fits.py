"""Laws of the batches: how fits are put together, and whose axes they use, changes no answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphstrap.evaluation import fits as _fits
from graphstrap.evaluation import newton as _newton
from graphstrap.evaluation.fits import Fit, count_correct, fit_models, gather_counts
from graphstrap.evaluation.rows import Rows

STRENGTHS = (0.25, 32.0)


def make_fits(*, num_embeddings: int = 2) -> list[Fit]:
    """Splits of two sizes, one of them without the last class, of some embeddings of the same 90 nodes."""
    random = np.random.default_rng(0)
    labels = np.arange(90) % 3
    fits = []
    for _ in range(num_embeddings):
        rows = Rows.of(np.eye(3, 5)[labels] + 0.6 * random.standard_normal((90, 5)))
        for size in (30, 40, 30):
            fits.append(Fit(rows, labels, random.permutation(90)[:size], STRENGTHS))
        fits.append(Fit(rows, labels, np.flatnonzero(labels < 2)[:30], STRENGTHS))
    return fits


def solve(fits: list[Fit]) -> list[Tensor]:
    found = dict(fit_models(fits, solver="newton"))
    assert sorted(found) == list(range(len(fits)))
    return [found[place] for place in range(len(fits))]


def batch_sizes(fits: list[Fit], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    whole = _newton.fit_together

    def record(axes: Any, *args: Any, **rest: Any) -> Any:
        sizes.append(len(axes))
        return whole(axes, *args, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(_newton, "fit_together", record)
        solve(fits)
    return sizes


def test_fits_alike_are_solved_together_as_far_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = make_fits()
    assert batch_sizes(fits, monkeypatch) == [4, 2, 2]
    monkeypatch.setattr(_newton, "BATCH_ENTRIES", 3 * fits[0].num_entries)
    assert batch_sizes(fits, monkeypatch) == [3, 1, 2, 2]
    monkeypatch.setattr(_newton, "BATCH_ENTRIES", 1)
    assert batch_sizes(fits, monkeypatch) == [1] * 8


def test_batches_change_nothing_beyond_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = make_fits()
    together = solve(fits)
    monkeypatch.setattr(_newton, "BATCH_ENTRIES", 1)
    for one, other in zip(together, solve(fits), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
    assert [len(fit.classes) for fit in fits] == [3, 3, 3, 2] * 2
    assert [weights.shape[1] for weights in together] == [3, 3, 3, 2] * 2


def test_axes_of_another_split_change_nothing_beyond_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = make_fits()
    own = solve(fits)
    monkeypatch.setattr(_fits, "shares_axes", lambda rows: True)
    assert len(_fits._shared_directions(fits)) == 2
    for one, other in zip(own, solve(fits), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


def test_counts_are_those_of_the_classes_that_the_scores_name() -> None:
    fits = make_fits(num_embeddings=1)
    for fit, weights in zip(fits, solve(fits), strict=True):
        nodes = np.setdiff1d(np.arange(90), fit.nodes)
        scores = fit.rows.take_with_constant(nodes) @ weights.transpose(1, 2)  # (S, N, K)
        expected = (fit.classes[scores.argmax(2).numpy()] == fit.labels[nodes]).sum(1)
        found = count_correct(fit.rows, fit.labels, nodes=nodes, weights=weights, classes=fit.classes)
        np.testing.assert_array_equal(gather_counts([found])[0], expected)
