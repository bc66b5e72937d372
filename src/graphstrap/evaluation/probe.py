"""The linear probe: one-vs-rest logistic regression on frozen, l2-normalised embeddings.

    scores(node) = W [h / ||h||, 1],   class = argmax of the scores,   C in 2^{-10, -9, ..., 10}

How C is chosen is all that distinguishes the protocols of the paper and of its code (see `_choice.py`):

- paper: fit on the training nodes, keep the C that is best on the validation nodes, do not refit;
- reference code: five random halves of the training nodes, the C with the best mean accuracy on the other halves, then
  refit on all of the training nodes.

Of equally good values of C the smallest is taken, the most regularised, unless probabilities are wanted. A class
without a training node is never predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluation.fits import Fit, count_correct, fit_models, gather_counts, sum_log_losses
from graphstrap.evaluation.rows import Embeddings, Index, Rows, multiply

# Choosing C, for many probes at once.
#
# A sample with validation nodes has one trial: fit on its training nodes, count on the validation nodes; the best of
# these fits is the probe. One without has five: random halves of its training nodes; the C that is best in all of them
# together is fitted once more, on all of the training nodes. Of equally good values of C the smallest is taken; or,
# where probabilities are what is wanted, the one that finds the held-out labels most likely.


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


SOLVERS = ("newton", "liblinear")


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """A fitted probe: it normalises the rows that it is given by itself.

    Args:
        weights: (K, D + 1) float64, one row per class seen in training; the last column is the intercept.
        classes: (K,) their numbers, ascending.
        num_classes: how many classes there are, seen or not.
        strength: the C that was chosen.
    """

    weights: Tensor
    classes: Index
    num_classes: int
    strength: float

    def predict(self, h: Embeddings) -> Index:
        """(N,) int64: the most probable class of each row."""
        scores = self._scores(Rows.of(h))
        predicted: Index = self.classes[scores.argmax(dim=1).cpu().numpy()]
        return predicted

    def probabilities(self, h: Embeddings) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(N, num_classes): sigmoids of the scores, divided by their sum; 0 for a class without a training node."""
        sigmoids = torch.sigmoid(self._scores(Rows.of(h))).clamp(min=torch.finfo(torch.float64).tiny)
        answer = np.zeros((len(sigmoids), self.num_classes))
        answer[:, self.classes] = (sigmoids / sigmoids.sum(1, keepdim=True)).cpu().numpy()
        return answer

    def _scores(self, rows: Rows) -> Tensor:
        if rows.num_columns + 1 != self.weights.shape[1]:
            width = self.weights.shape[1] - 1
            raise InputError(f"the probe was fitted on {width} columns, h has {rows.num_columns}")
        weights = self.weights.to(rows.device)
        blocks = rows.blocks(np.arange(rows.num_rows), width=len(weights))
        return torch.cat([multiply(rows.take_with_constant(block), weights.T) for block in blocks])


def fit_probe(
    h: Embeddings,
    labels: Any,
    *,
    train: Any = None,
    val: Any = None,
    seed: int = 0,
    solver: str = "newton",
    num_classes: int | None = None,
    by_likelihood: bool = False,
) -> LinearProbe:
    """Fit a probe that can label the other nodes.

    Args:
        h: (N, D) embeddings.
        labels: (N,) integers, -1 for "none".
        train: node numbers or a boolean mask; None means every labelled node. Those without a label are left out.
        val: node numbers or a mask to choose C on; None means by random halves of `train`, drawn from `seed`.
        solver: "newton", or "liblinear" for scikit-learn's.
        num_classes: how many columns the probabilities get; None means as many as the labels show.
        by_likelihood: of equally accurate values of C, take the one that finds the held-out labels most likely. The
            smallest, which the protocols take, gives classes as good but says of each that it is hardly probable.
    """
    check_solver(solver)
    rows, numbers = Rows.of(h), label_numbers(labels)
    if len(numbers) != rows.num_rows:
        raise InputError(f"labels must have one entry for each of the {rows.num_rows} rows of h, got {len(numbers)}")
    train_nodes = _labelled(train, numbers, name="train")
    total = int(numbers.max()) + 1 if num_classes is None else num_classes
    val_nodes = train_nodes[:0] if val is None else _labelled(val, numbers, name="val")
    sample = Sample(rows, numbers, train_nodes, val_nodes, np.random.default_rng(seed))
    weights, classes, strength = choose_strengths([sample], solver=solver, by_likelihood=by_likelihood)[0]
    return LinearProbe(weights, classes, total, strength)


def check_solver(solver: str) -> None:
    if solver not in SOLVERS:
        raise InputError(f"solver must be one of {', '.join(SOLVERS)}, got {solver!r}")


def label_numbers(labels: Any) -> Index:
    """(N,) int64 on the CPU; several labels a node are refused."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim == 2:
        raise InputError(
            f"labels has {array.shape[1]} columns, several labels a node: take the protocol 'adamw' (micro-F1) or "
            "'adamw-reference'; this one wants one class number per node, -1 for none"
        )
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"labels must be one integer per node, got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


def _labelled(chosen: Any, labels: Index, *, name: str) -> Index:
    """The chosen nodes that have a label, as numbers."""
    nodes = np.arange(len(labels)) if chosen is None else np.asarray(chosen)
    if nodes.dtype == np.bool_:
        if nodes.shape != labels.shape:
            raise InputError(f"{name} as a mask must have the shape {labels.shape}, got {nodes.shape}")
        nodes = np.flatnonzero(nodes)
    if len(nodes) and (nodes.dtype.kind not in "iu" or len(np.unique(nodes)) < len(nodes)):
        raise InputError(f"{name} must be a boolean mask, or node numbers, each once")
    nodes = nodes.astype(np.int64)
    if len(nodes) and not 0 <= nodes.min() <= nodes.max() < len(labels):
        raise InputError(f"{name} must hold node numbers from 0 to {len(labels) - 1}")
    nodes = nodes[labels[nodes] >= 0]
    if len(nodes) == 0:
        raise InputError(f"{name} holds no labelled node: a probe needs some")
    return nodes
