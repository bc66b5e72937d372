"""Choosing C, for many probes at once.

A sample with validation nodes has one trial: fit on its training nodes, count on the validation nodes; the best of
these fits is the probe. One without has five: random halves of its training nodes; the C that is best in all of them
together is fitted once more, on all of the training nodes. Of equally good values of C the smallest is taken; or, where
probabilities are what is wanted, the one that finds the held-out labels most likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluate._fits import Fit, count_correct, fit_models, gather_counts, sum_log_losses
from graphstrap.evaluate._rows import Index, Rows

STRENGTHS = tuple(2.0**power for power in range(-10, 11))  # C, as in the paper's appendix on evaluation
NUM_HALVES = 5


@dataclass(frozen=True, eq=False)
class Sample:
    """What a probe is fitted to."""

    rows: Rows
    labels: Index  # (N,) of all nodes
    train: Index
    val: Index  # none: choose C by halves of `train`
    generator: np.random.Generator  # of the halves


class Chosen(NamedTuple):
    weights: Tensor  # (K, D + 1)
    classes: Index  # (K,)
    strength: float

    def count_correct(self, sample: Sample, nodes: Index) -> Tensor:
        """() how many of the nodes are put into their class; nobody waits for it."""
        weights = self.weights[None]
        return count_correct(sample.rows, sample.labels, nodes=nodes, weights=weights, classes=self.classes)[0]


class _Trial(NamedTuple):
    sample: int
    fit: Fit
    held_out: Index


class _Outcome(NamedTuple):
    counts: Tensor  # (S,) nodes that each C puts right
    losses: Tensor  # (S,) what decides between equal counts: the smallest, of which the first
    weights: Tensor  # (K, D + 1) of the best C of this trial


def choose_strengths(samples: Sequence[Sample], *, solver: str, by_likelihood: bool = False) -> list[Chosen]:
    """The probe of each sample; `by_likelihood` says how equally good values of C are told apart."""
    trials = [trial for place, sample in enumerate(samples) for trial in _trials(place, sample)]
    outcomes = _try(trials, solver=solver, by_likelihood=by_likelihood)
    totals = np.zeros((len(samples), len(STRENGTHS)), dtype=np.int64)
    np.add.at(totals, [trial.sample for trial in trials], gather_counts([outcome.counts for outcome in outcomes]))
    losses = np.zeros(totals.shape)
    if by_likelihood:
        np.add.at(losses, [trial.sample for trial in trials], gather_counts([outcome.losses for outcome in outcomes]))
    best = [STRENGTHS[int(_best(*both))] for both in zip(*map(torch.from_numpy, (totals, losses)), strict=True)]
    found = {
        trial.sample: Chosen(outcome.weights, trial.fit.classes, best[trial.sample])
        for trial, outcome in zip(trials, outcomes, strict=True)
        if len(samples[trial.sample].val)
    }
    again = [place for place in range(len(samples)) if place not in found]
    fits = [Fit(samples[place].rows, samples[place].labels, samples[place].train, (best[place],)) for place in again]
    for number, weights in fit_models(fits, solver=solver):
        found[again[number]] = Chosen(weights[0], fits[number].classes, best[again[number]])
    return [found[place] for place in range(len(samples))]


def _trials(place: int, sample: Sample) -> list[_Trial]:
    if len(sample.val):
        return [_Trial(place, Fit(sample.rows, sample.labels, sample.train, STRENGTHS), sample.val)]
    if len(sample.train) < 2:
        raise InputError(f"choosing C by halves needs at least 2 labelled training nodes, got {len(sample.train)}")
    trials = []
    for _ in range(NUM_HALVES):
        order = sample.generator.permutation(sample.train)
        fitted, held_out = np.split(order, [len(order) // 2])
        trials.append(_Trial(place, Fit(sample.rows, sample.labels, fitted, STRENGTHS), held_out))
    return trials


def _try(trials: Sequence[_Trial], *, solver: str, by_likelihood: bool) -> list[_Outcome]:
    outcomes: dict[int, _Outcome] = {}
    for place, weights in fit_models([trial.fit for trial in trials], solver=solver):
        fit, held_out = trials[place].fit, trials[place].held_out
        counts = count_correct(fit.rows, fit.labels, nodes=held_out, weights=weights, classes=fit.classes)
        losses = torch.zeros(len(counts), dtype=torch.float64, device=counts.device)
        if by_likelihood:
            losses = sum_log_losses(fit.rows, fit.labels, nodes=held_out, weights=weights, classes=fit.classes)
        outcomes[place] = _Outcome(counts, losses, weights.index_select(0, _best(counts, losses))[0])
    return [outcomes[place] for place in range(len(trials))]


def _best(counts: Tensor, losses: Tensor) -> Tensor:
    """(1,) the place of the smallest loss among the highest counts; of several the first."""
    return losses.masked_fill(counts < counts.max(), torch.inf).argmin(0, keepdim=True)
