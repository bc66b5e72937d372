"""Laws of the solver: it reaches liblinear's minimum, whatever the order of the rows and the axes of the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch.nn import functional as F

from graphstrap.evaluation import newton as _newton
from graphstrap.evaluation.newton import (
    all_places,
    fit_together,
    minimise,
    narrow,
    principal_axes,
    put,
    take,
)
from graphstrap.evaluation.probe import fit_by_liblinear

STRENGTHS = (2.0**-10, 0.25, 1.0, 32.0, 1024.0)


def make_problem(*, num_rows: int, num_columns: int, num_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Unit rows in which the classes overlap, with columns of very different scale, and a last column of ones."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(num_rows) % num_classes)
    scales = 10.0 ** random.uniform(-2, 0, num_columns)
    means = random.standard_normal((num_classes, num_columns))
    h = (means[labels] + 2 * random.standard_normal((num_rows, num_columns))) * scales
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    return torch.from_numpy(np.hstack([h, np.ones((num_rows, 1))])), torch.from_numpy(labels)


def fit_one_vs_rest(x: Any, labels: Tensor, *, num_classes: int, strengths: tuple[float, ...], **rest: Any) -> Tensor:
    """One data set alone."""
    axes, own = [principal_axes(x)], labels[None]
    return fit_together(axes, own, num_classes=num_classes, strengths=[strengths], **rest)[0]


def one_vs_rest_signs(labels: Tensor) -> Tensor:
    return torch.where(labels == torch.arange(int(labels.max()) + 1)[:, None], 1.0, -1.0).double()  # (K, N)


def objectives(x: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """(S, K), written down once more and differently."""
    margins = one_vs_rest_signs(labels) * torch.einsum("skd,nd->skn", weights, x)
    losses = torch.logaddexp(torch.zeros(()), -margins).sum(2)
    return weights.square().sum(2) / 2 + torch.tensor(STRENGTHS)[:, None] * losses


def gradient_norms(x: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    weights = weights.clone().requires_grad_()
    gradient: Tensor = torch.autograd.grad(objectives(x, labels, weights).sum(), weights)[0]
    return gradient.square().sum(2).sqrt()  # (S, K)


SHAPES = [(300, 20, 4), (40, 90, 3), (500, 8, 2), (60, 60, 7)]


@pytest.mark.parametrize(("num_rows", "num_columns", "num_classes"), SHAPES)
@pytest.mark.parametrize("tolerance", [1e-4, 1e-8])
def test_gradient_ends_below_the_tolerance(num_rows: int, num_columns: int, num_classes: int, tolerance: float) -> None:
    x, labels = make_problem(num_rows=num_rows, num_columns=num_columns, num_classes=num_classes, seed=1)
    weights = fit_one_vs_rest(x, labels, num_classes=num_classes, strengths=STRENGTHS, tolerance=tolerance)
    at_zero = gradient_norms(x, labels, torch.zeros_like(weights))
    positives = torch.bincount(labels)
    rarest = torch.minimum(positives, num_rows - positives)
    limits = tolerance * rarest / num_rows * at_zero
    assert (gradient_norms(x, labels, weights) <= 1.001 * limits + 1e-9).all()


@pytest.mark.parametrize(("num_rows", "num_columns", "num_classes"), SHAPES)
def test_objective_is_no_worse_than_that_of_liblinear(num_rows: int, num_columns: int, num_classes: int) -> None:
    x, labels = make_problem(num_rows=num_rows, num_columns=num_columns, num_classes=num_classes, seed=2)
    theirs = fit_by_liblinear(x, labels, num_classes=num_classes, strengths=STRENGTHS)
    least = objectives(x, labels, theirs)
    for tolerance, slack in ((1e-4, 1e-5), (1e-7, 1e-12)):  # the first is liblinear's own
        ours = fit_one_vs_rest(x, labels, num_classes=num_classes, strengths=STRENGTHS, tolerance=tolerance)
        assert (objectives(x, labels, ours) <= least * (1 + slack)).all()


def test_predictions_equal_those_of_scikit_learn_itself() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    x, labels = make_problem(num_rows=400, num_columns=12, num_classes=5, seed=3)
    model = OneVsRestClassifier(LogisticRegression(solver="liblinear", C=32.0, tol=1e-9)).fit(
        x[:200, :-1], labels[:200]
    )
    weights = fit_one_vs_rest(x[:200], labels[:200], num_classes=5, strengths=(32.0,), tolerance=1e-9)
    scores = x[200:] @ weights[0].T
    np.testing.assert_allclose(scores, model.decision_function(x[200:, :-1]), atol=1e-5)
    np.testing.assert_array_equal(scores.argmax(1), model.predict(x[200:, :-1]))


def test_order_of_rows_does_not_matter() -> None:
    x, labels = make_problem(num_rows=150, num_columns=10, num_classes=3, seed=4)
    order = torch.randperm(150, generator=torch.Generator().manual_seed(0))
    straight = fit_one_vs_rest(x, labels, num_classes=3, strengths=STRENGTHS, tolerance=1e-9)
    shuffled = fit_one_vs_rest(x[order], labels[order], num_classes=3, strengths=STRENGTHS, tolerance=1e-9)
    torch.testing.assert_close(shuffled, straight, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("num_rows", [150, 9])
def test_rotation_of_the_columns_rotates_the_weights(num_rows: int) -> None:
    x, labels = make_problem(num_rows=num_rows, num_columns=10, num_classes=3, seed=5)
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(11, 11, generator=generator, dtype=torch.float64)).Q
    straight = fit_one_vs_rest(x, labels, num_classes=3, strengths=STRENGTHS, tolerance=1e-9)
    rotated = fit_one_vs_rest(x @ rotation, labels, num_classes=3, strengths=STRENGTHS, tolerance=1e-9)
    torch.testing.assert_close(rotated @ rotation.T, straight, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("num_rows", "num_columns"), [(80, 15), (15, 80)])
def test_sparse_rows_give_what_dense_rows_give(num_rows: int, num_columns: int) -> None:
    x, labels = make_problem(num_rows=num_rows, num_columns=num_columns, num_classes=3, seed=6)
    x[:, :-1] *= torch.rand(x[:, :-1].shape, generator=torch.Generator().manual_seed(0)) < 0.3
    sparse = scipy.sparse.csr_matrix(x.numpy())
    from_dense = fit_one_vs_rest(x, labels, num_classes=3, strengths=STRENGTHS, tolerance=1e-9)
    from_sparse = fit_one_vs_rest(sparse, labels, num_classes=3, strengths=STRENGTHS, tolerance=1e-9)
    torch.testing.assert_close(from_sparse, from_dense, rtol=1e-6, atol=1e-7)


def test_axes_are_orthonormal_and_keep_every_row() -> None:
    for num_rows, num_columns in [(50, 12), (12, 50)]:
        x, _ = make_problem(num_rows=num_rows, num_columns=num_columns, num_classes=2, seed=7)
        axes = principal_axes(x)
        identity = torch.eye(axes.directions.shape[1], dtype=torch.float64)
        torch.testing.assert_close(axes.directions.T @ axes.directions, identity, rtol=0, atol=1e-6)
        torch.testing.assert_close(axes.coordinates @ axes.directions.T, x, rtol=0, atol=1e-6)


def test_chunks_and_warm_starts_change_nothing_beyond_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = make_problem(num_rows=120, num_columns=10, num_classes=4, seed=8)
    together = fit_one_vs_rest(x, labels, num_classes=4, strengths=STRENGTHS, tolerance=1e-9)
    monkeypatch.setattr(_newton, "MAX_ENTRIES", 2 * labels.numel() * 4)
    in_chunks = fit_one_vs_rest(x, labels, num_classes=4, strengths=STRENGTHS, tolerance=1e-9)
    torch.testing.assert_close(in_chunks, together, rtol=1e-6, atol=1e-7)


def test_same_input_same_bits_and_threads_are_given_back() -> None:
    x, labels = make_problem(num_rows=200, num_columns=16, num_classes=4, seed=9)
    num_threads = torch.get_num_threads()
    first = fit_one_vs_rest(x, labels, num_classes=4, strengths=STRENGTHS)
    second = fit_one_vs_rest(x, labels, num_classes=4, strengths=STRENGTHS)
    assert torch.equal(first, second)
    assert torch.get_num_threads() == num_threads


def minimise_for(x: Tensor, labels: Tensor, *, strengths: list[float], start: Tensor, tolerance: float) -> Tensor:
    """Class 0 against the rest, for each of the strengths."""
    at_zero = (x.sum(0) / 2 - x[labels == 0].sum(0)).norm()
    chosen = torch.tensor([strengths], dtype=torch.float64)
    return minimise(
        x[None],
        x[labels == 0].sum(0).repeat(1, len(strengths), 1),
        strengths=chosen,
        limits=tolerance * chosen * at_zero,
        start=start.expand(1, len(strengths), -1),
    )[0]


def test_reaches_the_minimum_from_a_start_that_is_far_off() -> None:
    x, labels = make_problem(num_rows=100, num_columns=6, num_classes=2, seed=10)
    near, far = (
        minimise_for(x, labels, strengths=[1024.0], start=torch.full((7,), value).double(), tolerance=1e-10)
        for value in (0.0, 300.0)
    )
    torch.testing.assert_close(far, near, rtol=1e-6, atol=1e-6)


def test_problem_that_is_done_does_not_move_with_the_slower_ones() -> None:
    """The loose limit leaves it far from its minimum, which it would approach if it took part in one more step."""
    x, labels = make_problem(num_rows=100, num_columns=6, num_classes=2, seed=13)
    start = torch.zeros(7, dtype=torch.float64)
    alone = minimise_for(x, labels, strengths=[0.25], start=start, tolerance=0.1)[0]
    for others in ([1024.0], [1024.0] * 9, [2.0**power for power in range(10)]):
        beside = minimise_for(x, labels, strengths=[*others, 0.25], start=start, tolerance=0.1)[-1]
        torch.testing.assert_close(beside, alone, rtol=1e-5, atol=1e-6)
    minimum = minimise_for(x, labels, strengths=[0.25], start=start, tolerance=1e-9)[0]
    assert (minimum - alone).norm() > 1e-2 * minimum.norm()


def test_data_sets_give_together_what_each_gives_alone_in_any_order() -> None:
    sets = [make_problem(num_rows=80, num_columns=9, num_classes=3, seed=seed) for seed in range(5)]
    strengths = [tuple(strength * 2.0**place for strength in STRENGTHS[:4]) for place in range(5)]
    alone = [
        fit_one_vs_rest(x, labels, num_classes=3, strengths=own, tolerance=1e-9)
        for (x, labels), own in zip(sets, strengths, strict=True)
    ]
    for order in ([0, 1, 2, 3, 4], [3, 1, 4, 0, 2], [2, 4]):
        together = fit_together(
            [principal_axes(sets[place][0]) for place in order],
            torch.stack([sets[place][1] for place in order]),
            num_classes=3,
            strengths=[strengths[place] for place in order],
            tolerance=1e-9,
        )
        for place, found in zip(order, together, strict=True):
            torch.testing.assert_close(found, alone[place], rtol=1e-6, atol=1e-7)


def test_data_sets_of_different_rank_are_solved_together() -> None:
    x, labels = make_problem(num_rows=12, num_columns=30, num_classes=3, seed=14)
    flat = x.clone()
    flat[6:] = flat[:6]
    both = [principal_axes(x), principal_axes(flat)]
    assert both[0].coordinates.shape[1] > both[1].coordinates.shape[1]
    together = fit_together(both, labels.repeat(2, 1), num_classes=3, strengths=[STRENGTHS] * 2, tolerance=1e-9)
    for found, own in zip(together, (x, flat), strict=True):
        alone = fit_one_vs_rest(own, labels, num_classes=3, strengths=STRENGTHS, tolerance=1e-9)
        torch.testing.assert_close(found, alone, rtol=1e-6, atol=1e-7)


def test_permuting_the_classes_permutes_the_weights() -> None:
    x, labels = make_problem(num_rows=120, num_columns=8, num_classes=4, seed=15)
    order = torch.tensor([2, 0, 3, 1])
    straight = fit_one_vs_rest(x, labels, num_classes=4, strengths=STRENGTHS, tolerance=1e-9)
    renamed = fit_one_vs_rest(x, order[labels], num_classes=4, strengths=STRENGTHS, tolerance=1e-9)
    torch.testing.assert_close(renamed[:, order], straight, rtol=1e-6, atol=1e-7)


def test_data_set_of_zeros_stays_at_zero_and_harms_nobody() -> None:
    """Its gradient is exactly zero, and so is all that a step would divide by."""
    x, labels = make_problem(num_rows=60, num_columns=5, num_classes=2, seed=16)
    axes, zeros = principal_axes(x), principal_axes(torch.zeros_like(x))
    found, nothing = fit_together([axes, zeros], labels.repeat(2, 1), num_classes=2, strengths=[STRENGTHS] * 2)
    assert not nothing.any()
    torch.testing.assert_close(found, fit_one_vs_rest(x, labels, num_classes=2, strengths=STRENGTHS))


def test_single_column_is_solved_in_one_round_and_stays_finite() -> None:
    x, labels = make_problem(num_rows=60, num_columns=5, num_classes=2, seed=17)
    weights = fit_one_vs_rest(x[:, :1].contiguous(), labels, num_classes=2, strengths=STRENGTHS, tolerance=1e-9)
    assert weights.isfinite().all()
    torch.testing.assert_close(weights[:, 0], -weights[:, 1])


def test_training_in_half_precision_around_it_changes_nothing() -> None:
    x, labels = make_problem(num_rows=100, num_columns=10, num_classes=3, seed=18)
    outside = fit_one_vs_rest(x, labels, num_classes=3, strengths=STRENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = fit_one_vs_rest(x, labels, num_classes=3, strengths=STRENGTHS)
    assert torch.equal(inside, outside)


def test_says_so_when_it_runs_out_of_steps() -> None:
    x, labels = make_problem(num_rows=100, num_columns=6, num_classes=2, seed=11)
    with pytest.warns(RuntimeWarning, match="had not converged after 1 steps"):
        fit_one_vs_rest(x, labels, num_classes=2, strengths=(1024.0,), max_steps=1)


@pytest.mark.gpu
def test_cuda_gives_what_the_cpu_gives() -> None:
    x, labels = make_problem(num_rows=300, num_columns=20, num_classes=4, seed=12)
    on_cpu = fit_one_vs_rest(x, labels, num_classes=4, strengths=STRENGTHS, tolerance=1e-9)
    on_cuda = fit_one_vs_rest(x.cuda(), labels, num_classes=4, strengths=STRENGTHS, tolerance=1e-9)
    assert on_cuda.is_cuda
    torch.testing.assert_close(on_cuda.cpu(), on_cpu, rtol=1e-6, atol=1e-7)


def test_width_is_that_of_the_busiest_data_set() -> None:
    at_work = torch.tensor([[True, False, False, True, False], [False] * 5, [False, True, False, False, False]])
    for mask, number in ((at_work, 2), (torch.zeros(3, 5, dtype=torch.bool), 0)):
        kept = narrow(mask)
        assert kept is not None
        assert kept.shape == (3, number)


def test_all_at_work_are_kept_in_their_order() -> None:
    at_work = torch.rand(6, 40, generator=torch.Generator().manual_seed(0)) < 0.3
    kept = narrow(at_work)
    assert kept is not None
    for number, (mask, places) in enumerate(zip(at_work, kept, strict=True)):
        expected = 40 * number + mask.nonzero()[:, 0]
        assert torch.equal(places[: len(expected)], expected)
        assert len(set(places.tolist())) == len(places)
        assert ((places >= 40 * number) & (places < 40 * (number + 1))).all()


def test_few_leavers_are_not_worth_it() -> None:
    at_work = torch.arange(10)[None] != 4
    assert narrow(at_work) is None


def test_what_is_taken_and_put_back_changes_nothing_else() -> None:
    whole = torch.arange(24.0).view(2, 4, 3)
    places = torch.tensor([[3, 1], [4, 6]])
    taken = take(whole, places)
    assert torch.equal(taken[1, 1], whole[1, 2])
    assert torch.equal(take(whole[:, :, 0], places), taken[:, :, 0])
    answer = torch.zeros_like(whole)
    put(answer, places, taken)
    assert torch.equal(take(answer, places), taken)
    assert not take(answer, torch.tensor([[0, 2], [5, 7]])).any()
    assert torch.equal(take(whole, all_places(whole)), whole)


def test_columns_of_zeros_do_not_keep_axes_from_being_found() -> None:
    """Single precision does not come to an end here; whether it does hangs on the columns' places."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(200, 256)
    x[:, torch.randperm(256, generator=generator)[:8]] = F.normalize(torch.randn(200, 8, generator=generator), dim=1)
    x[:, -1] = 1
    for table in (x, x.T.contiguous()):
        axes = principal_axes(table)
        assert axes.directions.dtype == torch.float32
        torch.testing.assert_close(axes.coordinates @ axes.directions.T, table, rtol=1e-4, atol=1e-5)
