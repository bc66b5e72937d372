"""Logistic regression, many problems on many data sets at once, by Newton's method with conjugate gradients.

    minimise over w     1/2 ||w||^2  +  C (sum_i log(1 + exp(z_i))  -  w.b),    z = X w,   b = sum of the positive rows
    gradient            w + C (X^T p - b),                                      p_i = sigmoid(z_i)
    Hessian             I + C X^T diag(p (1 - p)) X

This is liblinear's objective, and its stopping rule; an intercept is one more column of ones, regularised like the
others, as liblinear does it. The problems of a data set share X and differ in C and in the class that is positive
(one-vs-rest). Data sets of the same shape are solved together: each product with X is one batched matrix product for
all of the problems, and the host waits for the device a few times a step, however many there are. The steps of a
problem depend on its own data only; its neighbours can change the rounding of a product, no more.

X is first turned to its principal axes, which changes nothing in the answer and makes the Hessian nearly diagonal, so
its diagonal is a good preconditioner: a fifth of the rounds of conjugate gradients (docs/LOG.md).

Problems form a rectangle: B data sets with P problems each. All tensors are (B, P, ...), so that a step is a few
products for all of them. A problem that is done is masked and stands still. The rectangle becomes narrower as soon as
the busiest data set has a fifth fewer problems at work than it has room for; to know that the host must wait for the
device, so it asks rarely.

Cost of a round: time O(B P N D), memory O(B P N), for B data sets of P problems, bounded by `max_entries`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from graphstrap.evaluation.task import Block, as_dense, multiply
from graphstrap.ops.precision import computing_in

MAX_ENTRIES = 2**22  # of one (B, P, N) array of float64 on a CPU: 32 MiB
BATCH_ENTRIES = 2**18  # up to which data sets are put together on a CPU: beyond, its cache is too small for more
DEVICE_SHARE = 256  # on a GPU such an array takes one in so many bytes of the memory; there are about seven at a time
MAX_HALVINGS = 30  # of one step's length
SUFFICIENT_DECREASE = 1e-4
ROUNDING = 1e-12  # an increase of the objective this small is rounding
SMALL_PRODUCT = 2**28  # multiplications: less than this is done by one thread
MAX_ROUNDS = 200  # of conjugate gradients
ROUNDS_PER_LOOK = 2  # of the host: a look costs a wait, a round too many costs two products
TOLERANCE = 0.1
WORTH_LEAVING = 0.8  # of the width: leaving has a cost, so only in groups
NEGLIGIBLE = 1e-12  # axes with less than this share of the largest eigenvalue: beyond the precision of X X^T


def fit_together(
    axes: Sequence[Axes],
    labels: Tensor,
    *,
    num_classes: int,
    strengths: Sequence[tuple[float, ...]],
    tolerance: float = 1e-4,
    max_steps: int = 100,
) -> list[Tensor]:
    """The weights of B data sets with as many rows each: (S, K, D) for each, S strengths C times K classes.

    `axes` are of rows (N, D) in float64, with a column of ones for an intercept; `labels` (B, N) are from 0 to K - 1.
    Training stops when ||gradient|| <= tolerance * min(positives, negatives) / N * ||gradient at 0||.
    """
    rank = max(one.coordinates.shape[1] for one in axes)
    x = torch.stack([pad(one.coordinates, (0, rank - one.coordinates.shape[1])) for one in axes])  # (B, N, R)
    labels, grid = labels.to(x.device), x.new_tensor(strengths)
    num_rows, num_entries = x.shape[1], labels.numel() * num_classes * len(strengths[0])
    found = []
    with threads_for(min(num_entries, MAX_ENTRIES) * rank), computing_in("fp32", x.device):
        positive = (labels[:, None] == torch.arange(num_classes, device=x.device)[:, None]).double()  # (B, K, N)
        pulls, counts = positive @ x, positive.sum(2)
        rarest = torch.minimum(counts, num_rows - counts).clamp(min=1)
        first_gradients = (x.sum(1, keepdim=True) / 2 - pulls).norm(dim=2)  # (B, K) at w = 0 and C = 1
        limits = tolerance * rarest / num_rows * first_gradients
        start = torch.zeros_like(pulls)
        # As many strengths at once as memory allows; the next ones start from the last of them.
        for chunk in torch.split(grid, max(1, max_entries(x.device) // positive.numel()), dim=1):
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
        joined = torch.cat(found, dim=1)  # (B, S, K, R)
        return [own[..., : one.directions.shape[1]] @ one.directions.T for own, one in zip(joined, axes, strict=True)]


class Axes(NamedTuple):
    """An orthonormal basis in which a regularised linear model is the same, and easier to solve.

        w = V u,  V^T V = I      =>      ||w|| = ||u||   and   X w = (X V) u

    The axes V are eigenvectors of X^T X when there are at least as many rows as columns. Otherwise the solution lies in
    the span of the rows, w = X^T a, and N axes are enough: X X^T = U S^2 U^T gives V = X^T U / S, and X V = U S. That
    makes thousands of sparse columns as cheap as a few hundred dense ones, and it is exact.

    Any orthonormal V will do: the axes of similar rows, a random sample of the same nodes, are nearly as good.
    """

    coordinates: Tensor  # (N, R) X V
    directions: Tensor  # (D, R) V


def principal_axes(x: Block, *, directions: Tensor | None = None) -> Axes:
    """The axes of `x`; or, where it has at least as many rows as columns, those `directions` that are known already."""
    num_rows, num_columns = x.shape
    if num_columns <= num_rows:
        if directions is None:
            _, directions = _eigh(as_dense(x.T @ x))
        return Axes(multiply(x, directions), directions)
    eigenvalues, vectors = _eigh(as_dense(x @ x.T))
    kept = eigenvalues > NEGLIGIBLE * eigenvalues[-1]
    scales, vectors = eigenvalues[kept].sqrt(), vectors[:, kept]
    return Axes(vectors * scales, multiply(x.T, vectors / scales))


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors; in double precision where columns of zeros keep single precision from an end."""
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except RuntimeError:
        values, vectors = torch.linalg.eigh(matrix.double())
    return values.to(matrix.dtype), vectors.to(matrix.dtype)


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
    """The weights (B, P, D) of P problems over the rows `x` (B, N, D) of each of B data sets, from `start`, which is
    like them. `pulls` (B, P, D) are sums of each problem's positive rows, `strengths` (B, P) its C, and `limits` (B, P)
    the norms of the gradient at which to stop."""
    single = x.float()
    rows = single, single.transpose(1, 2).contiguous(), single.square()
    answer = start.clone()
    scores = start @ x.transpose(1, 2)
    problems = _Problems(all_places(pulls), pulls, strengths[:, :, None], limits, start, scores, limits)
    problems = replace(problems, objectives=problems.objective(start, scores))
    for _ in range(max_steps):
        probabilities = torch.sigmoid(problems.scores)  # (B, P, N)
        gradient = problems.weights + problems.strengths * (probabilities @ x - problems.pulls)
        at_work = gradient.norm(dim=2) > problems.limits
        kept = narrow(at_work)
        if kept is not None:
            if kept.numel() == 0:
                break
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


def newton_step(rows: tuple[Tensor, Tensor, Tensor], curvature: Tensor, *, gradient: Tensor, at_work: Tensor) -> Tensor:
    """The steps (B, P, D) for `curvature` (B, P, N), in float64; 0 for problems that are not at work (B, P). `rows` in
    float32 are (B, N, D), transposed, and squared.

        solve over step     (I + X^T diag(curvature) X) step = -gradient

    by preconditioned conjugate gradients. Every problem stops by itself, at a tenth of its residual as in liblinear;
    the host looks after every few rounds only. A tenth does not need double precision: the rounds are in float32. Where
    the steps lead to does need it: gradients, objectives and the stopping rule are float64.

    Cost of a round: two products with X, time O(B P N D).
    """
    x, transposed, squares = rows
    scales = gradient.norm(dim=2, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
    curvature, residual = curvature.float(), -(gradient / scales).float()
    inverse_diagonal = 1 / (1 + curvature @ squares)  # (B, P, D)
    answer, step, places = torch.zeros_like(residual), torch.zeros_like(residual), all_places(residual)
    direction = inverse_diagonal * residual
    energy = (residual * direction).sum(2)
    limits = TOLERANCE**2 * energy
    idle = ~at_work
    for number in range(1, MAX_ROUNDS + 1):
        product = torch.baddbmm(direction, (direction @ transposed).mul_(curvature), x)  # Hessian @ direction
        length = (energy / (direction * product).sum(2)).masked_fill_(idle, 0)[:, :, None]
        step.addcmul_(length, direction)
        residual.addcmul_(length, product, value=-1)
        scaled = inverse_diagonal * residual
        energy, before = (residual * scaled).sum(2), energy
        at_work = at_work & (energy > limits)
        idle = ~at_work
        direction = torch.addcmul(scaled, (energy / before).masked_fill_(idle, 0)[:, :, None], direction)
        if number % ROUNDS_PER_LOOK:
            continue
        kept = narrow(at_work)
        if kept is not None:
            if kept.numel() == 0:
                break
            put(answer, places, step)
            places, step, residual, direction = (take(t, kept) for t in (places, step, residual, direction))
            energy, limits, at_work, idle = (take(t, kept) for t in (energy, limits, at_work, idle))
            curvature, inverse_diagonal = (take(t, kept) for t in (curvature, inverse_diagonal))
    put(answer, places, step)
    steps: Tensor = scales * answer.double()
    return steps


def narrow(at_work: Tensor) -> Tensor | None:
    """(B, number) places of problems to go on with, those at work (B, P) first, as many as the busiest data set has;
    None where leaving is not worth it. Waits for the device."""
    num_sets, width = at_work.shape
    number = int(at_work.sum(1).max())
    if number >= WORTH_LEAVING * width:
        return None
    columns = at_work.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :number]
    return columns + torch.arange(0, num_sets * width, width, device=columns.device)[:, None]


def all_places(tensor: Tensor) -> Tensor:
    """(B, P) the places of the problems of a tensor (B, P, ...): b P + p."""
    num_sets, width = tensor.shape[:2]
    return torch.arange(num_sets * width, device=tensor.device).view(num_sets, width)


def take(tensor: Tensor, places: Tensor) -> Tensor:
    """The problems at these places, (B, P, ...) -> (B, number, ...)."""
    return tensor.flatten(0, 1).index_select(0, places.flatten()).view(*places.shape, *tensor.shape[2:])


def put(answer: Tensor, places: Tensor, values: Tensor) -> None:
    """Write (B, number, ...) values to these places, all of them different, of an answer (B, P, ...)."""
    answer.view(-1, *answer.shape[2:]).index_copy_(0, places.flatten(), values.flatten(0, 1))


def max_entries(device: torch.device) -> int:
    """How large a (B, P, N) array may become."""
    if device.type == "cpu":
        return MAX_ENTRIES
    return int(torch.cuda.get_device_properties(device).total_memory) // (8 * DEVICE_SHARE)


def batch_size(device: torch.device, *, num_entries: int) -> int:
    """How many data sets to solve together, each with arrays of `num_entries`."""
    return max(1, (BATCH_ENTRIES if device.type == "cpu" else max_entries(device)) // num_entries)


@contextmanager
def threads_for(num_multiplications: int) -> Iterator[None]:
    """Small products on one thread: threads that meet after each of them lose more than they win on busy cores."""
    num_threads = torch.get_num_threads()
    if num_threads == 1 or num_multiplications >= SMALL_PRODUCT:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
