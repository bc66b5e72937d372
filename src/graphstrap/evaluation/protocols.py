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
Only nodes with a label take part. All figures are in percent. `links`, which trains anew, is in `graphstrap.api`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluation import adamw_probe as _by_adamw
from graphstrap.evaluation.probe import (
    Fit,
    Sample,
    check_solver,
    choose_strengths,
    count_correct,
    fit_models,
    gather_counts,
)
from graphstrap.evaluation.registry import PROTOCOLS, Evaluation, Protocol, find_protocol
from graphstrap.evaluation.task import Embeddings, Index, Split, Task, fifths, multiply, run_generator, tenths
from graphstrap.graph import Graph
from graphstrap.graph.graph import check_is_graph
from graphstrap.ops.nearest import search
from graphstrap.run.recipe import Recipe


def evaluate(
    h: Embeddings, graph: Graph, *, protocol: str = "paper", num_runs: int = 5, seed: int = 0, solver: str = "newton"
) -> Evaluation:
    """Evaluate the embeddings of a graph's nodes.

    Args:
        h: (N, D) NumPy array, tensor, SparseMatrix (raw features) or SciPy matrix.
        graph: gives the labels, and the published splits for "public".
        protocol: a name in `PROTOCOLS`; one that trains anew takes a model instead of embeddings.
        num_runs: random splits, or starts of the clustering; "public" has as many runs as published splits.
        seed: of the random splits.
        solver: of the linear probes: "newton" (fast, on the device of `h`) or "liblinear" (scikit-learn's yardstick).

    Returns:
        The mean and the deviation over the runs, in percent, and what was done.

    Example:
        >>> outcome = evaluate(h, graph, protocol="knn")  # doctest: +SKIP
        >>> outcome.mean  # doctest: +SKIP
        91.37
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
    chosen = find_protocol(protocol)
    if chosen.trains_anew:
        raise InputError(
            f"the protocol {protocol!r} trains anew, so it takes a model and not embeddings: "
            f"find_protocol({protocol!r}).score(model, graph), or `graphstrap evaluate RUN --protocol {protocol}`"
        )
    check_is_graph(graph)
    if num_runs < 1:
        raise InputError(f"num_runs must be at least 1, got {num_runs}")
    if len(seeds) != len(embeddings):
        raise InputError(f"seeds must hold one number for each of the {len(embeddings)} embeddings, got {len(seeds)}")
    check_solver(solver)
    several = chosen.takes_several_labels
    tasks = [
        Task.of(h, graph, num_runs=num_runs, seed=seed, solver=solver, several_labels=several)
        for h, seed in zip(embeddings, seeds, strict=True)
    ]
    return chosen.evaluate(tasks) if tasks else []


def check_labels_for(graph: Graph, protocol: str) -> None:
    """An InputError where a graph's labels are too few for a protocol, before there are embeddings."""
    chosen = find_protocol(protocol)
    chosen.splits(Task.of(None, graph, several_labels=chosen.takes_several_labels))


SAW_LABELS = (
    "note: this model has learned from labels that this protocol tests on: trust `predict` on held-out nodes, or give "
    "the node table a split column and take the protocol public"
)


def has_seen_test_labels(recipe: Recipe, graph: Graph, *, protocol: str) -> bool:
    """A semi-supervised model has, unless it is tested on the published split whose training nodes it learned from."""
    chosen = find_protocol(protocol)
    if not recipe.method_class.learns_labels or not chosen.needs_labels:
        return False
    has_one_split = graph.splits is not None and graph.splits.num_splits == 1
    return not (chosen.uses_published_splits and has_one_split)


class _LinearProbe(Protocol):
    """The share of test nodes that a linear probe puts into their class; `done` says how, and {chosen} how C was."""

    done: str

    def evaluate(self, tasks: Sequence[Task]) -> list[Evaluation]:
        splits = [self.splits(task) for task in tasks]
        first, kind = splits[0], "published" if self.uses_published_splits else "random"
        chosen = "C chosen on val" if all(len(split.val) for split in first) else "C chosen by 5 random halves of it"
        detail = f"{self.done.format(chosen=chosen)}, {_count(len(first), f'{kind} split')}"
        return [self.summary("accuracy", shares, detail) for shares in probe_runs(tasks, splits)]


@PROTOCOLS.register("paper")
class Paper(_LinearProbe):
    title = "Linear probe, 10 % of the labels"
    done = "fit on 10 %, C chosen on 10 %, tested on 80 %"
    draw = tenths


@PROTOCOLS.register("reference")
class Reference(_LinearProbe):
    title = "Linear probe, 20 % of the labels"
    done = "fit on 20 %, C chosen by 5 random halves of it and refitted, tested on 80 %"
    draw = fifths


@PROTOCOLS.register("public")
class Public(_LinearProbe):
    title = "Linear probe, published splits"
    done = "fit on train, {chosen}, tested on test"
    uses_published_splits = True


def probe_runs(tasks: Sequence[Task], splits: Sequence[Sequence[Split]]) -> list[list[float]]:
    """For each task and each of its splits, the share of the test nodes that a linear probe puts into their class."""
    samples, tests = [], []
    for task, own in zip(tasks, splits, strict=True):
        for run, split in enumerate(own):
            generator = np.random.default_rng((task.seed, run, 1))  # not the one that drew the split
            fit = Fit(task.vectors, task.labels, split.train)
            samples.append(Sample(fit, split.val, task.num_classes, generator))
            tests.append(split.test)
    probes = choose_strengths(samples, solver=tasks[0].solver)
    counts = [
        count_correct(sample.fit, probe.weights[None], test)[0]
        for sample, test, probe in zip(samples, tests, probes, strict=True)
    ]
    shares = gather_counts(counts) / [len(test) for test in tests]
    return [share.tolist() for share in np.split(shares, len(tasks))]


@PROTOCOLS.register("adamw")
class AdamW(Protocol):
    title = "Linear layer by AdamW, published splits"
    takes_several_labels = True
    uses_published_splits = True
    scaling, prepared = "unit", "rows of length 1"

    def splits(self, task: Task) -> list[Split]:
        splits = super().splits(task)
        if not all(len(split.val) for split in splits):
            raise InputError(f"the protocol {self.name!r} needs validation nodes and a split has none")
        return splits

    def evaluate_one(self, task: Task) -> Evaluation:
        splits, several = self.splits(task), task.labels.ndim == 2
        found = [
            _by_adamw.probe(task.vectors, task.labels, split, scaling=self.scaling, num_classes=task.num_classes)
            for split in splits
        ]
        detail = (
            f"{self.prepared}, {_by_adamw.NUM_STEPS} steps of AdamW on train, weight decay chosen on val, tested on "
            f"test, {_count(len(splits), 'published split')}"
        )
        on_val, on_test = zip(*found, strict=True)
        return self.summary("micro-f1" if several else "accuracy", on_test, detail, val_shares=on_val)


@PROTOCOLS.register("adamw-reference")
class AdamWReference(AdamW):
    title = "Linear layer by AdamW, z-scored columns"
    scaling, prepared = "column", "columns z-scored by train"


@PROTOCOLS.register("auc")
class Auc(Protocol):
    """ROC AUC of a linear probe: how often a node of the second class gets a higher score than one of the first.

    It asks for the right order and not for the right threshold, so it means the same where test nodes come from a graph
    with another balance of classes. C is chosen by it too, on validation nodes; of equally good values the smallest.
    """

    title = "Linear probe, order of two classes"
    uses_published_splits = True
    draw = tenths

    def num_tested(self, task: Task) -> int:
        """Nodes of the rarer class: its order among the others is what is asked."""
        return int(np.unique(task.labels[self.splits(task)[0].test], return_counts=True)[1].min())

    def evaluate(self, tasks: Sequence[Task]) -> list[Evaluation]:
        cases = [(task, split) for task in tasks for split in self.splits(task)]
        for task, split in cases:
            if any(len(np.unique(task.labels[nodes])) != 2 for nodes in split):
                raise InputError("the protocol 'auc' needs nodes of exactly two classes in train, in val and in test")
        found: dict[int, tuple[float, float]] = {}
        fits = [Fit(task.vectors, task.labels, split.train) for task, split in cases]
        for place, weights in fit_models(fits, solver=tasks[0].solver):
            task, split = cases[place]
            of_second = weights[:, 1]  # (S, D + 1) of the second class against the first
            tried = [_auc(task, split.val, one) for one in of_second]
            best = int(np.argmax(tried))
            found[place] = tried[best], _auc(task, split.test, of_second[best])
        size, is_random = len(cases) // len(tasks), tasks[0].splits is None
        train, val, test = ("10 %", "10 %", "80 %") if is_random else ("train", "val", "test")
        kind = "random split" if is_random else "published split"
        detail = f"fit on {train}, C chosen by AUC on {val}, tested on {test}, {_count(size, kind)}"
        on_val, on_test = zip(*(found[place] for place in range(len(cases))), strict=True)
        runs = [slice(first, first + size) for first in range(0, len(cases), size)]
        return [self.summary("auc", on_test[own], detail, val_shares=on_val[own]) for own in runs]


def _auc(task: Task, nodes: Index, weights: Tensor) -> float:
    from sklearn.metrics import roc_auc_score

    blocks = task.vectors.blocks(nodes, width=1)
    scores = torch.cat([multiply(task.vectors.take_with_constant(block), weights[:, None]) for block in blocks])
    return float(roc_auc_score(task.labels[nodes], scores[:, 0].cpu().numpy()))


@PROTOCOLS.register("knn")
class Knn(Protocol):
    """The k training nodes with the largest cosine vote; the most votes win, and of equals the class with the smaller
    number. k is chosen on validation nodes, of equally good values the smallest. O(N N_train D) time in blocks."""

    title = "Nearest neighbours vote"
    COUNTS = (1, 5, 10, 20)
    draw = tenths

    def evaluate_one(self, task: Task) -> Evaluation:
        shares = []
        for split in self.splits(task):
            on_val = _count_hits(task, split.val, train=split.train, counts=self.COUNTS)
            best = self.COUNTS[int(on_val.argmax())]
            hits = _count_hits(task, split.test, train=split.train, counts=(best,))
            shares.append(float(hits[0]) / len(split.test))
        detail = (
            f"cosine neighbours in 10 %, their number among {', '.join(map(str, self.COUNTS))} chosen on 10 %, tested "
            f"on 80 %, {_count(task.num_runs, 'random split')}"
        )
        return self.summary("accuracy", shares, detail)


def _count_hits(task: Task, nodes: Index, *, train: Index, counts: tuple[int, ...]) -> Index:
    """How many of `nodes` get their class by the votes of each number of neighbours in `counts`."""
    known = task.vectors.take(train)
    train_labels = torch.from_numpy(task.labels[train])
    num_nearest = min(max(counts), len(train))
    num_classes = int(train_labels.max()) + 1
    hits = np.zeros(len(counts), dtype=np.int64)
    for block in task.vectors.blocks(nodes, width=max(len(train), num_nearest * num_classes)):
        found = search(task.vectors.take(block), known, k=num_nearest, order_ties=False)  # as in published numbers
        nearest = found[0].cpu()
        votes = torch.nn.functional.one_hot(train_labels[nearest], num_classes)  # (B, k, K)
        truth = torch.from_numpy(task.labels[block])
        hits += [int((votes[:, :count].sum(1).argmax(1) == truth).sum()) for count in counts]
    return hits


@PROTOCOLS.register("clustering")
class Clustering(Protocol):
    """k-means of the l2-normalised rows: the agreement with the classes is 1 when perfect, 0 by chance (exactly so for
    ARI). O(N K D) time a round."""

    title = "Clusters against classes"
    is_costly = True
    NUM_STARTS = 3  # of which the tightest is kept; ten found the same clusters on Amazon Computers

    def splits(self, task: Task) -> list[Split]:
        return [Split(task.nodes[:0], task.nodes[:0], task.nodes)] * task.num_runs

    def evaluate_one(self, task: Task) -> Evaluation:
        from sklearn.cluster import KMeans
        from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

        taken, classes = task.vectors.take(task.nodes), task.labels[task.nodes]
        points = taken.cpu().numpy() if isinstance(taken, Tensor) else taken
        num_clusters, nmi, ari = len(np.unique(classes)), [], []
        for run in range(task.num_runs):
            seed = int(run_generator(task.seed, run).integers(2**31))
            found = KMeans(num_clusters, n_init=self.NUM_STARTS, random_state=seed).fit_predict(points)
            nmi.append(float(normalized_mutual_info_score(classes, found)))
            ari.append(float(adjusted_rand_score(classes, found)))
        rand = self.summary("ari", ari, "")
        detail = (
            f"k-means with {num_clusters} clusters on all labelled nodes, {_count(task.num_runs, 'start')}; "
            f"ari {rand.mean:.2f} ± {rand.std:.2f}"
        )
        return self.summary("nmi", nmi, detail)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
