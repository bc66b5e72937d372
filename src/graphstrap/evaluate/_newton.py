"""Logistic regression, many problems on many data sets at once, by Newton's method with conjugate gradients.

    minimise over w     1/2 ||w||^2  +  C (sum_i log(1 + exp(z_i))  -  w.b),    z = X w,   b = sum of the positive rows
    gradient            w + C (X^T p - b),                                      p_i = sigmoid(z_i)
    Hessian             I + C X^T diag(p (1 - p)) X

This is liblinear's objective, and its stopping rule; an intercept is one more column of ones, regularised like the
others, as liblinear does it. The problems of a data set share X and differ in C and in the class that is positive
(one-vs-rest). Data sets of the same shape are solved together: each product with X is one batched matrix product for
all of the problems, and the host waits for the device a few times a step, however many there are. The steps of a
problem depend on its own data only; its neighbours can change the rounding of a product, no more.

X is first turned to principal axes (see `_axes.py`), which changes nothing in the answer and makes the Hessian nearly
diagonal, so its diagonal is a good preconditioner: 119 rounds of conjugate gradients on Amazon Computers where the
columns as they are need 596.

Cost of a round: time O(B P N D), memory O(B P N), for B data sets of P problems, bounded by `max_entries`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from graphstrap.evaluate._axes import Axes, Block, principal_axes
from graphstrap.evaluate._batch import all_places, count_at_work, narrow, put, take
from graphstrap.evaluate._conjugate import SingleRows, newton_step
from graphstrap.train.precision import computing_in

MAX_ENTRIES = 2**22  # of one (B, P, N) array of float64 on a CPU: 32 MiB
BATCH_ENTRIES = 2**18  # up to which data sets are put together on a CPU: beyond, its cache is too small for more
DEVICE_PARTS = 256  # on a GPU such an array takes this part of the memory; there are about seven at a time
MAX_HALVINGS = 30  # of one step's length
SUFFICIENT_DECREASE = 1e-4
ROUNDING = 1e-12  # an increase of the objective this small is rounding
SMALL_PRODUCT = 2**28  # multiplications: less than this is done by one thread


def max_entries(device: torch.device) -> int:
    """How large a (B, P, N) array may become."""
    return MAX_ENTRIES if device.type == "cpu" else _device_entries(device)


def batch_size(device: torch.device, *, num_entries: int) -> int:
    """How many data sets to solve together, each with arrays of `num_entries`."""
    most = BATCH_ENTRIES if device.type == "cpu" else _device_entries(device)
    return max(1, most // num_entries)


def fit_one_vs_rest(
    x: Block,
    labels: Tensor,
    *,
    num_classes: int,
    strengths: tuple[float, ...],
    tolerance: float = 1e-4,
    max_steps: int = 100,
) -> Tensor:
    """The weights (S, K, D) of S strengths C times K classes, on the device of `x`.

    Args:
        x: (N, D) float64, dense tensor or SciPy CSR; for an intercept give it a column of ones.
        labels: (N,) int64 from 0 to K - 1.
        strengths: the values of C. Few at a time when there are many rows: each then starts from the one before.
        tolerance: stop when ||gradient|| <= tolerance * min(positives, negatives) / N * ||gradient at 0||.
    """
    with threads_for(x.shape[0] * min(x.shape) ** 2):
        axes = principal_axes(x)
    return fit_together(
        [axes],
        labels[None],
        num_classes=num_classes,
        strengths=[strengths],
        tolerance=tolerance,
        max_steps=max_steps,
    )[0]


def fit_together(
    axes: Sequence[Axes],
    labels: Tensor,
    *,
    num_classes: int,
    strengths: Sequence[tuple[float, ...]],
    tolerance: float = 1e-4,
    max_steps: int = 100,
) -> list[Tensor]:
    """The same for B data sets with as many rows each: their axes, `labels` (B, N) and strengths, S each."""
    rank = max(one.coordinates.shape[1] for one in axes)
    x = torch.stack([pad(one.coordinates, (0, rank - one.coordinates.shape[1])) for one in axes])  # (B, N, R)
    num_entries = labels.numel() * num_classes * len(strengths[0])
    with threads_for(min(num_entries, MAX_ENTRIES) * rank), computing_in("fp32", x.device):
        found = _follow(
            x,
            labels.to(x.device),
            num_classes=num_classes,
            strengths=x.new_tensor(strengths),
            tolerance=tolerance,
            max_steps=max_steps,
        )
        return [
            weights[..., : one.directions.shape[1]] @ one.directions.T for weights, one in zip(found, axes, strict=True)
        ]


def _follow(
    x: Tensor, labels: Tensor, *, num_classes: int, strengths: Tensor, tolerance: float, max_steps: int
) -> Tensor:
    """(B, S, K, R). As many strengths at once as memory allows; the next ones start from the last of them."""
    num_rows = x.shape[1]
    positive = (labels[:, None] == torch.arange(num_classes, device=x.device)[:, None]).double()  # (B, K, N)
    pulls, counts = positive @ x, positive.sum(2)
    rarest = torch.minimum(counts, num_rows - counts).clamp(min=1)
    first_gradients = (x.sum(1, keepdim=True) / 2 - pulls).norm(dim=2)  # (B, K) at w = 0 and C = 1
    limits = tolerance * rarest / num_rows * first_gradients
    size = max(1, max_entries(x.device) // positive.numel())
    start = torch.zeros_like(pulls)
    found = []
    for first in range(0, strengths.shape[1], size):
        chunk = strengths[:, first : first + size]
        weights = minimise(
            x,
            pulls.repeat(1, chunk.shape[1], 1),
            strengths=chunk.repeat_interleave(num_classes, dim=1),
            limits=(chunk[:, :, None] * limits[:, None]).flatten(1),
            start=start.repeat(1, chunk.shape[1], 1),
            max_steps=max_steps,
        )
        found.append(weights.view(len(x), -1, num_classes, x.shape[2]))
        start = weights[:, -num_classes:]
    return torch.cat(found, dim=1)


@dataclass(frozen=True)
class _Problems:
    """Where each problem stands."""

    places: Tensor  # (B, P) of the answer
    pulls: Tensor  # (B, P, D) b
    strengths: Tensor  # (B, P, 1) C
    limits: Tensor  # (B, P) the norm of the gradient at which to stop
    weights: Tensor  # (B, P, D) w
    scores: Tensor  # (B, P, N) z
    objectives: Tensor  # (B, P)

    def take(self, kept: Tensor) -> _Problems:
        return _Problems(*[take(getattr(self, field.name), kept) for field in fields(self)])

    def objective(self, weights: Tensor, scores: Tensor) -> Tensor:
        losses = softplus(scores, threshold=40).sum(2) - (weights * self.pulls).sum(2)
        return weights.square().sum(2) / 2 + self.strengths[:, :, 0] * losses


def minimise(
    x: Tensor, pulls: Tensor, *, strengths: Tensor, limits: Tensor, start: Tensor, max_steps: int = 100
) -> Tensor:
    """The weights (B, P, D) of P problems over the rows `x` (B, N, D) of each of B data sets.

    Args:
        pulls: (B, P, D) sums of each problem's positive rows.
        strengths: (B, P).
        limits: (B, P) norms of the gradient at which to stop.
        start: (B, P, D).
    """
    answer, rows = start.clone(), SingleRows.of(x)
    problems = _begin(x, pulls, strengths=strengths[:, :, None], limits=limits, start=start)
    for _ in range(max_steps):
        probabilities = torch.sigmoid(problems.scores)  # (B, P, N)
        gradient = problems.weights + problems.strengths * (probabilities @ x - problems.pulls)
        at_work = gradient.norm(dim=2) > problems.limits
        num_at_work = count_at_work(at_work)
        if num_at_work == 0:
            break
        kept = narrow(at_work, num_at_work)
        if kept is not None:
            put(answer, problems.places, problems.weights)
            problems = problems.take(kept)
            probabilities, gradient, at_work = (take(t, kept) for t in (probabilities, gradient, at_work))
        curvature = torch.addcmul(probabilities, probabilities, probabilities, value=-1).mul_(problems.strengths)
        step = newton_step(rows, curvature, gradient=gradient, at_work=at_work)
        problems = _move(problems, x, step=step, slope=(gradient * step).sum(2))
    else:
        warnings.warn(
            f"{int(at_work.sum())} of {limits.numel()} logistic regressions had not converged after {max_steps} steps",
            RuntimeWarning,
            stacklevel=2,
        )
    put(answer, problems.places, problems.weights)
    return answer


def _begin(x: Tensor, pulls: Tensor, *, strengths: Tensor, limits: Tensor, start: Tensor) -> _Problems:
    scores = start @ x.transpose(1, 2)
    problems = _Problems(all_places(pulls), pulls, strengths, limits, start, scores, limits)
    return replace(problems, objectives=problems.objective(start, scores))


def _move(problems: _Problems, x: Tensor, *, step: Tensor, slope: Tensor) -> _Problems:
    """Go along `step`, halving it until the objective falls enough; no product with X for the halvings."""
    change = step @ x.transpose(1, 2)  # (B, P, N) of the scores
    lengths = torch.ones_like(slope)[:, :, None]
    most = problems.objectives + ROUNDING * problems.objectives.abs()
    for _ in range(MAX_HALVINGS):
        weights = torch.addcmul(problems.weights, lengths, step)
        scores = torch.addcmul(problems.scores, lengths, change)
        objectives = problems.objective(weights, scores)
        too_far = objectives > most + SUFFICIENT_DECREASE * lengths[:, :, 0] * slope
        if not too_far.any():
            break
        lengths = torch.where(too_far[:, :, None], lengths / 2, lengths)
    return replace(problems, weights=weights, scores=scores, objectives=objectives)


def _device_entries(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory) // (8 * DEVICE_PARTS)


@contextmanager
def threads_for(num_multiplications: int) -> Iterator[None]:
    """Small products on one thread: threads that meet after each of them lose more than they win.

    Amazon Computers under `paper`, two cores: 0.11 s by two threads where one takes 0.18 s; but 8 s where one takes
    0.26 s as soon as other processes keep the cores busy.
    """
    num_threads = torch.get_num_threads()
    if num_threads == 1 or num_multiplications >= SMALL_PRODUCT:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
