"""Laws of the protocols: what a split is, what chance gives, and that the outcome says what was done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from graphstrap.errors import InputError
from graphstrap.evaluation import protocols
from graphstrap.evaluation.probe import STRENGTHS, LinearProbe, Sample, choose_strengths
from graphstrap.evaluation.protocols import evaluate, evaluate_many
from graphstrap.evaluation.registry import PROTOCOLS, Evaluation, Protocol, find_protocol
from graphstrap.evaluation.task import fifths, run_generator, tenths
from graphstrap.graph import Graph, Splits

Array = np.ndarray[Any, Any]
RANDOM_SPLITS = ["paper", "reference", "knn"]


def make_graph(labels: Array, *, splits: Splits | None = None) -> Graph:
    return replace(Graph.from_edges([0], [1], num_nodes=len(labels), labels=labels), splits=splits)


def make_embeddings(labels: Array, *, noise: float, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    return np.eye(int(labels.max()) + 1, 6)[labels] + noise * random.standard_normal((len(labels), 6))


@pytest.mark.parametrize("protocol", [*RANDOM_SPLITS, "clustering"])
def test_separable_classes_give_one_hundred(protocol: str) -> None:
    labels = np.arange(200) % 4
    outcome = evaluate(make_embeddings(labels, noise=0.01), make_graph(labels), protocol=protocol, num_runs=2)
    assert outcome.mean == pytest.approx(100)
    assert outcome.std == pytest.approx(0)


@pytest.mark.parametrize("solver", ["newton", "liblinear"])
@pytest.mark.parametrize("protocol", RANDOM_SPLITS)
def test_labels_without_meaning_give_chance(protocol: str, solver: str) -> None:
    random = np.random.default_rng(1)
    labels = random.permutation(np.arange(1000) % 4)
    outcome = evaluate(
        random.standard_normal((1000, 6)), make_graph(labels), protocol=protocol, num_runs=1, solver=solver
    )
    assert abs(outcome.mean - 25) < 4 * 100 * np.sqrt(0.25 * 0.75 / 800)


def test_clusters_of_noise_agree_with_nothing() -> None:
    random = np.random.default_rng(2)
    labels = random.permutation(np.arange(1000) % 4)
    outcome = evaluate(random.standard_normal((1000, 6)), make_graph(labels), protocol="clustering", num_runs=2)
    assert outcome.metric == "nmi"
    assert outcome.mean < 3
    assert "ari" in outcome.detail


@pytest.mark.parametrize("num_nodes", [10, 99, 1234])
def test_splits_are_disjoint_complete_and_of_the_right_size(num_nodes: int) -> None:
    nodes = np.random.default_rng(0).choice(10_000, num_nodes, replace=False)
    for draw, sizes in ((tenths, (num_nodes // 10, num_nodes // 10)), (fifths, (num_nodes // 5, 0))):
        split = draw(nodes, run_generator(0, 0))
        assert (len(split.train), len(split.val)) == sizes
        assert sorted(np.concatenate(split)) == sorted(nodes)


def test_split_depends_on_seed_and_run_only() -> None:
    nodes = np.arange(100)
    assert np.array_equal(tenths(nodes, run_generator(3, 1)).test, tenths(nodes, run_generator(3, 1)).test)
    for other in ((3, 2), (4, 1)):
        assert not np.array_equal(tenths(nodes, run_generator(3, 1)).test, tenths(nodes, run_generator(*other)).test)


@pytest.mark.parametrize("protocol", [*RANDOM_SPLITS, "clustering"])
def test_same_seed_same_outcome_and_more_runs_keep_the_first(protocol: str) -> None:
    labels = np.arange(150) % 3
    h, graph = make_embeddings(labels, noise=0.7), make_graph(labels)
    first = evaluate(h, graph, protocol=protocol, num_runs=3, seed=5)
    assert evaluate(h, graph, protocol=protocol, num_runs=3, seed=5) == first
    assert evaluate(h, graph, protocol=protocol, num_runs=2, seed=5).runs == first.runs[:2]


@pytest.mark.parametrize("protocol", [*RANDOM_SPLITS, "clustering", "public"])
def test_many_embeddings_give_together_what_each_gives_alone_in_any_order(protocol: str) -> None:
    labels = np.arange(160) % 4
    train = torch.arange(160)[:, None] % 5 == 0
    graph = make_graph(labels, splits=Splits(train, torch.zeros_like(train), ~train))
    embeddings = [make_embeddings(labels, noise=0.4 + 0.2 * place, seed=place) for place in range(3)]
    seeds = [7, 0, 7]
    pairs = list(zip(embeddings, seeds, strict=True))
    alone = [evaluate(h, graph, protocol=protocol, num_runs=2, seed=seed) for h, seed in pairs]
    for order in ([0, 1, 2], [2, 0, 1]):
        together = evaluate_many(
            [embeddings[place] for place in order],
            graph,
            protocol=protocol,
            num_runs=2,
            seeds=[seeds[place] for place in order],
        )
        for place, found in zip(order, together, strict=True):
            assert found.runs == pytest.approx(alone[place].runs, abs=1)  # a node on the border may go either way
            assert found.metric == alone[place].metric


def test_no_embeddings_give_no_evaluations_and_every_one_needs_a_seed() -> None:
    labels = np.arange(50) % 2
    assert evaluate_many([], make_graph(labels), seeds=[]) == []
    with pytest.raises(InputError, match="each of the 1 embeddings, got 2"):
        evaluate_many([make_embeddings(labels, noise=0.1)], make_graph(labels), seeds=[0, 1])


@pytest.mark.gpu
@pytest.mark.parametrize("protocol", RANDOM_SPLITS)
def test_cuda_gives_what_the_cpu_gives(protocol: str) -> None:
    labels = np.arange(2000) % 4
    graph = make_graph(labels)
    embeddings = [torch.from_numpy(make_embeddings(labels, noise=0.7, seed=seed)) for seed in range(3)]
    on_cpu = evaluate_many(embeddings, graph, protocol=protocol, seeds=range(3))
    on_cuda = evaluate_many([h.cuda() for h in embeddings], graph, protocol=protocol, seeds=range(3))
    for one, other in zip(on_cpu, on_cuda, strict=True):
        assert abs(one.mean - other.mean) < 0.1


@pytest.mark.parametrize(("protocol", "num_train", "num_val"), [("paper", 20, 20), ("reference", 40, 0)])
def test_paper_and_reference_fit_on_what_they_say(
    protocol: str, num_train: int, num_val: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    def choose(samples: list[Sample], *, solver: str) -> list[LinearProbe]:
        seen.extend((len(sample.fit.nodes), len(sample.val)) for sample in samples)
        return choose_strengths(samples, solver=solver)

    monkeypatch.setattr(protocols, "choose_strengths", choose)
    labels = np.arange(200) % 4
    evaluate(make_embeddings(labels, noise=0.5), make_graph(labels), protocol=protocol, num_runs=2)
    assert seen == [(num_train, num_val)] * 2


def test_reference_equals_scikit_learn() -> None:
    """C, a power of two, by five random halves of the training nodes; then one fit on all of them."""
    random = np.random.default_rng(0)
    labels = (random.random(400) < 0.45).astype(np.int64)
    h = random.standard_normal((400, 6)) * [1, 1, 1, 1, 1, 5] + np.outer(labels, [3, 2, 2, 0, 0, 0])
    x, strengths = h / np.linalg.norm(h, axis=1, keepdims=True), [2.0**power for power in range(-10, 11)]

    def fitted(strength: float, nodes: Array) -> LogisticRegression:
        return LogisticRegression(solver="liblinear", C=strength).fit(x[nodes], labels[nodes])

    expected = []
    for run in range(3):
        train, _, test = fifths(np.arange(400), run_generator(0, run))
        generator, hits = np.random.default_rng((0, run, 1)), np.zeros(len(strengths))
        for _ in range(5):
            half, other = np.split(generator.permutation(train), 2)
            hits += [(fitted(strength, half).predict(x[other]) == labels[other]).sum() for strength in strengths]
        expected.append(100 * fitted(strengths[int(hits.argmax())], train).score(x[test], labels[test]))
    outcome = evaluate(h, make_graph(labels), protocol="reference", num_runs=3, solver="liblinear")
    assert outcome.runs == pytest.approx(expected)


@pytest.mark.parametrize("protocol", ["public", "adamw", "adamw-reference", "auc"])
@pytest.mark.parametrize("part", ["train", "val"])
def test_a_published_split_that_tests_on_what_it_fits_or_chooses_on_is_refused(protocol: str, part: str) -> None:
    labels, place = np.arange(90) % 2, torch.arange(90)[:, None]
    masks = {"train": place < 30, "val": (place >= 30) & (place < 60), "test": place >= 60}
    h = make_embeddings(labels, noise=0.5)
    assert evaluate(h, make_graph(labels, splits=Splits(**masks)), protocol=protocol).runs
    masks[part] = masks[part] | (place >= 83)
    with pytest.raises(InputError, match=f"published split 0 has 7 labelled nodes both in {part} and in test"):
        evaluate(h, make_graph(labels, splits=Splits(**masks)), protocol=protocol)


@pytest.mark.parametrize("protocol", [*RANDOM_SPLITS, "clustering"])
def test_nodes_without_a_label_are_ignored(protocol: str) -> None:
    labels = np.arange(200) % 4
    h = make_embeddings(labels, noise=0.6)
    alone = evaluate(h, make_graph(labels), protocol=protocol, num_runs=2)
    padded = np.concatenate([h, 1e3 * np.ones((50, 6))])
    outcome = evaluate(padded, make_graph(np.append(labels, [-1] * 50)), protocol=protocol, num_runs=2)
    assert outcome == alone


def test_published_splits_are_used_as_they_are() -> None:
    """Nodes outside of the splits are wrong on purpose: they must not count."""
    labels = np.arange(90) % 3
    h = make_embeddings(labels, noise=0.01)
    h[60:] = -h[60:]
    part = torch.arange(90)[:, None] + torch.tensor([0, 30])[None, :]
    masks = [part % 60 // 20 == place for place in range(3)]
    inside = torch.arange(90)[:, None] < 60
    splits = Splits(*[mask & inside for mask in masks])
    outcome = evaluate(h, make_graph(labels, splits=splits), protocol="public")
    assert outcome.runs == (100.0, 100.0)
    assert "2 published splits" in str(outcome)
    without_val = replace(splits, val=torch.zeros_like(splits.val))
    outcome = evaluate(h, make_graph(labels, splits=without_val), protocol="public")
    assert outcome.runs == (100.0, 100.0)
    assert "random halves" in str(outcome)


@pytest.mark.parametrize("solver", ["newton", "liblinear"])
@pytest.mark.parametrize("protocol", RANDOM_SPLITS)
def test_classes_too_rare_for_a_split_do_no_harm(protocol: str, solver: str) -> None:
    labels = np.where(np.arange(100) < 97, np.arange(100) % 2, [*range(97), 7, 8, 9])
    h = np.random.default_rng(0).standard_normal((100, 6)) + 5 * np.eye(10, 6)[labels]
    outcome = evaluate(h, make_graph(labels), protocol=protocol, num_runs=3, solver=solver)
    assert 80 < outcome.mean <= 100


def test_raw_sparse_features_can_be_evaluated(communities: Graph) -> None:
    for protocol in (*RANDOM_SPLITS, "clustering"):
        assert communities.x is not None
        outcome = evaluate(communities.x, communities, protocol=protocol, num_runs=2)
        assert outcome.mean > (1 if protocol == "clustering" else 35)


def test_outcome_names_its_protocol_and_becomes_a_dictionary() -> None:
    labels = np.arange(100) % 2
    outcome = evaluate(make_embeddings(labels, noise=0.01), make_graph(labels), num_runs=2)
    expected = "accuracy 100.00 ± 0.00 (paper: fit on 10 %, C chosen on 10 %, tested on 80 %, 2 random splits)"
    assert str(outcome) == expected
    assert outcome.to_dict() == {
        "protocol": "paper",
        "metric": "accuracy",
        "mean": 100.0,
        "std": 0.0,
        "runs": [100.0, 100.0],
    }
    one = Evaluation("paper", "accuracy", 1.0, 0.5, (0.5, 1.5), "as told")
    assert str(one) == "accuracy 1.00 ± 0.50 (paper: as told)"


@pytest.mark.parametrize(
    ("labels", "h", "rest", "message"),
    [
        (np.arange(50) % 2, np.zeros((49, 3)), {}, "49 rows.*50 nodes"),
        (np.arange(50) % 2, np.full((50, 3), np.inf), {}, "NaN or infinite"),
        (np.zeros(50, dtype=np.int64), np.ones((50, 3)), {}, "1 classes"),
        (np.full(50, -1), np.ones((50, 3)), {}, "0 classes"),
        (np.ones((50, 4), dtype=np.uint8), np.ones((50, 3)), {}, "protocol 'adamw'"),
        (np.append([0, 1], [-1] * 48), np.ones((50, 3)), {}, "at least 10 labelled nodes"),
        (np.arange(50) % 2, np.ones((50, 3)), {"protocol": "public"}, "published splits.*column `split`"),
        (np.arange(50) % 2, np.ones((50, 3)), {"protocol": "best"}, "no protocol 'best'.* paper, reference"),
        (np.arange(50) % 2, np.ones((50, 3)), {"protocol": "links"}, r"score\(model, graph\).*--protocol links"),
        (np.arange(50) % 2, np.ones((50, 3)), {"num_runs": 0}, "num_runs"),
        (np.arange(50) % 2, np.ones((50, 3)), {"solver": "adam"}, "solver"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(labels: Array, h: Array, rest: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(h, make_graph(labels), **rest)


def test_graph_without_labels_is_refused() -> None:
    with pytest.raises(InputError, match="no labels"):
        evaluate(np.ones((2, 3)), Graph.from_edges([0], [1]))


def test_protocols_say_what_they_need_and_nobody_else_has_to_know_their_names() -> None:
    known = {name: find_protocol(name) for name in PROTOCOLS if PROTOCOLS.is_own(name)}
    by_published = ["public", "adamw", "adamw-reference", "auc"]
    assert list(known) == ["paper", "reference", *by_published, "knn", "clustering", "links"]
    assert [name for name, one in known.items() if one.uses_published_splits] == by_published
    assert [name for name, one in known.items() if one.takes_several_labels] == ["adamw", "adamw-reference"]
    assert [name for name, one in known.items() if one.trains_anew or not one.needs_labels] == ["links"]
    assert all(one.name == name and one.title for name, one in known.items())
    with pytest.raises(InputError, match="does not train"):
        known["knn"].score(None, make_graph(np.arange(4)))


def test_a_protocol_of_ones_own_is_evaluated_by_its_name() -> None:
    @PROTOCOLS.register("first-label")
    class FirstLabel(Protocol):
        def evaluate(self, tasks: Any) -> list[Evaluation]:
            return [
                self.summary("accuracy", [float((task.labels == 0).mean())], "all are of class 0") for task in tasks
            ]

    try:
        labels = np.arange(40) % 4
        outcome = evaluate(make_embeddings(labels, noise=1.0), make_graph(labels), protocol="first-label")
    finally:
        PROTOCOLS.forget("first-label")
    assert str(outcome) == "accuracy 25.00 ± 0.00 (first-label: all are of class 0)"
    with pytest.raises(InputError, match="no protocol 'first-label'"):
        find_protocol("first-label")


def make_rare_task(seed: int = 0) -> tuple[Array, Graph]:
    """Two classes, the second rare among test nodes."""
    random = np.random.default_rng(seed)
    part = np.repeat([0, 1, 2], [150, 60, 200])
    labels = (random.random(410) < np.where(part == 2, 0.15, 0.5)).astype(np.int64)
    h = random.standard_normal((410, 8)) + 0.7 * labels[:, None] * (np.arange(8) < 3)
    splits = Splits(*(torch.from_numpy(part == which)[:, None] for which in range(3)))
    return h, replace(Graph.from_edges([0], [1], num_nodes=410, labels=labels), splits=splits)


def test_auc_equals_scikit_learn() -> None:
    h, graph = make_rare_task()
    assert graph.splits is not None
    assert graph.labels is not None
    train, val, test = (getattr(graph.splits, part)[:, 0].numpy() for part in ("train", "val", "test"))
    x, y = h / np.linalg.norm(h, axis=1, keepdims=True), graph.labels.numpy()
    models = [LogisticRegression(C=c, solver="liblinear", tol=1e-8).fit(x[train], y[train]) for c in STRENGTHS]
    on_val = [roc_auc_score(y[val], model.decision_function(x[val])) for model in models]
    best = int(np.argmax(on_val))
    expected = 100 * roc_auc_score(y[test], models[best].decision_function(x[test]))
    for solver in ("newton", "liblinear"):
        outcome = evaluate(h, graph, protocol="auc", solver=solver)
        assert outcome.metric == "auc"
        assert outcome.val_runs == pytest.approx([100 * on_val[best]], abs=0.3)
        assert outcome.mean == pytest.approx(expected, abs=0.3)


def test_the_auc_of_a_perfect_order_gives_one_hundred_and_no_order_half() -> None:
    _, graph = make_rare_task()
    assert graph.labels is not None
    perfect = graph.labels.numpy()[:, None] * 2.0 - 1.0
    assert evaluate(perfect, graph, protocol="auc").mean == 100.0
    noise = np.random.default_rng(9).standard_normal((410, 3))
    assert abs(evaluate(noise, graph, protocol="auc").mean - 50) < 4 * 100 / np.sqrt(12 * 30)


def test_many_aucs_together_give_what_each_gives_alone() -> None:
    (h, graph), (other, _) = make_rare_task(0), make_rare_task(1)
    alone = [evaluate(one, graph, protocol="auc").mean for one in (h, other)]
    together = evaluate_many([h, other], graph, protocol="auc", seeds=[0, 0])
    assert [one.mean for one in together] == pytest.approx(alone, abs=0.1)


def test_more_than_two_classes_have_no_auc_and_are_refused() -> None:
    h, graph = make_rare_task()
    with pytest.raises(InputError, match="exactly two classes"):
        evaluate(h, replace(graph, labels=torch.arange(410) % 3), protocol="auc")


def test_auc_without_published_splits_random_ones_are_drawn() -> None:
    h, graph = make_rare_task()
    graph = replace(graph, splits=None)
    outcome = evaluate(h, graph, protocol="auc", num_runs=3)
    assert len(outcome.runs) == len(set(outcome.runs)) == 3
    assert "tested on 80 %, 3 random splits" in outcome.detail
    together = evaluate_many([h, h], graph, protocol="auc", num_runs=3, seeds=[0, 1])
    assert together[0].runs == pytest.approx(outcome.runs, abs=0.1)
    assert together[1].runs != together[0].runs


@pytest.mark.realdata
@pytest.mark.parametrize(("protocol", "num_runs"), [("paper", 3), ("reference", 1)])
def test_both_solvers_agree_on_amazon_photo(data_folder: Path, protocol: str, num_runs: int) -> None:
    h, labels = propagated_features(data_folder / "amazon_photo.npz", num_columns=64)
    graph = make_graph(labels)
    newton = evaluate(h, graph, protocol=protocol, num_runs=num_runs)
    liblinear = evaluate(h, graph, protocol=protocol, num_runs=num_runs, solver="liblinear")
    assert newton.mean > 80
    assert abs(newton.mean - liblinear.mean) < 0.1


def propagated_features(path: Path, *, num_columns: int) -> tuple[Array, Array]:
    """A_hat^2 X, projected at random: what an untrained two-layer encoder would give."""
    with np.load(path, allow_pickle=False) as file:
        entries = (file["x_data"].astype(np.float64), file["x_indices"].astype(np.int32), file["x_indptr"])
        x = scipy.sparse.csr_matrix(entries, shape=file["x_shape"])
        (source, target), labels = file["edge_index"], file["y"]
    num_nodes = len(labels)
    links = scipy.sparse.coo_matrix((np.ones(len(source)), (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    links = ((links + links.T + scipy.sparse.eye_array(num_nodes)) > 0).astype(np.float64)
    scale = scipy.sparse.diags_array(np.asarray(links.sum(1)).reshape(-1) ** -0.5)
    projection = np.random.default_rng(0).standard_normal((x.shape[1], num_columns))
    normalised = scale @ links @ scale
    return np.asarray(normalised @ (normalised @ (x @ projection))), labels
