"""A linear layer by 100 steps of AdamW, for every weight decay of a grid at once.

    scores  = [x, 1] W                                            W: (D + 1, K), one for each decay
    loss    = mean cross-entropy of the class, or mean binary cross-entropy of each of K labels
    W      <- (1 - rate * decay) W - rate * m / (sqrt(v) + eps)   m, v: moving averages of the gradient and its square

The paper's appendix on evaluation: 100 steps at rate 0.01, decay in 2^{-10, -8, ..., 10}, chosen on validation nodes.
The bias decays too, as in the authors' code. W starts from zeros, theirs from random numbers: the loss is convex. A
decay beyond 2 / rate = 200 makes W grow at every step; where it overflows, at 2^10, it is never chosen. Of equally good
decays the smallest is taken, as there.

Cost of a step: two products of (N, D + 1) with the weights of all decays side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.evaluation.task import Index, Split, Vectors, as_dense

DECAYS = tuple(2.0**power for power in range(-10, 11, 2))
NUM_STEPS, RATE = 100, 0.01
_BETAS, _EPS = (0.9, 0.999), 1e-8
_BLOCK_ENTRIES = 2**26

Labels = np.ndarray[Any, Any]  # (N,) classes, or (N, K) of 0 and 1
Rows = Callable[[Index], Tensor]


def probe(vectors: Vectors, labels: Labels, split: Split, *, scaling: str, num_classes: int) -> tuple[float, float]:
    """Fit on the training nodes, choose the decay on the validation nodes, test. Of both from 0 to 1: accuracy, or
    micro-F1 where nodes have several labels. `scaling`: see `scaled_rows`."""
    rows = scaled_rows(vectors, split.train, scaling=scaling)
    weights = fit(rows(split.train), _targets(labels, split.train, vectors.device), num_classes=num_classes)
    on_val = torch.stack([_score(rows, labels, split.val, one) for one in weights])
    finite = weights.isfinite().flatten(1).all(1)
    best = int(torch.where(finite, on_val, -1.0).argmax())
    return float(on_val[best]), float(_score(rows, labels, split.test, weights[best]))


def fit(x: Tensor, targets: Tensor, *, num_classes: int, decays: tuple[float, ...] = DECAYS) -> Tensor:
    """(S, D + 1, K) weights, one layer for each decay; the last row is the bias.

    `targets`: (N,) class numbers, or (N, K) of 0 and 1.
    """
    num_decays, width = len(decays), x.shape[1]
    shape = (width, num_decays, num_classes)
    kept = 1.0 - RATE * torch.tensor(decays, device=x.device, dtype=x.dtype)[None, :, None]
    weights, mean, square = (x.new_zeros(shape) for _ in range(3))
    for step in range(1, NUM_STEPS + 1):
        gradient = _gradient(x, targets, weights)
        mean.lerp_(gradient, 1.0 - _BETAS[0])
        square.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1.0 - _BETAS[1])
        divisor = (square / (1.0 - _BETAS[1] ** step)).sqrt_().add_(_EPS)
        weights.mul_(kept).addcdiv_(mean, divisor, value=-RATE / (1.0 - _BETAS[0] ** step))
    return weights.transpose(0, 1)


def scaled_rows(vectors: Vectors, train: Index, *, scaling: str) -> Rows:
    """Gives rows (M, D + 1) float32 with a last column of ones: "unit", each of length 1, as the paper says; or
    "column", of mean 0 and variance 1 on the training nodes, as the authors' code does."""
    if scaling == "unit":
        return lambda nodes: as_dense(vectors.take_with_constant(nodes)).float()
    deviation, mean = torch.std_mean(vectors.take_as_given(train), dim=0, correction=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)

    def take(nodes: Index) -> Tensor:
        x = (vectors.take_as_given(nodes) - mean) / deviation
        return torch.cat([x, x.new_ones(len(x), 1)], dim=1).float()

    return take


def micro_f1(predicted: Tensor, truth: Tensor) -> Tensor:
    """2 tp / (2 tp + fp + fn) over all nodes and labels; 0 where nothing is there and nothing is predicted."""
    hits = (predicted & truth).sum()
    return 2 * hits / (predicted.sum() + truth.sum()).clamp(min=1)


def _gradient(x: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Of the mean loss of each decay's layer: (D + 1, S, K)."""
    width, num_decays, num_classes = weights.shape
    flat, gradient = weights.flatten(1), torch.zeros_like(weights)
    size = max(1, _BLOCK_ENTRIES // (num_decays * num_classes))
    for start in range(0, len(x), size):
        rows, truth = x[start : start + size], targets[start : start + size]
        scores = (rows @ flat).view(len(rows), num_decays, num_classes)
        if targets.dim() == 2:
            error = scores.sigmoid_().sub_(truth[:, None, :]).div_(num_classes)
        else:
            error = scores.softmax(2)
            chosen = truth[:, None, None].expand(-1, num_decays, 1)
            error.scatter_add_(2, chosen, error.new_full((1, 1, 1), -1.0).expand(chosen.shape))
        gradient += (rows.T @ error.flatten(1)).view(width, num_decays, num_classes)
    return gradient / len(x)


def _score(rows: Rows, labels: Labels, nodes: Index, weights: Tensor) -> Tensor:
    """() how good one layer (D + 1, K) is on these nodes."""
    scores = rows(nodes) @ weights
    truth = _targets(labels, nodes, scores.device)
    if truth.dim() == 2:
        return micro_f1(scores > 0, truth > 0).float()
    return (scores.argmax(1) == truth).float().mean()


def _targets(labels: Labels, nodes: Index, device: torch.device) -> Tensor:
    chosen = torch.from_numpy(labels[nodes]).to(device)
    return chosen.float() if chosen.dim() == 2 else chosen
