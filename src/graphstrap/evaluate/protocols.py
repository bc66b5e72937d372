"""Named protocols: how good embeddings are, and exactly what was done to find out.

    paper        l2 rows; random 10 / 10 / 80; fit on 10 %, choose C on 10 %, test on 80 %, no refit
    reference    l2 rows; random 20 / 80; choose C by five random halves of the 20 %, refit on the 20 %, test on 80 %
    public       the splits published with the graph, one run each: fit on train, choose C on val, test on test
    knn          l2 rows; random 10 / 10 / 80; cosine nearest neighbours, their number chosen on 10 %
    clustering   k-means into as many clusters as classes; NMI (and ARI) with the labels

The paper's text describes `paper` while its printed numbers match the code's `reference`: compare under `reference`.
Only nodes with a label take part. All figures are in percent; the deviation is that of the runs themselves (division
by their number), as the reference code computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphstrap.errors import InputError
from graphstrap.evaluate._choice import Sample, choose_strengths
from graphstrap.evaluate._fits import gather_counts
from graphstrap.evaluate._rows import Embeddings, Index, Rows
from graphstrap.evaluate._splits import Split, fifths, published, run_generator, tenths
from graphstrap.evaluate._unsupervised import NEIGHBOUR_COUNTS, cluster_agreement, neighbour_accuracy
from graphstrap.evaluate.probe import check_solver, label_numbers
from graphstrap.graph import Graph, Splits


@dataclass(frozen=True)
class Evaluation:
    """The outcome of a protocol; its text always names the protocol and what it did."""

    protocol: str
    metric: str
    mean: float
    std: float
    runs: tuple[float, ...]
    detail: str

    def to_dict(self) -> dict[str, str | float | list[float]]:
        return {
            "protocol": self.protocol,
            "metric": self.metric,
            "mean": self.mean,
            "std": self.std,
            "runs": list(self.runs),
        }

    def __str__(self) -> str:
        return f"{self.metric} {self.mean:.2f} ± {self.std:.2f} ({self.protocol}: {self.detail})"


@dataclass(frozen=True, eq=False)
class _Task:
    """What every protocol is given."""

    rows: Rows
    labels: Index  # (N,) -1 for none
    nodes: Index  # those with a label
    splits: Splits | None
    num_runs: int
    seed: int
    solver: str


def evaluate(
    h: Embeddings,
    graph: Graph,
    *,
    protocol: str = "paper",
    num_runs: int = 5,
    seed: int = 0,
    solver: str = "newton",
) -> Evaluation:
    """Evaluate the embeddings `h` of the nodes of `graph` by one of `PROTOCOLS`.

    Args:
        h: (N, D) NumPy array, tensor, SparseMatrix (raw features) or SciPy matrix.
        graph: gives the labels, and the published splits for "public".
        num_runs: random splits, or starts of the clustering; "public" has as many runs as published splits.
        seed: of the random splits.
        solver: of the linear probes: "newton" (fast, on the device of `h`) or "liblinear" (scikit-learn's yardstick).
    """
    return evaluate_many([h], graph, protocol=protocol, num_runs=num_runs, seeds=[seed], solver=solver)[0]


def evaluate_many(
    embeddings: Sequence[Embeddings],
    graph: Graph,
    *,
    seeds: Sequence[int],
    protocol: str = "paper",
    num_runs: int = 5,
    solver: str = "newton",
) -> list[Evaluation]:
    """What `evaluate` says of each of the embeddings with its own of the `seeds`, all linear probes solved together.

    A GPU is filled by many seeds at once; on a CPU they cost what they cost one after the other.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    if num_runs < 1:
        raise InputError(f"num_runs must be at least 1, got {num_runs}")
    if len(seeds) != len(embeddings):
        raise InputError(f"seeds must hold one number for each of the {len(embeddings)} embeddings, got {len(seeds)}")
    check_solver(solver)
    tasks = [
        _task(h, graph, num_runs=num_runs, seed=seed, solver=solver) for h, seed in zip(embeddings, seeds, strict=True)
    ]
    return PROTOCOLS[protocol](tasks) if tasks else []


def _task(h: Embeddings, graph: Graph, *, num_runs: int, seed: int, solver: str) -> _Task:
    if graph.labels is None:
        raise InputError(f"graph {graph.name!r} has no labels: there is nothing to evaluate against")
    labels = label_numbers(graph.labels)
    rows = Rows.of(h)
    if rows.num_rows != len(labels):
        raise InputError(f"h has {rows.num_rows} rows, graph {graph.name!r} has {len(labels)} nodes: one row per node")
    nodes = np.flatnonzero(labels >= 0)
    num_seen = len(np.unique(labels[nodes]))
    if num_seen < 2:
        raise InputError(f"graph {graph.name!r} has labels of {num_seen} classes: an evaluation needs at least two")
    return _Task(rows, labels, nodes, graph.splits, num_runs, seed, solver)


def _paper(tasks: Sequence[_Task]) -> list[Evaluation]:
    runs = _probe_runs(tasks, [_random_splits(task, tenths) for task in tasks])
    detail = f"fit on 10 %, C chosen on 10 %, tested on 80 %, {_count(tasks[0].num_runs, 'random split')}"
    return [_summary("paper", "accuracy", one, detail) for one in runs]


def _reference(tasks: Sequence[_Task]) -> list[Evaluation]:
    runs = _probe_runs(tasks, [_random_splits(task, fifths) for task in tasks])
    detail = (
        "fit on 20 %, C chosen by 5 random halves of it and refitted, tested on 80 %, "
        f"{_count(tasks[0].num_runs, 'random split')}"
    )
    return [_summary("reference", "accuracy", one, detail) for one in runs]


def _public(tasks: Sequence[_Task]) -> list[Evaluation]:
    splits = published(tasks[0].splits, tasks[0].nodes)
    runs = _probe_runs(tasks, [splits] * len(tasks))
    chosen = "C chosen on val" if all(len(split.val) for split in splits) else "C chosen by 5 random halves of it"
    detail = f"fit on train, {chosen}, tested on test, {_count(len(splits), 'published split')}"
    return [_summary("public", "accuracy", one, detail) for one in runs]


def _knn(task: _Task) -> Evaluation:
    runs = [neighbour_accuracy(task.rows, task.labels, split=split) for split in _random_splits(task, tenths)]
    counts = ", ".join(str(count) for count in NEIGHBOUR_COUNTS)
    detail = (
        f"cosine neighbours in 10 %, their number among {counts} chosen on 10 %, tested on 80 %, "
        f"{_count(task.num_runs, 'random split')}"
    )
    return _summary("knn", "accuracy", runs, detail)


def _clustering(task: _Task) -> Evaluation:
    num_clusters = len(np.unique(task.labels[task.nodes]))
    found = []
    for run in range(task.num_runs):
        seed = int(run_generator(task.seed, run).integers(2**31))
        found.append(cluster_agreement(task.rows, task.labels, nodes=task.nodes, num_clusters=num_clusters, seed=seed))
    rand = _summary("clustering", "ari", [one.adjusted_rand_index for one in found], "")
    detail = (
        f"k-means with {num_clusters} clusters on all labelled nodes, {_count(task.num_runs, 'start')}; "
        f"ari {rand.mean:.2f} ± {rand.std:.2f}"
    )
    return _summary("clustering", "nmi", [one.normalised_mutual_information for one in found], detail)


PROTOCOLS: dict[str, Callable[[Sequence[_Task]], list[Evaluation]]] = {
    "paper": _paper,
    "reference": _reference,
    "public": _public,
    "knn": lambda tasks: [_knn(task) for task in tasks],
    "clustering": lambda tasks: [_clustering(task) for task in tasks],
}


def _random_splits(task: _Task, draw: Callable[[Index, np.random.Generator], Split]) -> list[Split]:
    return [draw(task.nodes, run_generator(task.seed, run)) for run in range(task.num_runs)]


def _probe_runs(tasks: Sequence[_Task], splits: Sequence[Sequence[Split]]) -> list[list[float]]:
    """For each task and each of its splits, the part of the test nodes that a linear probe puts into their class."""
    samples, tests = [], []
    for task, own in zip(tasks, splits, strict=True):
        for run, split in enumerate(own):
            generator = np.random.default_rng((task.seed, run, 1))  # not the one that drew the split
            samples.append(Sample(task.rows, task.labels, split.train, split.val, generator))
            tests.append(split.test)
    probes = choose_strengths(samples, solver=tasks[0].solver)
    counts = [probe.count_correct(*on) for probe, on in zip(probes, zip(samples, tests, strict=True), strict=True)]
    parts = gather_counts(counts) / [len(test) for test in tests]
    return [part.tolist() for part in np.split(parts, len(tasks))]


def _summary(protocol: str, metric: str, parts: Sequence[float], detail: str) -> Evaluation:
    runs = tuple(100.0 * part for part in parts)
    return Evaluation(protocol, metric, float(np.mean(runs)), float(np.std(runs)), runs, detail)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
