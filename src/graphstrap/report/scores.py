"""What the embedding knows: every protocol that applies, raw features and what needs no training beside; a confusion
matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from graphstrap.api.estimator import Embedder, baselines_of
from graphstrap.errors import InputError
from graphstrap.evaluation.probe import fit_probe
from graphstrap.evaluation.protocols import evaluate, has_seen_test_labels
from graphstrap.evaluation.registry import Evaluation, find_protocol, pool_evaluations
from graphstrap.evaluation.task import MIN_NODES, Array, Task, has_published_splits
from graphstrap.graph import Graph
from graphstrap.nn.model import class_names
from graphstrap.report.health import Gain

PROTOCOLS = ("paper", "knn", "clustering")  # of a report for which nobody asked for others
MAX_LABELLED = 15_000  # a sample says as much, and keeps a large graph's report under a minute
NUM_RUNS = 2
FEW_LABELLED, RUNS_OF_FEW = 1_000, 10  # splits differ so much then that two of them say little
MAX_CLASSES_SHOWN = 24
NUM_MISTAKES = 8
UNTRAINED = {"random init": "an untrained encoder", "instant": "instant, which needs no training"}
RARE, FEWEST_RARE = 0.2, 200  # a class, as a share of the labelled nodes; a tenth of those that are scored is fitted on
MAX_LINKS = 5_000_000  # edges of a graph without labels that `links` is tried on without being asked for


@dataclass(frozen=True)
class Scores:
    """`tables` holds, for each protocol, the evaluation of each candidate by name; `note` what was left out."""

    tables: dict[str, dict[str, Evaluation]]
    note: str = ""
    by_seed: tuple[float, ...] = ()  # the mean of each trained one by the first protocol
    gains: tuple[Gain, ...] = ()  # what each has by it over what needs no training, where there is room for more

    @property
    def best(self) -> Evaluation | None:
        """Of the trained candidate by the first protocol."""
        first = next(iter(self.tables.values()), {})
        return list(first.values())[-1] if first else None


@dataclass(frozen=True, eq=False)
class Confusion:
    """`counts[i, j]`: test nodes of class i that the probe puts into class j. The rarest classes are one last class."""

    names: tuple[str, ...]
    counts: Array
    accuracy: float
    mistakes: tuple[tuple[str, str, int, float], ...]  # true, predicted, how many, share of the true class
    predicted: Array  # (N,) what the probe says of every node


def find_out(
    models: Sequence[Embedder],
    graph: Graph,
    embeddings: Sequence[Array],
    *,
    executor: Executor,
    protocols: Sequence[str] | None,
    num_runs: int | None,
) -> tuple[Scores, Confusion | None]:
    """Evaluate models that differ by their seed, with raw features and what needs no training beside; the confusion is
    that of the first.

    `protocols` are run as they are given, and one that cannot be is refused; one that trains anew does. None:
    PROTOCOLS, and the published splits where there are any; without labels hidden edges, by the encoder as it is.
    `num_runs` None: a few splits, and more of them where labels are few.
    """
    model = models[0]
    if protocols is None and not has_classes(graph):
        if graph.num_edges <= MAX_LINKS:
            with suppress(InputError):  # a graph that is too small to hide any edge has a report all the same
                return Scores({"links": find_protocol("links").score(model, graph, refit=False)}), None
        return Scores({}), None
    for name in protocols or ():
        if has_seen_test_labels(model.recipe_, graph, protocol=name):
            raise InputError(
                f"this model has learned from labels that the protocol {name!r} tests on: give the node table a split "
                "column and take 'public', or take 'links'"
            )
    chosen, note = (list(protocols), "") if protocols is not None else _usual(model, graph)
    anew = [name for name in chosen if find_protocol(name).trains_anew]
    scores = Scores({})
    if len(anew) < len(chosen):
        others = baselines_of(graph, model.recipe_, seed=model.seed, device=model.device)
        candidates = {**{name: [one] for name, one in others.items()}, model.recipe_.method.name: embeddings}
        by_labels = [name for name in chosen if name not in anew]
        scores = score(candidates, graph, executor=executor, protocols=by_labels, num_runs=num_runs)
    tables = {**scores.tables, **{name: find_protocol(name).score(model, graph, progress=False) for name in anew}}
    notes = "; ".join(one for one in (scores.note, note) if one)
    scores = replace(scores, tables={name: tables[name] for name in chosen}, note=notes)
    learned = has_seen_test_labels(model.recipe_, graph, protocol="paper")  # what confusions are counted on
    return scores, None if learned or not has_classes(graph) else confuse(embeddings[0], graph)


def has_classes(graph: Graph) -> bool:
    """Whether there is one label a node, and enough of them to evaluate."""
    return not why_no_classes(graph)


def why_no_classes(graph: Graph) -> str:
    """Why labels cannot be evaluated with, in words; nothing where they can."""
    if graph.labels is None:
        return "the graph has no labels"
    if graph.labels.dim() != 1:
        return "nodes have several labels each"
    labels = graph.labels.numpy()
    known = labels[labels >= 0]
    if len(known) < MIN_NODES:
        return f"labelled nodes are {len(known)}, and an evaluation needs {MIN_NODES}"
    return "" if len(np.unique(known)) >= 2 else "all labels are of one class"


def _usual(model: Embedder, graph: Graph) -> tuple[list[str], str]:
    """The protocols of a report for which nobody asked for others, and what is left out because it takes too long."""
    names, note, splits = [*(["auc"] if graph.splits is None and _is_one_rare(graph) else []), *PROTOCOLS], "", []
    if has_published_splits(graph):
        try:
            splits = Task.of(None, graph).published_splits("public")
        except InputError as error:
            note = str(error)
    if splits:
        num_fitted = max(len(split.train) + len(split.val) for split in splits)
        if num_fitted <= MAX_LABELLED:
            names.insert(0, "public")
        else:
            note = f"the published split has {num_fitted:,} nodes to fit on and was left out: take --protocol public"
    return [name for name in names if not has_seen_test_labels(model.recipe_, graph, protocol=name)], note


def _is_one_rare(graph: Graph) -> bool:
    """Whether there are two classes of which one is rare, so that calling all nodes by the other scores high."""
    assert graph.labels is not None
    if graph.labels.is_floating_point() or graph.labels.dtype == torch.bool:
        return False  # no classes: the evaluation says so
    counts = torch.bincount(graph.labels[graph.labels >= 0], minlength=2)
    rare, total = int(counts.min()), int(counts.sum())
    num_scored = rare * min(1.0, MAX_LABELLED / max(1, total))
    return len(counts) == 2 and num_scored >= FEWEST_RARE and rare < RARE * total


def score(
    candidates: Mapping[str, Sequence[Any]],
    graph: Graph,
    *,
    executor: Executor,
    protocols: Sequence[str],
    num_runs: int | None,
) -> Scores:
    """Evaluate candidates, the trained one last, on at most `MAX_LABELLED` labelled nodes; a published split as it is.

    A candidate is one array of embeddings, or one for each seed; all are evaluated on the same splits.
    """
    sampled, note = _sample_labels(graph)
    if num_runs is None:
        has_few = graph.labels is not None and int((graph.labels >= 0).sum()) < FEW_LABELLED
        num_runs = RUNS_OF_FEW if has_few else NUM_RUNS
    known = {name: find_protocol(name) for name in protocols}
    has_splits = graph.splits is not None
    graph_of = {name: graph if one.uses_published_splits and has_splits else sampled for name, one in known.items()}
    waiting = {}
    for protocol, one in known.items():
        num = 1 if one.is_costly else num_runs
        for name, arrays in candidates.items():
            waiting[protocol, name] = [
                executor.submit(evaluate, h, graph_of[protocol], protocol=protocol, num_runs=num) for h in arrays
            ]
    found = {place: [one.result() for one in futures] for place, futures in waiting.items()}
    tables = {name: {other: pool_evaluations(found[name, other]) for other in candidates} for name in protocols}
    note = "" if all(one is graph for one in graph_of.values()) else note
    trained = found[protocols[0], list(candidates)[-1]]
    untrained = [(found[protocols[0], name][0], title) for name, title in UNTRAINED.items() if name in candidates]
    best, title = max(untrained, key=lambda one: one[0].mean, default=(None, ""))
    gains: list[Gain] = []
    if best is not None and best.mean < 98:
        first = known[protocols[0]]
        task = Task.of(None, graph_of[protocols[0]], several_labels=first.takes_several_labels)
        num_tested = first.num_tested(task)
        gains = [_gain(one, best, num_tested, over=title) for one in trained]
    return Scores(tables, note, tuple(one.mean for one in trained), tuple(gains))


def _gain(trained: Evaluation, untrained: Evaluation, num_tested: int, *, over: str) -> Gain:
    share = min(max((trained.mean + untrained.mean) / 200, 0.0), 1.0)
    differences = np.subtract(trained.runs, untrained.runs)  # on the same splits
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    error = (100**2 * share * (1 - share) / num_tested + spread**2) ** 0.5
    return Gain(trained.mean - untrained.mean, error, num_tested, over)


def confuse(h: Array, graph: Graph) -> Confusion:
    """Fit a probe on 10 % of the labels, choose C on 10 %, compare on the rest."""
    sampled, _ = _sample_labels(graph)
    assert sampled.labels is not None
    labels = sampled.labels.numpy()
    order = np.random.default_rng(0).permutation(np.flatnonzero(labels >= 0))
    train, val, test = np.split(order, [len(order) // 10, len(order) // 5])
    probe = fit_probe(h, labels, train=train, val=val, num_classes=graph.num_classes)
    predicted = probe.predict(h)
    names = class_names(graph)
    counts = np.zeros((graph.num_classes, graph.num_classes), dtype=np.int64)
    np.add.at(counts, (labels[test], predicted[test]), 1)
    accuracy = 100.0 * float(np.trace(counts)) / max(1, len(test))
    wrong, sizes = counts - np.diag(np.diag(counts)), np.maximum(counts.sum(1), 1)
    often = [divmod(int(at), len(counts)) for at in np.argsort(-wrong, axis=None, kind="stable")[:NUM_MISTAKES]]
    pairs = [(i, j) for i, j in often if wrong[i, j]]
    mistakes = tuple((names[i], names[j], int(wrong[i, j]), float(wrong[i, j] / sizes[i])) for i, j in pairs)
    shown, counts = _largest(names, counts)
    return Confusion(shown, counts, accuracy, mistakes, predicted)


def _largest(names: Sequence[str], counts: Array) -> tuple[tuple[str, ...], Array]:
    """The largest classes by size, all others added up as one."""
    order = np.argsort(-counts.sum(1), kind="stable")
    order = order[(counts.sum(1) + counts.sum(0))[order] > 0]
    shown = [names[i] for i in order]
    if len(shown) > MAX_CLASSES_SHOWN:
        shown[MAX_CLASSES_SHOWN - 1 :] = [f"{len(shown) - MAX_CLASSES_SHOWN + 1} others"]
    place = np.zeros(len(counts), dtype=np.int64)
    place[order] = np.minimum(np.arange(len(order)), len(shown) - 1)
    merged = np.zeros((len(shown), len(shown)), dtype=np.int64)
    np.add.at(merged, (place[:, None], place[None, :]), counts)
    return tuple(shown), merged


def _sample_labels(graph: Graph) -> tuple[Graph, str]:
    """A graph with fewer labels for what draws nodes at random, and what to say of it."""
    if graph.labels is None or graph.labels.dim() != 1:
        return graph, ""
    labels = graph.labels.numpy()
    known = np.flatnonzero(labels >= 0)
    if len(known) <= MAX_LABELLED:
        return graph, ""
    kept = np.full(len(labels), -1, dtype=np.int64)
    chosen = np.random.default_rng(0).permutation(known)[:MAX_LABELLED]
    kept[chosen] = labels[chosen]
    note = (
        f"random splits and clusters are of a random {MAX_LABELLED:,} of the {len(known):,} labelled nodes; "
        "`graphstrap evaluate` takes all"
    )
    return replace(graph, labels=torch.from_numpy(kept)), note
