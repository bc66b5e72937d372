"""The linear probe: one-vs-rest logistic regression on frozen, l2-normalised embeddings.

    scores(node) = W [h / ||h||, 1],   class = argmax of the scores,   C in 2^{-10, -9, ..., 10}

How C is chosen is all that distinguishes the protocols of the paper and of its code:

- paper: fit on the training nodes, keep the C that is best on the validation nodes, do not refit;
- reference code: five random halves of the training nodes, the C with the best mean accuracy on the other halves, then
  refit on all of the training nodes.

Of equally good values of C the smallest is taken, the most regularised; or, where probabilities are wanted, the one
that finds the held-out labels most likely. A class without a training node is never predicted.

Probes with the same number of nodes and classes are fitted together by Newton's method, as many as memory allows:
splits of one graph are such. Liblinear, which the paper's code uses, is the yardstick. It is also faster for many
sparse rows, such as raw bag-of-words features: its cost follows the non-zero entries, Newton's follows rows times rank
(measured in docs/LOG.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluation import newton as _newton
from graphstrap.evaluation.task import Array, Block, Embeddings, Index, Vectors, label_numbers, multiply

STRENGTHS = tuple(2.0**power for power in range(-10, 11))  # C, as in the paper's appendix on evaluation
NUM_HALVES = 5
SOLVERS = ("newton", "liblinear")
MAX_ROW_SPACE = 500  # sparse rows that Newton's method takes; more of them are faster by liblinear


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """A fitted probe: it normalises the rows that it is given by itself."""

    weights: Tensor  # (K, D + 1) float64, one row per class seen in training; the last column is the intercept
    classes: Index  # (K,) their numbers, ascending
    num_classes: int  # seen or not
    strength: float  # the C that was chosen

    def predict(self, h: Embeddings) -> Index:
        """(N,) int64: the most probable class of each row."""
        predicted: Index = self.classes[self._scores(h).argmax(dim=1).cpu().numpy()]
        return predicted

    def probabilities(self, h: Embeddings) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(N, num_classes): sigmoids of the scores, divided by their sum; 0 for a class without a training node."""
        sigmoids = torch.sigmoid(self._scores(h)).clamp(min=torch.finfo(torch.float64).tiny)
        answer = np.zeros((len(sigmoids), self.num_classes))
        answer[:, self.classes] = (sigmoids / sigmoids.sum(1, keepdim=True)).cpu().numpy()
        return answer

    def _scores(self, h: Embeddings) -> Tensor:
        vectors, width = Vectors.of(h), self.weights.shape[1] - 1
        if vectors.num_columns != width:
            raise InputError(f"the probe was fitted on {width} columns, h has {vectors.num_columns}")
        weights = self.weights.to(vectors.device)[None]
        return torch.cat([scores[:, 0] for _, scores in _scores(vectors, np.arange(vectors.num_nodes), weights)])


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
    vectors, numbers = Vectors.of(h), label_numbers(labels)
    if len(numbers) != vectors.num_nodes:
        raise InputError(f"labels must have an entry for each of the {vectors.num_nodes} rows of h, got {len(numbers)}")
    train_nodes = _labelled(train, numbers, name="train")
    total = int(numbers.max()) + 1 if num_classes is None else num_classes
    val_nodes = train_nodes[:0] if val is None else _labelled(val, numbers, name="val")
    sample = Sample(Fit(vectors, numbers, train_nodes), val_nodes, total, np.random.default_rng(seed))
    return choose_strengths([sample], solver=solver, by_likelihood=by_likelihood)[0]


def check_solver(solver: str) -> None:
    if solver not in SOLVERS:
        raise InputError(f"solver must be one of {', '.join(SOLVERS)}, got {solver!r}")


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


@dataclass(frozen=True, eq=False)
class Sample:
    """What a probe is fitted to, and how its C is chosen."""

    fit: Fit  # of every C
    val: Index  # none: choose C by halves of the nodes to fit
    num_classes: int
    generator: np.random.Generator  # of the halves

    def trials(self) -> Iterator[tuple[Fit, Index]]:
        """What to fit in order to choose C, and the nodes to try each fit on."""
        nodes = self.fit.nodes
        if len(self.val):
            yield self.fit, self.val
            return
        if len(nodes) < 2:
            raise InputError(f"choosing C by halves needs at least 2 labelled training nodes, got {len(nodes)}")
        for _ in range(NUM_HALVES):
            fitted, held_out = np.split(self.generator.permutation(nodes), [len(nodes) // 2])
            yield replace(self.fit, nodes=fitted), held_out


def choose_strengths(samples: Sequence[Sample], *, solver: str, by_likelihood: bool = False) -> list[LinearProbe]:
    """The probe of each sample; `by_likelihood` says how equally good values of C are told apart.

    A sample with validation nodes has one trial: the best of its fits is the probe. One without has five, halves of its
    training nodes: the C that is best in all of them together is fitted once more, on all of the training nodes.
    """
    trials = [(place, *trial) for place, sample in enumerate(samples) for trial in sample.trials()]
    outcomes, chosen = {}, {}
    for number, weights in fit_models([fit for _, fit, _ in trials], solver=solver):
        place, fit, held_out = trials[number]
        counts = count_correct(fit, weights, held_out).double()
        losses = _sum_log_losses(fit, weights, held_out) if by_likelihood else torch.zeros_like(counts)
        outcomes[number] = torch.stack([counts, losses])
        if len(samples[place].val):
            chosen[place] = weights.index_select(0, _best(counts, losses))[0]
    totals = np.zeros((len(samples), 2, len(STRENGTHS)))
    np.add.at(totals, [place for place, _, _ in trials], gather_counts([outcomes[one] for one in range(len(trials))]))
    best = [STRENGTHS[int(_best(*total))] for total in torch.from_numpy(totals)]
    again = [place for place in range(len(samples)) if place not in chosen]
    fits = [replace(samples[place].fit, strengths=(best[place],)) for place in again]
    for number, weights in fit_models(fits, solver=solver):
        chosen[again[number]] = weights[0]
    return [
        LinearProbe(chosen[place], sample.fit.classes, sample.num_classes, best[place])
        for place, sample in enumerate(samples)
    ]


def _best(counts: Tensor, losses: Tensor) -> Tensor:
    """(1,) the place of the smallest loss among the highest counts; of several the first."""
    return losses.masked_fill(counts < counts.max(), torch.inf).argmin(0, keepdim=True)


def _scores(vectors: Vectors, nodes: Index, weights: Tensor) -> Iterator[tuple[Index, Tensor]]:
    """Blocks of `nodes` and their scores (B, S, K) by each of the S probes in `weights` (S, K, D + 1)."""
    num_probes, num_seen, _ = weights.shape
    flat = weights.flatten(0, 1).T  # (D + 1, S K)
    for block in vectors.blocks(nodes, width=num_probes * num_seen):
        yield block, multiply(vectors.take_with_constant(block), flat).view(len(block), num_probes, num_seen)


def count_correct(fit: Fit, weights: Tensor, nodes: Index) -> Tensor:
    """(S,) how many of `nodes` each of the S probes in the fit's `weights` (S, K, D + 1) puts into their class.

    It stays on the device of the vectors, so that nobody has to wait for it.
    """
    known = torch.from_numpy(fit.classes).to(weights.device)
    count = torch.zeros(len(weights), dtype=torch.int64, device=weights.device)
    for block, scores in _scores(fit.vectors, nodes, weights):
        truth = torch.from_numpy(fit.labels[block]).to(weights.device)
        count += (known[scores.argmax(dim=2)] == truth[:, None]).sum(0)
    return count


def _sum_log_losses(fit: Fit, weights: Tensor, nodes: Index) -> Tensor:
    """(S,) minus the log-probability that each of the S probes gives to the class of `nodes`, summed over those of a
    class that it knows. Probabilities are sigmoids of the scores, divided by their sum."""
    nodes = nodes[np.isin(fit.labels[nodes], fit.classes)]
    loss = torch.zeros(len(weights), dtype=torch.float64, device=weights.device)
    for block, scores in _scores(fit.vectors, nodes, weights):
        truth = torch.from_numpy(np.searchsorted(fit.classes, fit.labels[block])).to(weights.device)
        log_sigmoids = torch.nn.functional.logsigmoid(scores.double())
        of_truth = log_sigmoids.gather(2, truth[:, None, None].expand(-1, len(weights), 1))[:, :, 0]
        loss += (log_sigmoids.logsumexp(2) - of_truth).sum(0)
    return loss


def gather_counts(counts: Sequence[Tensor]) -> Array:
    """Tensors of one shape as an array on the host; the only wait for all."""
    return torch.stack([one.to(counts[0].device) for one in counts]).cpu().numpy()


@dataclass(frozen=True, eq=False)
class Fit:
    """One-vs-rest models to be fitted to `nodes`, one for every C in `strengths`."""

    vectors: Vectors
    labels: Index  # (N,) of all nodes
    nodes: Index
    strengths: tuple[float, ...] = STRENGTHS

    @cached_property
    def classes(self) -> Index:
        """(K,) those that `nodes` show, ascending."""
        return np.unique(self.labels[self.nodes])

    @cached_property
    def numbers(self) -> Tensor:
        """The class of each of `nodes`, from 0 to K - 1."""
        return torch.from_numpy(np.searchsorted(self.classes, self.labels[self.nodes]))

    @property
    def num_entries(self) -> int:
        """Of the largest array that a solver makes of it."""
        width = self.vectors.num_columns + 1
        num_problems = len(self.strengths) * len(self.classes)
        return max(len(self.nodes) * max(num_problems, width), num_problems * width)

    def axes(self, directions: Tensor | None = None) -> _newton.Axes:
        with _newton.threads_for(len(self.nodes) * (self.vectors.num_columns + 1) ** 2):
            return _newton.principal_axes(self.vectors.take_with_constant(self.nodes), directions=directions)


def fit_models(fits: Sequence[Fit], *, solver: str) -> Iterator[tuple[int, Tensor]]:
    """Each fit's place and its weights (S, K, D + 1), batch by batch: not in the order of `fits`."""
    by_newton = []
    for place, fit in enumerate(fits):
        if solver == "liblinear" or (fit.vectors.is_sparse and len(fit.nodes) > MAX_ROW_SPACE):
            x = fit.vectors.take_with_constant(fit.nodes)
            yield place, fit_by_liblinear(x, fit.numbers, num_classes=len(fit.classes), strengths=fit.strengths)
        else:
            by_newton.append(place)
    directions = _shared_directions([fits[place] for place in by_newton])
    for places in _batches(fits, by_newton):
        batch = [fits[place] for place in places]
        weights = _newton.fit_together(
            [fit.axes(directions.get(id(fit.vectors))) for fit in batch],
            torch.stack([fit.numbers for fit in batch]),
            num_classes=len(batch[0].classes),
            strengths=[fit.strengths for fit in batch],
        )
        yield from zip(places, weights, strict=True)


def _shared_directions(fits: Sequence[Fit]) -> dict[int, Tensor]:
    """For vectors on a GPU, by their id: the axes of their first fit, for all of the others. PyTorch finds eigenvectors
    there one matrix after the other; on a CPU each fit's own axes are worth their price."""
    found: dict[int, Tensor] = {}
    for fit in fits:
        if shares_axes(fit.vectors) and id(fit.vectors) not in found and len(fit.nodes) > fit.vectors.num_columns:
            found[id(fit.vectors)] = fit.axes().directions
    return found


def shares_axes(vectors: Vectors) -> bool:
    return vectors.device.type != "cpu"


def _batches(fits: Sequence[Fit], places: Sequence[int]) -> Iterator[list[int]]:
    alike: dict[tuple[object, ...], list[int]] = {}
    for place in places:
        fit = fits[place]
        key = (fit.vectors.device, len(fit.nodes), len(fit.classes), len(fit.strengths))
        alike.setdefault(key, []).append(place)
    for members in alike.values():
        num_entries = max(fits[place].num_entries for place in members)
        size = _newton.batch_size(fits[members[0]].vectors.device, num_entries=num_entries)
        for first in range(0, len(members), size):
            yield members[first : first + size]


def fit_by_liblinear(x: Block, labels: Tensor, *, num_classes: int, strengths: tuple[float, ...]) -> Tensor:
    """The weights (S, K, D) of S strengths C times K classes; the last column of `x` is ones, for the intercept."""
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    rows, classes = x[:, :-1].cpu().numpy() if isinstance(x, Tensor) else x[:, :-1], labels.cpu().numpy()
    answer = np.zeros((len(strengths), num_classes, x.shape[1]))
    for place, strength in enumerate(strengths if num_classes > 1 else ()):
        with config_context(assume_finite=True, skip_parameter_validation=True):  # half of the time otherwise
            models = OneVsRestClassifier(LogisticRegression(solver="liblinear", C=strength)).fit(rows, classes)
        weights = np.stack([np.append(one.coef_, one.intercept_) for one in models.estimators_])
        answer[place] = weights if num_classes > 2 else np.concatenate([-weights, weights])
    found = torch.from_numpy(answer)
    return found.to(x.device) if isinstance(x, Tensor) else found
