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
from graphstrap.evaluate._rows import Embeddings, Index, Rows
from graphstrap.evaluate._splits import Split, fifths, published, run_generator, tenths
from graphstrap.evaluate._unsupervised import NEIGHBOUR_COUNTS, cluster_agreement, neighbour_accuracy
from graphstrap.evaluate.probe import check_solver, fit_by_halves, fit_by_validation, label_numbers
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
    num_classes: int
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
    if protocol not in PROTOCOLS:
        raise InputError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    if num_runs < 1:
        raise InputError(f"num_runs must be at least 1, got {num_runs}")
    check_solver(solver)
    return PROTOCOLS[protocol](_task(h, graph, num_runs=num_runs, seed=seed, solver=solver))


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
    num_classes = int(labels.max()) + 1
    return _Task(rows, labels, nodes, num_classes, graph.splits, num_runs, seed, solver)


def _paper(task: _Task) -> Evaluation:
    runs = [_probe_run(task, tenths(task.nodes, run_generator(task.seed, run)), run) for run in range(task.num_runs)]
    detail = f"fit on 10 %, C chosen on 10 %, tested on 80 %, {_count(task.num_runs, 'random split')}"
    return _summary("paper", "accuracy", runs, detail)


def _reference(task: _Task) -> Evaluation:
    runs = [_probe_run(task, fifths(task.nodes, run_generator(task.seed, run)), run) for run in range(task.num_runs)]
    detail = (
        "fit on 20 %, C chosen by 5 random halves of it and refitted, tested on 80 %, "
        f"{_count(task.num_runs, 'random split')}"
    )
    return _summary("reference", "accuracy", runs, detail)


def _public(task: _Task) -> Evaluation:
    splits = published(task.splits, task.nodes)
    runs = [_probe_run(task, split, run) for run, split in enumerate(splits)]
    chosen = "C chosen on val" if all(len(split.val) for split in splits) else "C chosen by 5 random halves of it"
    detail = f"fit on train, {chosen}, tested on test, {_count(len(splits), 'published split')}"
    return _summary("public", "accuracy", runs, detail)


def _knn(task: _Task) -> Evaluation:
    runs = []
    for run in range(task.num_runs):
        split = tenths(task.nodes, run_generator(task.seed, run))
        runs.append(neighbour_accuracy(task.rows, task.labels, split=split))
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


PROTOCOLS: dict[str, Callable[[_Task], Evaluation]] = {
    "paper": _paper,
    "reference": _reference,
    "public": _public,
    "knn": _knn,
    "clustering": _clustering,
}


def _probe_run(task: _Task, split: Split, run: int) -> float:
    """The part of the test nodes that a linear probe puts into their class."""
    if len(split.val):
        probe = fit_by_validation(
            task.rows,
            task.labels,
            train=split.train,
            val=split.val,
            solver=task.solver,
            num_classes=task.num_classes,
        )
    else:
        generator = np.random.default_rng((task.seed, run, 1))  # not the one that drew the split
        probe = fit_by_halves(
            task.rows,
            task.labels,
            train=split.train,
            generator=generator,
            solver=task.solver,
            num_classes=task.num_classes,
        )
    return probe.count_correct(task.rows, task.labels, nodes=split.test) / len(split.test)


def _summary(protocol: str, metric: str, parts: Sequence[float], detail: str) -> Evaluation:
    runs = tuple(100.0 * part for part in parts)
    return Evaluation(protocol, metric, float(np.mean(runs)), float(np.std(runs)), runs, detail)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
