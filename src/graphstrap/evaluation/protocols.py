"""Named protocols: how good embeddings are, and exactly what was done to find out.

    paper        l2 rows; random 10 / 10 / 80; fit on 10 %, choose C on 10 %, test on 80 %, no refit
    reference    l2 rows; random 20 / 80; choose C by five random halves of the 20 %, refit on the 20 %, test on 80 %
    public       the splits published with the graph, one run each: fit on train, choose C on val, test on test
    adamw        l2 rows; the published splits; a linear layer by 100 steps of AdamW, its decay chosen on val
    adamw-reference    the same, but columns z-scored by train, as the authors' code does for PPI
    auc          l2 rows; the published splits, or random 10 / 10 / 80 where there are none; two classes, C chosen by
                 ROC AUC on val, which is also the outcome
    knn          l2 rows; random 10 / 10 / 80; cosine nearest neighbours, their number chosen on 10 %
    clustering   k-means into as many clusters as classes; NMI (and ARI) with the labels

`adamw` is what the paper takes for PPI and ogbn-arxiv: accuracy, or micro-F1 where nodes have several labels.
The paper's text describes `paper`, while its printed numbers of large graphs match the code's `reference`.
Only nodes with a label take part. All figures are in percent; the deviation is that of the runs themselves (division
by their number), as the reference code computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluation import adamw_probe as _by_adamw
from graphstrap.evaluation.fits import Fit, fit_models, gather_counts
from graphstrap.evaluation.probe import STRENGTHS, Sample, check_solver, choose_strengths, label_numbers
from graphstrap.evaluation.rows import (
    Block,
    Embeddings,
    Index,
    Rows,
    Split,
    fifths,
    multiply,
    published,
    run_generator,
    tenths,
)
from graphstrap.graph import Graph, Splits
from graphstrap.graph.graph import check_is_graph
from graphstrap.run.recipe import Recipe

# ROC AUC of a linear probe: how often a node of the second class gets a higher score than one of the first.
#
# It asks for the right order and not for the right threshold, so it means the same where test nodes come from a graph
# with another balance of classes. C is chosen by it too, on validation nodes; of equally good values the smallest.


def probe_auc(cases: Sequence[tuple[Rows, Index, Split]], *, solver: str) -> list[tuple[float, float]]:
    """For each case (rows, labels, split): the AUC on validation and on test nodes, from 0 to 1."""
    for _, labels, split in cases:
        if any(len(np.unique(labels[part])) != 2 for part in split):
            raise InputError("the protocol 'auc' needs nodes of exactly two classes in train, in val and in test")
    fits = [Fit(rows, labels, split.train, STRENGTHS) for rows, labels, split in cases]
    found: dict[int, tuple[float, float]] = {}
    for place, weights in fit_models(fits, solver=solver):
        rows, labels, split = cases[place]
        second = weights[:, 1]  # (S, D + 1) of the second class against the first
        on_val = [_auc(rows, labels, split.val, one) for one in second]
        best = int(np.argmax(on_val))
        found[place] = on_val[best], _auc(rows, labels, split.test, second[best])
    return [found[place] for place in range(len(cases))]


def _auc(rows: Rows, labels: Index, nodes: Index, weights: torch.Tensor) -> float:
    from sklearn.metrics import roc_auc_score

    blocks = rows.blocks(nodes, width=1)
    scores = torch.cat([multiply(rows.take_with_constant(block), weights[:, None]) for block in blocks])
    return float(roc_auc_score(labels[nodes], scores[:, 0].cpu().numpy()))


# What can be said of embeddings without fitting weights: nearest neighbours and clusters.
#
# neighbours    the k training nodes with the largest cos(h_i, h_j) vote, k in 1, 5, 10, 20; the most votes win, and
# of equals the class with the smaller number
# clusters      k-means of the l2-normalised rows into as many clusters as there are classes
#
# Cost: neighbours O(N N_train D) time in blocks of bounded memory; clusters O(N K D) a round.


NEIGHBOUR_COUNTS = (1, 5, 10, 20)
NUM_STARTS = 3  # of which the tightest is kept; ten found the same clusters on Amazon Computers


class Agreement(NamedTuple):
    """Between clusters and classes: 1 is perfect, 0 is what chance gives (exactly so for ARI)."""

    normalised_mutual_information: float
    adjusted_rand_index: float


def neighbour_accuracy(rows: Rows, labels: Index, *, split: Split) -> float:
    """Choose k on the validation nodes (of equals the smallest), then test it: the part that is right."""
    on_val = _neighbour_hits(rows, labels, nodes=split.val, train=split.train, counts=NEIGHBOUR_COUNTS)
    best = NEIGHBOUR_COUNTS[int(on_val.argmax())]
    on_test = _neighbour_hits(rows, labels, nodes=split.test, train=split.train, counts=(best,))
    return float(on_test[0]) / len(split.test)


def cluster_agreement(rows: Rows, labels: Index, *, nodes: Index, num_clusters: int, seed: int) -> Agreement:
    """Cluster `nodes` and compare with their labels."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    taken = rows.take(nodes)
    points: Any = taken.cpu().numpy() if isinstance(taken, Tensor) else taken
    found = KMeans(num_clusters, n_init=NUM_STARTS, random_state=seed).fit_predict(points)
    classes = labels[nodes]
    return Agreement(float(normalized_mutual_info_score(classes, found)), float(adjusted_rand_score(classes, found)))


def _neighbour_hits(rows: Rows, labels: Index, *, nodes: Index, train: Index, counts: tuple[int, ...]) -> Index:
    """How many of `nodes` get their class by the votes of each number of neighbours in `counts`."""
    known = rows.take(train)
    train_labels = torch.from_numpy(labels[train])
    num_nearest = min(max(counts), len(train))
    num_classes = int(train_labels.max()) + 1
    hits = np.zeros(len(counts), dtype=np.int64)
    for block in rows.blocks(nodes, width=max(len(train), num_nearest * num_classes)):
        nearest = _cosines(rows.take(block), known).topk(num_nearest, dim=1).indices.cpu()
        votes = torch.nn.functional.one_hot(train_labels[nearest], num_classes)  # (B, k, K)
        truth = torch.from_numpy(labels[block])
        hits += [int((votes[:, :count].sum(1).argmax(1) == truth).sum()) for count in counts]
    return hits


def _cosines(x: Block, y: Block) -> Tensor:
    product = x @ y.T
    return product if isinstance(product, Tensor) else torch.from_numpy(product.toarray())


@dataclass(frozen=True)
class Evaluation:
    """The outcome of a protocol; its text always names the protocol and what it did."""

    protocol: str
    metric: str
    mean: float
    std: float
    runs: tuple[float, ...]
    detail: str
    val_runs: tuple[float, ...] = ()  # on validation nodes, where the protocol has chosen something by them

    def to_dict(self) -> dict[str, str | float | list[float]]:
        return {
            "protocol": self.protocol,
            "metric": self.metric,
            "mean": self.mean,
            "std": self.std,
            "runs": list(self.runs),
            **({"val_runs": list(self.val_runs)} if self.val_runs else {}),
        }

    def __str__(self) -> str:
        return f"{self.metric} {self.mean:.2f} ± {self.std:.2f} ({self.protocol}: {self.detail})"


@dataclass(frozen=True, eq=False)
class _Task:
    """What every protocol is given."""

    rows: Rows
    labels: np.ndarray[Any, Any]  # (N,) -1 for none, or (N, C) of 0 and 1
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
    """Evaluate the embeddings `h` of the nodes of `graph` by one of `PROTOCOLS`. The protocol links trains anew, so it
    takes a model: see `graphstrap.api.estimator.score_links`.

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
        raise InputError(
            f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}; links is apart, for it trains anew: "
            "graphstrap.api.estimator.score_links(model, graph), or `graphstrap evaluate RUN --protocol links`"
        )
    check_is_graph(graph)
    if num_runs < 1:
        raise InputError(f"num_runs must be at least 1, got {num_runs}")
    if len(seeds) != len(embeddings):
        raise InputError(f"seeds must hold one number for each of the {len(embeddings)} embeddings, got {len(seeds)}")
    check_solver(solver)
    tasks = [
        _task(h, graph, num_runs=num_runs, seed=seed, solver=solver, several_labels=protocol in FOR_SEVERAL_LABELS)
        for h, seed in zip(embeddings, seeds, strict=True)
    ]
    return PROTOCOLS[protocol](tasks) if tasks else []


def check_labels_for(graph: Graph, protocol: str) -> None:
    """An error where a graph's labels are too few for "paper" or "adamw", before there are embeddings."""
    nothing = np.zeros((graph.num_nodes, 1), dtype=np.float32)
    several = protocol in FOR_SEVERAL_LABELS
    task = _task(nothing, graph, num_runs=1, seed=0, solver="newton", several_labels=several)
    if protocol == "paper":
        _random_splits(task, tenths)
    elif not all(len(split.val) for split in published(task.splits, task.nodes, protocol=protocol)):
        raise InputError(f"the protocol {protocol!r} needs validation nodes and a split has none")


def _task(h: Embeddings, graph: Graph, *, num_runs: int, seed: int, solver: str, several_labels: bool = False) -> _Task:
    if graph.labels is None:
        raise InputError(f"graph {graph.name!r} has no labels: there is nothing to evaluate against")
    several = several_labels and graph.labels.dim() == 2
    labels = graph.labels.cpu().numpy() if several else label_numbers(graph.labels)
    rows = Rows.of(h)
    if rows.num_rows != len(labels):
        raise InputError(f"h has {rows.num_rows} rows, graph {graph.name!r} has {len(labels)} nodes: one row per node")
    if labels.ndim == 2:
        every_node = np.arange(len(labels))
        return _Task(rows, labels, every_node, labels.shape[1], graph.splits, num_runs, seed, solver)
    nodes = np.flatnonzero(labels >= 0)
    num_seen = len(np.unique(labels[nodes]))
    if num_seen < 2:
        raise InputError(f"graph {graph.name!r} has labels of {num_seen} classes: an evaluation needs at least two")
    return _Task(rows, labels, nodes, int(labels.max()) + 1, graph.splits, num_runs, seed, solver)


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


def _adamw(task: _Task, *, protocol: str, scaling: str) -> Evaluation:
    splits = published(task.splits, task.nodes, protocol=protocol)
    found = [
        _by_adamw.probe(task.rows, task.labels, split, scaling=scaling, num_classes=task.num_classes)
        for split in splits
    ]
    prepared = "rows of length 1" if scaling == "unit" else "columns z-scored by train"
    detail = (
        f"{prepared}, {_by_adamw.NUM_STEPS} steps of AdamW on train, weight decay chosen on val, tested on test, "
        f"{_count(len(splits), 'published split')}"
    )
    metric = "accuracy" if task.labels.ndim == 1 else "micro-f1"
    return _with_val(protocol, metric, found, detail)


def _auc_scores(tasks: Sequence[_Task]) -> list[Evaluation]:
    if tasks[0].splits is None:
        splits = [_random_splits(task, tenths) for task in tasks]
        parts, kind = ("10 %", "10 %", "80 %"), "random split"
    else:
        splits = [published(task.splits, task.nodes, protocol="auc") for task in tasks]
        parts, kind = ("train", "val", "test"), "published split"
    size = len(splits[0])
    cases = [(task.rows, task.labels, split) for task, own in zip(tasks, splits, strict=True) for split in own]
    found = probe_auc(cases, solver=tasks[0].solver)
    detail = f"fit on {parts[0]}, C chosen by AUC on {parts[1]}, tested on {parts[2]}, {_count(size, kind)}"
    return [_with_val("auc", "auc", found[k * size : (k + 1) * size], detail) for k in range(len(tasks))]


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
    "adamw": lambda tasks: [_adamw(task, protocol="adamw", scaling="unit") for task in tasks],
    "adamw-reference": lambda tasks: [_adamw(task, protocol="adamw-reference", scaling="column") for task in tasks],
    "auc": _auc_scores,
    "knn": lambda tasks: [_knn(task) for task in tasks],
    "clustering": lambda tasks: [_clustering(task) for task in tasks],
}


FOR_SEVERAL_LABELS = ("adamw", "adamw-reference")
BY_PUBLISHED_SPLITS = ("public", "adamw", "adamw-reference", "auc")  # auc by random ones where there are none


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


def _with_val(protocol: str, metric: str, pairs: Sequence[tuple[float, float]], detail: str) -> Evaluation:
    """From pairs of (on val, on test)."""
    tested = _summary(protocol, metric, [test for _, test in pairs], detail)
    return replace(tested, val_runs=tuple(100.0 * val for val, _ in pairs))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# Whether a model has learned from the labels that it is tested on.


SAW_LABELS = (
    "note: this model has learned from labels that this protocol tests on: trust `predict` on held-out nodes, or give "
    "the node table a split column and take the protocol public"
)


def has_seen_test_labels(recipe: Recipe, graph: Graph, *, protocol: str) -> bool:
    """A semi-supervised model has, unless it is tested on the published split whose training nodes it learned from."""
    if recipe.method.name != "semi-supervised" or protocol == "links":
        return False
    has_one_split = graph.splits is not None and graph.splits.num_splits == 1
    return not (protocol in BY_PUBLISHED_SPLITS and has_one_split)
