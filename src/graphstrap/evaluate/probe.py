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

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluate._axes import multiply
from graphstrap.evaluate._choice import Sample, choose_strengths
from graphstrap.evaluate._rows import Embeddings, Index, Rows

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
