"""The linear probe: one-vs-rest logistic regression on frozen, l2-normalised embeddings.

    scores(node) = W [h / ||h||, 1],   class = argmax of the scores,   C in 2^{-10, -9, ..., 10}

How C is chosen is all that distinguishes the protocols of the paper and of its code:

- `fit_by_validation` (paper): fit on the training nodes, keep the C that is best on the validation nodes, do not refit;
- `fit_by_halves` (reference code): five random halves of the training nodes, the C with the best mean accuracy on the
  other halves, then refit on all of the training nodes.

Of equally good values of C the smallest is taken: the most regularised. A class without a training node is never
predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluate import _liblinear, _newton
from graphstrap.evaluate._axes import Block, multiply
from graphstrap.evaluate._rows import Embeddings, Index, Rows

STRENGTHS = tuple(2.0**power for power in range(-10, 11))  # C, as in the paper's appendix on evaluation
SOLVERS = ("newton", "liblinear")
NUM_HALVES = 5


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

    def count_correct(self, rows: Rows, labels: Index, *, nodes: Index) -> int:
        """How many of `nodes` the probe puts into their class."""
        return int(_count_correct(rows, labels, nodes=nodes, weights=self.weights[None], classes=self.classes)[0])

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
) -> LinearProbe:
    """Fit a probe that can label the other nodes.

    Args:
        h: (N, D) embeddings.
        labels: (N,) integers, -1 for "none".
        train: node numbers or a boolean mask; None means every labelled node. Those without a label are left out.
        val: node numbers or a mask to choose C on; None means by random halves of `train`, drawn from `seed`.
        solver: "newton", or "liblinear" for scikit-learn's.
        num_classes: how many columns the probabilities get; None means as many as the labels show.
    """
    check_solver(solver)
    rows, numbers = Rows.of(h), label_numbers(labels)
    if len(numbers) != rows.num_rows:
        raise InputError(f"labels must have one entry for each of the {rows.num_rows} rows of h, got {len(numbers)}")
    train_nodes = _labelled(train, numbers, name="train")
    total = int(numbers.max()) + 1 if num_classes is None else num_classes
    if val is None:
        generator = np.random.default_rng(seed)
        return fit_by_halves(rows, numbers, train=train_nodes, generator=generator, solver=solver, num_classes=total)
    val_nodes = _labelled(val, numbers, name="val")
    return fit_by_validation(rows, numbers, train=train_nodes, val=val_nodes, solver=solver, num_classes=total)


def fit_by_validation(
    rows: Rows, labels: Index, *, train: Index, val: Index, solver: str, num_classes: int
) -> LinearProbe:
    """Fit on `train` for every C and keep the one that is best on `val`."""
    classes = np.unique(labels[train])
    weights = _fit(rows, labels, nodes=train, classes=classes, strengths=STRENGTHS, solver=solver)
    best = int(_count_correct(rows, labels, nodes=val, weights=weights, classes=classes).argmax())
    return LinearProbe(weights[best], classes, num_classes, STRENGTHS[best])


def fit_by_halves(
    rows: Rows, labels: Index, *, train: Index, generator: np.random.Generator, solver: str, num_classes: int
) -> LinearProbe:
    """Choose C by random halves of `train`, then fit on all of it."""
    if len(train) < 2:
        raise InputError(f"choosing C by halves needs at least 2 labelled training nodes, got {len(train)}")
    num_correct = np.zeros(len(STRENGTHS), dtype=np.int64)
    for _ in range(NUM_HALVES):
        order = generator.permutation(train)
        fitted, held_out = np.split(order, [len(order) // 2])
        classes = np.unique(labels[fitted])
        weights = _fit(rows, labels, nodes=fitted, classes=classes, strengths=STRENGTHS, solver=solver)
        num_correct += _count_correct(rows, labels, nodes=held_out, weights=weights, classes=classes)
    best = STRENGTHS[int(num_correct.argmax())]
    classes = np.unique(labels[train])
    weights = _fit(rows, labels, nodes=train, classes=classes, strengths=(best,), solver=solver)
    return LinearProbe(weights[0], classes, num_classes, best)


def check_solver(solver: str) -> None:
    if solver not in SOLVERS:
        raise InputError(f"solver must be one of {', '.join(SOLVERS)}, got {solver!r}")


def label_numbers(labels: Any) -> Index:
    """(N,) int64 on the CPU; several labels a node are refused."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim == 2:
        raise InputError(
            f"labels has {array.shape[1]} columns, several labels a node: that needs a protocol of its own "
            "(micro-F1); this one wants one class number per node, -1 for none"
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
    nodes = nodes.astype(np.int64)
    if len(nodes) and not 0 <= nodes.min() <= nodes.max() < len(labels):
        raise InputError(f"{name} must hold node numbers from 0 to {len(labels) - 1}")
    nodes = nodes[labels[nodes] >= 0]
    if len(nodes) == 0:
        raise InputError(f"{name} holds no labelled node: a probe needs some")
    return nodes


def _fit(
    rows: Rows, labels: Index, *, nodes: Index, classes: Index, strengths: tuple[float, ...], solver: str
) -> Tensor:
    """(S, K, D + 1) weights for every C and class."""
    x: Block = rows.take_with_constant(nodes)
    numbers = torch.from_numpy(np.searchsorted(classes, labels[nodes]))
    by_liblinear = solver == "liblinear" or _liblinear.is_faster_by_liblinear(x)
    fit = _liblinear.fit_one_vs_rest if by_liblinear else _newton.fit_one_vs_rest
    return fit(x, numbers, num_classes=len(classes), strengths=strengths)


def _count_correct(rows: Rows, labels: Index, *, nodes: Index, weights: Tensor, classes: Index) -> Index:
    """(S,) how many of `nodes` are put into their class by each of the S probes in `weights` (S, K, D + 1)."""
    num_probes, num_seen, _ = weights.shape
    flat = weights.flatten(0, 1).T  # (D + 1, S K)
    numbers = torch.from_numpy(classes)
    count = torch.zeros(num_probes, dtype=torch.int64)
    for block in rows.blocks(nodes, width=num_probes * num_seen):
        scores = multiply(rows.take_with_constant(block), flat).view(len(block), num_probes, num_seen)
        predicted = numbers[scores.argmax(dim=2).cpu()]
        count += (predicted == torch.from_numpy(labels[block])[:, None]).sum(0)
    return count.numpy()
