"""Logistic regression, many problems at once, by Newton's method with conjugate gradients.

    minimise over w     1/2 ||w||^2  +  C sum_i log(1 + exp(-m_i)),    m_i = y_i w.x_i,    y_i = +1 or -1
    gradient            w - C X^T (y wrong),                           wrong_i = sigmoid(-m_i)
    Hessian             I + C X^T diag(wrong (1 - wrong)) X

This is liblinear's objective, and its stopping rule; an intercept is one more column of ones, regularised like the
others, as liblinear does it. The problems share X and differ in C and in the class that is +1 (one-vs-rest), so that
every product with X is one matrix product for all of them; those that have converged leave.

X is first turned to its principal axes (see `_axes.py`), which changes nothing in the answer and makes the Hessian
nearly diagonal, so its diagonal is a good preconditioner: 119 rounds of conjugate gradients on Amazon Computers where
the columns as they are need 596.

Cost of a round: time O(P N D), memory O(P N), for P problems at a time; P is bounded by `MAX_ENTRIES`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graphstrap.evaluate._axes import Block, principal_axes

MAX_ENTRIES = 2**22  # of one (P, N) array of float64: 32 MiB
MAX_ROUNDS = 200  # of conjugate gradients for one step
MAX_HALVINGS = 30  # of one step's length
ROUND_TOLERANCE = 0.1  # a step is solved to a tenth of its residual, as liblinear does
SUFFICIENT_DECREASE = 1e-4
ROUNDING = 1e-12  # an increase of the objective this small is rounding
SMALL_PRODUCT = 2**28  # multiplications: less than this is done by one thread


@dataclass(frozen=True)
class _Problems:
    """The problems still at work, one a row, and where each of them stands."""

    places: Tensor  # (P,) row of the answer
    signs: Tensor  # (P, N) y
    strengths: Tensor  # (P, 1) C
    limits: Tensor  # (P,) the norm of the gradient at which to stop
    weights: Tensor  # (P, D) w
    margins: Tensor  # (P, N) m
    objectives: Tensor  # (P,)

    def select(self, index: Tensor) -> _Problems:
        return _Problems(*[getattr(self, field.name)[index] for field in fields(self)])


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
    num_multiplications = min(len(strengths) * num_classes * x.shape[0], MAX_ENTRIES) * min(x.shape)
    with threads_for(num_multiplications):
        axes = principal_axes(x)
        classes = torch.arange(num_classes, device=axes.coordinates.device)
        signs = torch.where(labels.to(classes.device) == classes[:, None], 1.0, -1.0).double()  # (K, N)
        found = _follow(axes.coordinates, signs, strengths=strengths, tolerance=tolerance, max_steps=max_steps)
        return (found @ axes.directions.T).view(len(strengths), num_classes, -1)


def _follow(x: Tensor, signs: Tensor, *, strengths: tuple[float, ...], tolerance: float, max_steps: int) -> Tensor:
    """Solve for as many strengths at once as `MAX_ENTRIES` allows; the next ones start from the last of them."""
    num_classes = len(signs)
    size = max(1, MAX_ENTRIES // signs.numel())
    start = x.new_zeros(num_classes, x.shape[1])
    found = []
    for first in range(0, len(strengths), size):
        chunk = x.new_tensor(strengths[first : first + size])
        weights = minimise(
            x,
            signs.repeat(len(chunk), 1),
            strengths=chunk.repeat_interleave(num_classes),
            start=start.repeat(len(chunk), 1),
            tolerance=tolerance,
            max_steps=max_steps,
        )
        found.append(weights)
        start = weights[-num_classes:]
    return torch.cat(found)


def minimise(
    x: Tensor, signs: Tensor, *, strengths: Tensor, start: Tensor, tolerance: float = 1e-4, max_steps: int = 100
) -> Tensor:
    """The weights (P, D) of P problems over the rows `x` (N, D), from their `signs` (P, N) and `strengths` (P,)."""
    answer = start.clone()
    problems = _begin(x, signs, strengths=strengths[:, None], start=start, tolerance=tolerance)
    for _ in range(max_steps):
        wrong = torch.sigmoid(-problems.margins)  # (P, N)
        gradient = problems.weights - (problems.strengths * problems.signs * wrong) @ x  # (P, D)
        at_work = gradient.norm(dim=1) > problems.limits
        if not at_work.all():
            answer[problems.places[~at_work]] = problems.weights[~at_work]
            problems, wrong, gradient = problems.select(at_work), wrong[at_work], gradient[at_work]
        if len(problems.places) == 0:
            return answer
        curvature = problems.strengths * wrong * (1 - wrong)
        step = _newton_step(x, curvature, gradient=gradient)
        problems = _move(problems, x, step=step, slope=(gradient * step).sum(1))
    warnings.warn(
        f"{len(problems.places)} of {len(answer)} logistic regressions had not converged after {max_steps} steps",
        RuntimeWarning,
        stacklevel=2,
    )
    answer[problems.places] = problems.weights
    return answer


def _begin(x: Tensor, signs: Tensor, *, strengths: Tensor, start: Tensor, tolerance: float) -> _Problems:
    num_rows = x.shape[0]
    num_positive = (signs > 0).sum(1)
    rarest = torch.minimum(num_positive, num_rows - num_positive).clamp(min=1)
    first_gradient = (strengths * signs / 2) @ x  # at w = 0, whatever the start
    limits = tolerance * rarest / num_rows * first_gradient.norm(dim=1)
    margins = signs * (start @ x.T)
    objectives = _objective(start, margins, strengths=strengths)
    places = torch.arange(len(signs), device=x.device)
    return _Problems(places, signs, strengths, limits, start, margins, objectives)


def _objective(weights: Tensor, margins: Tensor, *, strengths: Tensor) -> Tensor:
    return weights.square().sum(1) / 2 + strengths[:, 0] * softplus(-margins, threshold=40).sum(1)


def _newton_step(x: Tensor, curvature: Tensor, *, gradient: Tensor) -> Tensor:
    """Solve Hessian @ step = -gradient, roughly, for each problem: preconditioned conjugate gradients."""
    x_transposed = x.T.contiguous()
    inverse_diagonal = 1 / (1 + curvature @ x.square())  # (P, D)
    answer = torch.empty_like(gradient)
    places = torch.arange(len(gradient), device=x.device)
    step, residual = torch.zeros_like(gradient), -gradient
    direction = inverse_diagonal * residual
    energy = (residual * direction).sum(1)
    limits = ROUND_TOLERANCE**2 * energy
    for _ in range(MAX_ROUNDS):
        product = direction + (curvature * (direction @ x_transposed)) @ x  # Hessian @ direction
        length = (energy / (direction * product).sum(1))[:, None]
        step = step + length * direction
        residual = residual - length * product
        scaled = inverse_diagonal * residual
        new_energy = (residual * scaled).sum(1)
        at_work = new_energy > limits
        num_at_work = int(at_work.sum())
        if num_at_work == 0:
            break
        direction = scaled + (new_energy / energy)[:, None] * direction
        energy = new_energy
        if num_at_work < 0.8 * len(at_work):  # leaving has a cost: only in groups
            answer[places[~at_work]] = step[~at_work]
            places, step, residual, direction = (t[at_work] for t in (places, step, residual, direction))
            energy, limits, curvature, inverse_diagonal = (
                t[at_work] for t in (energy, limits, curvature, inverse_diagonal)
            )
    answer[places] = step
    return answer


def _move(problems: _Problems, x: Tensor, *, step: Tensor, slope: Tensor) -> _Problems:
    """Go along `step`, halving it until the objective falls enough; no product with X for the halvings."""
    change = problems.signs * (step @ x.T)  # (P, N) of the margins
    lengths = torch.ones_like(slope)
    most = problems.objectives + ROUNDING * problems.objectives.abs()
    for _ in range(MAX_HALVINGS):
        weights = problems.weights + lengths[:, None] * step
        margins = problems.margins + lengths[:, None] * change
        objectives = _objective(weights, margins, strengths=problems.strengths)
        too_far = objectives > most + SUFFICIENT_DECREASE * lengths * slope
        if not too_far.any():
            break
        lengths = torch.where(too_far, lengths / 2, lengths)
    return _Problems(problems.places, problems.signs, problems.strengths, problems.limits, weights, margins, objectives)


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
