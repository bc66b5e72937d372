"""Laws of the probe: probabilities are probabilities, C is the smallest of the best, any kind of array will do, and how
fits are put together changes no answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluation import newton as _newton
from graphstrap.evaluation import probe as _probe
from graphstrap.evaluation.probe import (
    STRENGTHS,
    Fit,
    LinearProbe,
    count_correct,
    fit_by_liblinear,
    fit_models,
    fit_probe,
    gather_counts,
)
from graphstrap.evaluation.task import Vectors
from graphstrap.graph.blocks import SparseMatrix

Array = np.ndarray[Any, Any]
TWO_STRENGTHS = (0.25, 32.0)


def make_clusters(
    *, num_nodes: int = 120, num_classes: int = 4, noise: float = 0.3, seed: int = 0
) -> tuple[Array, Array]:
    """Rows around one direction per class, of any length: only the direction tells."""
    random = np.random.default_rng(seed)
    labels = np.arange(num_nodes) % num_classes
    h = np.eye(num_classes, 8)[labels] + noise * random.standard_normal((num_nodes, 8))
    return h * random.uniform(0.1, 10, (num_nodes, 1)), labels


@pytest.mark.parametrize("solver", ["newton", "liblinear"])
def test_labels_the_nodes_that_have_no_label(solver: str) -> None:
    h, truth = make_clusters()
    labels = np.where(np.arange(len(truth)) < 80, truth, -1)
    probe = fit_probe(h, labels, solver=solver)
    assert (probe.predict(h[80:]) == truth[80:]).mean() > 0.9


def test_probabilities_sum_to_one_and_agree_with_the_prediction() -> None:
    h, labels = make_clusters(noise=0.8)
    probe = fit_probe(h, labels, train=np.arange(60), val=np.arange(60, 90))
    probabilities = probe.probabilities(h)
    assert probabilities.shape == (120, 4)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (probabilities > 0).all()
    np.testing.assert_array_equal(probabilities.argmax(1), probe.predict(h))


def test_probabilities_equal_those_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    h, labels = make_clusters(noise=0.8)
    probe = fit_probe(h, labels, train=np.arange(90), val=np.arange(90, 120))
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    model = OneVsRestClassifier(LogisticRegression(solver="liblinear", C=probe.strength, tol=1e-8))
    model.fit(unit[:90], labels[:90])
    np.testing.assert_allclose(probe.probabilities(h), model.predict_proba(unit), atol=1e-3)


def test_of_equally_good_strengths_the_smallest_is_chosen() -> None:
    h, labels = make_clusters(noise=0.0)  # every strength separates these
    assert fit_probe(h, labels, train=np.arange(60), val=np.arange(60, 120)).strength == 2.0**-10


@pytest.mark.parametrize("power", range(-4, 11))
def test_the_fainter_what_tells_a_rare_class_the_larger_is_the_chosen_strength(power: int) -> None:
    """Half of a squared distance asks for twice C, up to the largest that is tried."""
    labels = (np.arange(80) % 4 == 0).astype(np.int64)
    h = np.stack([np.ones(80), 0.3 * 2 ** (-(power + 1) / 2) * (2 * labels - 1)], axis=1)
    everywhere = np.arange(80)
    assert fit_probe(h, labels, train=everywhere, val=everywhere).strength == 2.0**power


@pytest.mark.parametrize("solver", ["newton", "liblinear"])
@pytest.mark.parametrize("with_val", [False, True])
def test_by_likelihood_the_best_log_loss_decides_between_equally_accurate_strengths(
    solver: str, with_val: bool
) -> None:
    from sklearn.metrics import accuracy_score, log_loss

    h, labels = make_clusters(noise=0.35, num_nodes=200)
    train, val = np.arange(80), np.arange(80, 200)
    probe = fit_probe(h, labels, train=train, val=val if with_val else None, solver=solver, by_likelihood=True)
    halves = np.random.default_rng(0)
    pairs = [np.split(halves.permutation(train), [40]) for _ in range(5)]
    accuracies, losses = np.zeros(len(STRENGTHS)), np.zeros(len(STRENGTHS))
    unit = torch.from_numpy(h / np.linalg.norm(h, axis=1, keepdims=True))
    x = torch.cat([unit, torch.ones(200, 1)], 1)
    for fitted, held_out in [(train, val)] if with_val else pairs:
        truth, known = labels[held_out], torch.from_numpy(labels[fitted])
        weights = fit_by_liblinear(x[fitted], known, num_classes=4, strengths=STRENGTHS)
        sigmoids = torch.sigmoid(torch.einsum("nd,skd->snk", x[held_out], weights))
        chances = (sigmoids / sigmoids.sum(2, keepdim=True)).numpy()
        accuracies += [accuracy_score(truth, one.argmax(1)) for one in chances]
        losses += [log_loss(truth, one) for one in chances]
    best = np.flatnonzero(np.isclose(accuracies, accuracies.max()))
    assert len(best) > 1
    assert probe.strength == STRENGTHS[best[losses[best].argmin()]]


def test_chosen_strength_is_the_best_on_validation() -> None:
    h, labels = make_clusters(noise=0.9, num_nodes=200)
    train, val = np.arange(80), np.arange(80, 200)
    probe = fit_probe(h, labels, train=train, val=val)
    accuracies = []
    unit = torch.from_numpy(h / np.linalg.norm(h, axis=1, keepdims=True))
    x = torch.cat([unit, torch.ones(200, 1)], 1)
    weights = fit_by_liblinear(x[train], torch.from_numpy(labels[train]), num_classes=4, strengths=STRENGTHS)
    for one in weights:
        accuracies.append(float(((x[val] @ one.T).argmax(1).numpy() == labels[val]).mean()))
    assert probe.strength == STRENGTHS[int(np.argmax(accuracies))]


def test_masks_and_node_numbers_mean_the_same() -> None:
    h, labels = make_clusters(noise=0.8)
    mask = np.arange(120) < 70
    by_mask = fit_probe(h, labels, train=mask, val=torch.from_numpy(~mask))
    by_number = fit_probe(h, labels, train=np.flatnonzero(mask), val=np.flatnonzero(~mask))
    assert torch.equal(by_mask.weights, by_number.weights)


def test_halves_depend_on_the_seed_only() -> None:
    h, labels = make_clusters(noise=1.2, num_nodes=60)
    assert torch.equal(fit_probe(h, labels, seed=3).weights, fit_probe(h, labels, seed=3).weights)
    strengths = {fit_probe(h, labels, seed=seed).strength for seed in range(8)}
    assert len(strengths) > 1


def test_any_kind_of_array_gives_the_same_probe(tmp_path: Any) -> None:
    h, labels = make_clusters(noise=0.8)
    h = np.where(h > 0.2, h, 0).astype(np.float32)
    mapped = np.lib.format.open_memmap(tmp_path / "h.npy", mode="w+", dtype=np.float32, shape=h.shape)
    mapped[:] = h
    read_only = np.load(tmp_path / "h.npy", mmap_mode="r")
    expected = fit_probe(h, labels).weights
    matrix = scipy.sparse.csr_matrix(h)
    for other in (torch.from_numpy(h), read_only, matrix, SparseMatrix.from_scipy(matrix)):
        torch.testing.assert_close(fit_probe(other, labels).weights, expected)


@pytest.mark.parametrize("max_row_space", [500, 10])
def test_wide_sparse_rows_give_what_dense_rows_give(max_row_space: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Newton's method in the row space, and by liblinear when there are more rows than that is good for."""
    monkeypatch.setattr(_probe, "MAX_ROW_SPACE", max_row_space)
    random = np.random.default_rng(0)
    labels = np.arange(90) % 3
    words = random.random((90, 2000)) < 0.004
    words[:, :60] |= (random.random((90, 60)) < 0.2) & (np.arange(60) // 20 == labels[:, None])
    matrix = scipy.sparse.csr_matrix(words.astype(np.float32))
    assert Vectors.of(matrix).is_sparse
    train, val = np.arange(60), np.arange(60, 90)
    sparse = fit_probe(matrix, labels, train=train, val=val)
    dense = fit_probe(words.astype(float), labels, train=train, val=val)
    assert sparse.strength == dense.strength
    torch.testing.assert_close(sparse.weights, dense.weights, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("solver", ["newton", "liblinear"])
def test_class_without_a_training_node_is_never_predicted(solver: str) -> None:
    h, labels = make_clusters()
    probe = fit_probe(h, labels, train=labels != 2, val=np.arange(120), solver=solver, num_classes=6)
    assert probe.classes.tolist() == [0, 1, 3]
    assert 2 not in probe.predict(h)
    probabilities = probe.probabilities(h)
    assert probabilities.shape == (120, 6)
    assert not probabilities[:, [2, 4, 5]].any()
    np.testing.assert_allclose(probabilities.sum(1), 1)


@pytest.mark.parametrize("solver", ["newton", "liblinear"])
def test_single_class_is_predicted_everywhere(solver: str) -> None:
    h, labels = make_clusters()
    probe = fit_probe(h, labels, train=labels == 1, val=np.arange(120), solver=solver)
    assert set(probe.predict(h).tolist()) == {1}


def test_row_of_zeros_stays_a_row_of_zeros() -> None:
    h, labels = make_clusters()
    h[5] = 0
    vectors = Vectors.of(h)
    taken = vectors.take(np.array([4, 5]))
    torch.testing.assert_close(taken.norm(dim=1), torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert np.isfinite(fit_probe(h, labels).probabilities(h)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"h": np.full((120, 8), np.nan)}, "NaN"),
        ({"h": np.zeros((119, 8))}, "119 rows"),
        ({"h": np.zeros(120)}, "one row per node"),
        ({"h": np.array([["a"]] * 120)}, "real numbers"),
        ({"labels": np.zeros((120, 2), dtype=np.int64)}, "several labels"),
        ({"labels": np.zeros(120)}, "one integer per node"),
        ({"labels": np.full(120, -1)}, "no labelled node"),
        ({"train": np.array([500])}, "from 0 to 119"),
        ({"train": np.array([True])}, "mask"),
        ({"train": np.arange(120) % 2}, "boolean mask"),
        ({"train": np.linspace(0.0, 1.0, 120)}, "boolean mask"),
        ({"train": np.array([3])}, "at least 2"),
        ({"solver": "adam"}, "newton, liblinear"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change: dict[str, Any], message: str) -> None:
    h, labels = make_clusters()
    arguments: dict[str, Any] = {"h": h, "labels": labels, **change}
    with pytest.raises(InputError, match=message):
        fit_probe(**arguments)


def test_probe_refuses_rows_of_another_width() -> None:
    h, labels = make_clusters()
    probe: LinearProbe = fit_probe(h, labels)
    with pytest.raises(InputError, match="fitted on 8 columns, h has 7"):
        probe.predict(h[:, :7])


def make_fits(*, num_embeddings: int = 2) -> list[Fit]:
    """Splits of two sizes, one of them without the last class, of some embeddings of the same 90 nodes."""
    random = np.random.default_rng(0)
    labels = np.arange(90) % 3
    fits = []
    for _ in range(num_embeddings):
        vectors = Vectors.of(np.eye(3, 5)[labels] + 0.6 * random.standard_normal((90, 5)))
        for size in (30, 40, 30):
            fits.append(Fit(vectors, labels, random.permutation(90)[:size], TWO_STRENGTHS))
        fits.append(Fit(vectors, labels, np.flatnonzero(labels < 2)[:30], TWO_STRENGTHS))
    return fits


def solve(fits: list[Fit]) -> list[Tensor]:
    found = dict(fit_models(fits, solver="newton"))
    assert sorted(found) == list(range(len(fits)))
    return [found[place] for place in range(len(fits))]


def batch_sizes(fits: list[Fit], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    whole = _newton.fit_together

    def record(axes: Any, *args: Any, **rest: Any) -> Any:
        sizes.append(len(axes))
        return whole(axes, *args, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(_newton, "fit_together", record)
        solve(fits)
    return sizes


def test_fits_alike_are_solved_together_as_far_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = make_fits()
    assert batch_sizes(fits, monkeypatch) == [4, 2, 2]
    monkeypatch.setattr(_newton, "BATCH_ENTRIES", 3 * fits[0].num_entries)
    assert batch_sizes(fits, monkeypatch) == [3, 1, 2, 2]
    monkeypatch.setattr(_newton, "BATCH_ENTRIES", 1)
    assert batch_sizes(fits, monkeypatch) == [1] * 8


def test_batches_change_nothing_beyond_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = make_fits()
    together = solve(fits)
    monkeypatch.setattr(_newton, "BATCH_ENTRIES", 1)
    for one, other in zip(together, solve(fits), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
    assert [len(fit.classes) for fit in fits] == [3, 3, 3, 2] * 2
    assert [weights.shape[1] for weights in together] == [3, 3, 3, 2] * 2


def test_axes_of_another_split_change_nothing_beyond_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = make_fits()
    own = solve(fits)
    monkeypatch.setattr(_probe, "shares_axes", lambda vectors: True)
    assert len(_probe._shared_directions(fits)) == 2
    for one, other in zip(own, solve(fits), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


def test_counts_are_those_of_the_classes_that_the_scores_name() -> None:
    fits = make_fits(num_embeddings=1)
    for fit, weights in zip(fits, solve(fits), strict=True):
        nodes = np.setdiff1d(np.arange(90), fit.nodes)
        scores = fit.vectors.take_with_constant(nodes) @ weights.transpose(1, 2)  # (S, N, K)
        expected = (fit.classes[scores.argmax(2).numpy()] == fit.labels[nodes]).sum(1)
        found = count_correct(fit, weights, nodes)
        np.testing.assert_array_equal(gather_counts([found])[0], expected)
