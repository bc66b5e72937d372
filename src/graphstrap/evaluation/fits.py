"""Linear models of many data sets: which of them are solved together, and by what.

Data sets with the same number of rows and classes form one batch, as large as memory allows. Splits of one graph are
such data sets, whichever embeddings they take their rows from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.evaluation import newton as _newton
from graphstrap.evaluation.rows import Axes, Block, Index, Rows, multiply, principal_axes

# The yardstick: scikit-learn's one-vs-rest logistic regression by liblinear, as the paper's code uses it.
#
# It is also the faster solver for many sparse rows, such as raw bag-of-words features: its cost follows the non-zero
# entries, while Newton's follows rows times rank. Measured on one core, 21 strengths, liblinear against Newton in the
# row space: Cora 270 rows 0.28 s against 0.06 s, CiteSeer 662 rows 0.35 s against 0.29 s, BlogCatalog 1,039 rows 0.70 s
# against 0.80 s, Coauthor CS 1,833 rows 2.4 s against 5.7 s.


MAX_ROW_SPACE = 500  # sparse rows that Newton's method takes


def is_faster_by_liblinear(*, is_sparse: bool, num_rows: int) -> bool:
    """Whether liblinear should be expected to beat Newton's method on such rows."""
    return is_sparse and num_rows > MAX_ROW_SPACE


def fit_one_vs_rest(x: Block, labels: Tensor, *, num_classes: int, strengths: tuple[float, ...]) -> Tensor:
    """The weights (S, K, D) of S strengths C times K classes; the last column of `x` is ones, for the intercept."""
    rows = x.cpu().numpy() if isinstance(x, Tensor) else x
    weights = [_fit(rows[:, :-1], labels.cpu().numpy(), num_classes=num_classes, strength=c) for c in strengths]
    answer = torch.from_numpy(np.stack(weights))
    return answer.to(x.device) if isinstance(x, Tensor) else answer


def _fit(
    rows: Block, labels: np.ndarray[tuple[int], np.dtype[np.int64]], *, num_classes: int, strength: float
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    if num_classes == 1:
        return np.zeros((1, rows.shape[1] + 1))
    with config_context(assume_finite=True, skip_parameter_validation=True):  # half of the time otherwise
        fitted = OneVsRestClassifier(LogisticRegression(solver="liblinear", C=strength)).fit(rows, labels).estimators_
    weights = np.stack([np.append(one.coef_, one.intercept_) for one in fitted])
    return weights if num_classes > 2 else np.concatenate([-weights, weights])


@dataclass(frozen=True, eq=False)
class Fit:
    """One-vs-rest models to be fitted to `nodes`, one for every C in `strengths`."""

    rows: Rows
    labels: Index  # (N,) of all nodes
    nodes: Index
    strengths: tuple[float, ...]

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
        width = self.rows.num_columns + 1
        num_problems = len(self.strengths) * len(self.classes)
        return max(len(self.nodes) * max(num_problems, width), num_problems * width)


def fit_models(fits: Sequence[Fit], *, solver: str) -> Iterator[tuple[int, Tensor]]:
    """Each fit's place and its weights (S, K, D + 1), batch by batch: not in the order of `fits`."""
    by_newton = []
    for place, fit in enumerate(fits):
        if _is_for_liblinear(fit, solver):
            yield place, _by_liblinear(fit)
        else:
            by_newton.append(place)
    directions = _shared_directions([fits[place] for place in by_newton])
    for places in _batches(fits, by_newton):
        yield from zip(places, _by_newton([fits[place] for place in places], directions), strict=True)


def count_correct(rows: Rows, labels: Index, *, nodes: Index, weights: Tensor, classes: Index) -> Tensor:
    """(S,) how many of `nodes` each of the S probes in `weights` (S, K, D + 1) puts into their class.

    It stays on the device of the rows, so that nobody has to wait for it.
    """
    num_probes, num_seen, _ = weights.shape
    flat = weights.flatten(0, 1).T  # (D + 1, S K)
    known = torch.from_numpy(classes).to(weights.device)
    count = torch.zeros(num_probes, dtype=torch.int64, device=weights.device)
    for block in rows.blocks(nodes, width=num_probes * num_seen):
        scores = multiply(rows.take_with_constant(block), flat).view(len(block), num_probes, num_seen)
        truth = torch.from_numpy(labels[block]).to(weights.device)
        count += (known[scores.argmax(dim=2)] == truth[:, None]).sum(0)
    return count


def sum_log_losses(rows: Rows, labels: Index, *, nodes: Index, weights: Tensor, classes: Index) -> Tensor:
    """(S,) minus the log-probability that each of the S probes gives to the class of `nodes`, summed over those of a
    class that it knows. Probabilities are sigmoids of the scores, divided by their sum."""
    num_probes, num_seen, _ = weights.shape
    flat = weights.flatten(0, 1).T  # (D + 1, S K)
    nodes = nodes[np.isin(labels[nodes], classes)]
    loss = torch.zeros(num_probes, dtype=torch.float64, device=weights.device)
    for block in rows.blocks(nodes, width=num_probes * num_seen):
        scores = multiply(rows.take_with_constant(block), flat).view(len(block), num_probes, num_seen)
        truth = torch.from_numpy(np.searchsorted(classes, labels[block])).to(weights.device)
        log_sigmoids = torch.nn.functional.logsigmoid(scores.double())
        of_truth = log_sigmoids.gather(2, truth[:, None, None].expand(-1, num_probes, 1))[:, :, 0]
        loss += (log_sigmoids.logsumexp(2) - of_truth).sum(0)
    return loss


def gather_counts(counts: Sequence[Tensor]) -> np.ndarray[Any, Any]:
    """What `count_correct` or `sum_log_losses` gave, of the same shape, on the host; the only wait for all."""
    return torch.stack([one.to(counts[0].device) for one in counts]).cpu().numpy()


def _is_for_liblinear(fit: Fit, solver: str) -> bool:
    faster = is_faster_by_liblinear(is_sparse=fit.rows.is_sparse, num_rows=len(fit.nodes))
    return solver == "liblinear" or faster


def _by_liblinear(fit: Fit) -> Tensor:
    x = fit.rows.take_with_constant(fit.nodes)
    return fit_one_vs_rest(x, fit.numbers, num_classes=len(fit.classes), strengths=fit.strengths)


def _by_newton(fits: Sequence[Fit], directions: dict[int, Tensor]) -> list[Tensor]:
    return _newton.fit_together(
        [_axes(fit, directions.get(id(fit.rows))) for fit in fits],
        torch.stack([fit.numbers for fit in fits]),
        num_classes=len(fits[0].classes),
        strengths=[fit.strengths for fit in fits],
    )


def _axes(fit: Fit, directions: Tensor | None = None) -> Axes:
    with _newton.threads_for(len(fit.nodes) * (fit.rows.num_columns + 1) ** 2):
        return principal_axes(fit.rows.take_with_constant(fit.nodes), directions=directions)


def _shared_directions(fits: Sequence[Fit]) -> dict[int, Tensor]:
    """For rows on a GPU, by their id: the axes of their first fit, for all of the others.

    PyTorch finds eigenvectors on a GPU one matrix after the other, at 4.5 ms for 128 columns (its issue 175585). On a
    CPU each fit's own axes are worth their price: they save 23 % of the products on Amazon Computers, 13 % on
    Coauthor CS.
    """
    found: dict[int, Tensor] = {}
    for fit in fits:
        if shares_axes(fit.rows) and id(fit.rows) not in found and len(fit.nodes) > fit.rows.num_columns:
            found[id(fit.rows)] = _axes(fit).directions
    return found


def shares_axes(rows: Rows) -> bool:
    return rows.device.type != "cpu"


def _batches(fits: Sequence[Fit], places: Sequence[int]) -> Iterator[list[int]]:
    alike: dict[tuple[object, ...], list[int]] = {}
    for place in places:
        fit = fits[place]
        key = (fit.rows.device, len(fit.nodes), len(fit.classes), len(fit.strengths))
        alike.setdefault(key, []).append(place)
    for members in alike.values():
        num_entries = max(fits[place].num_entries for place in members)
        size = _newton.batch_size(fits[members[0]].rows.device, num_entries=num_entries)
        for first in range(0, len(members), size):
            yield members[first : first + size]
