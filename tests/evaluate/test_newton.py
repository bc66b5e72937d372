"""Laws of the solver: it reaches liblinear's minimum, whatever the order of the rows and the axes of the columns."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from graphstrap.evaluate import _liblinear, _newton
from graphstrap.evaluate._axes import principal_axes
from graphstrap.evaluate._newton import fit_one_vs_rest, minimise

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
    theirs = _liblinear.fit_one_vs_rest(x, labels, num_classes=num_classes, strengths=STRENGTHS)
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


def test_reaches_the_minimum_from_a_start_that_is_far_off() -> None:
    x, labels = make_problem(num_rows=100, num_columns=6, num_classes=2, seed=10)
    signs = one_vs_rest_signs(labels)
    strengths = torch.tensor([1024.0, 1024.0], dtype=torch.float64)
    with _newton.threads_for(signs.numel()):
        near = minimise(x, signs, strengths=strengths, start=torch.zeros(2, 7).double(), tolerance=1e-9)
        far = minimise(x, signs, strengths=strengths, start=torch.full((2, 7), 300.0).double(), tolerance=1e-9)
    torch.testing.assert_close(far, near, rtol=1e-6, atol=1e-6)


def test_says_so_when_it_runs_out_of_steps() -> None:
    x, labels = make_problem(num_rows=100, num_columns=6, num_classes=2, seed=11)
    with pytest.warns(RuntimeWarning, match="had not converged after 1 steps"):
        fit_one_vs_rest(x, labels, num_classes=2, strengths=(1024.0,), max_steps=1)


@pytest.mark.gpu
def test_cuda_gives_what_the_cpu_gives() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    x, labels = make_problem(num_rows=300, num_columns=20, num_classes=4, seed=12)
    on_cpu = fit_one_vs_rest(x, labels, num_classes=4, strengths=STRENGTHS, tolerance=1e-9)
    on_cuda = fit_one_vs_rest(x.cuda(), labels, num_classes=4, strengths=STRENGTHS, tolerance=1e-9)
    assert on_cuda.is_cuda
    torch.testing.assert_close(on_cuda.cpu(), on_cpu, rtol=1e-6, atol=1e-7)
