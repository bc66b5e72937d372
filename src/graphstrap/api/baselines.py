"""Baselines that learn from labels directly, on the splits of the named protocols, to stand beside linear probes.

    protocol     learned from                     chosen or stopped on                tested on
    paper        10 %, at random                  10 %                                80 %
    reference    the first half of 20 %           the second half                     80 %
    public       the published training nodes     the published validation nodes      the published test nodes

The splits are those of `evaluate` for the same seed. `reference` has no validation nodes, so half of its 20 % serves as
such, and so does half of each class of the training nodes of a published split without any. Label propagation then
starts anew from both halves, as the linear probe is fitted anew; a network does not, for the second half says when it
stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from graphstrap.api.fitting import check_numbers
from graphstrap.errors import InputError
from graphstrap.evaluation.registry import Evaluation, find_protocol
from graphstrap.evaluation.task import Index, Split, Task, run_generator
from graphstrap.graph import Graph
from graphstrap.graph.views import child_seed
from graphstrap.nn.features import FeatureTransform
from graphstrap.nn.methods.label_propagation import propagate_labels
from graphstrap.nn.methods.supervised import SupervisedSettings, fit_supervised
from graphstrap.ops import resolve_device

# What label propagation is tried with; of equally good pairs the first is taken.
NUMBERS_OF_STEPS = (2, 5, 10, 20, 50)
RESTARTS = (0.0, 0.05, 0.1, 0.3, 0.5)

_STRUCTURAL_SIZE = 128
_DETAILS = {
    "paper": "learned from 10 %, {use} 10 %, tested on 80 %",
    "reference": "learned from 20 %, of which half is for validation, tested on 80 %",
    "public": "learned from train, {use} val, tested on test",
}
_HALVED_DETAIL = "learned from train, of which half is for validation, tested on test"


def evaluate_label_propagation(
    graph: Graph, *, protocol: str = "paper", num_runs: int = 5, seed: int = 0, device: str = "auto"
) -> Evaluation:
    """Label propagation, its number of steps and its restart chosen on validation nodes."""
    splits = _draw_splits(graph, protocol=protocol, num_runs=num_runs, seed=seed)
    graph, tried, runs = graph.to(resolve_device(device)), list(product(NUMBERS_OF_STEPS, RESTARTS)), []
    for split in splits:
        halved = _halved(split)
        found = [_accuracy(_propagated(graph, halved.train, *one), _labels(graph), halved.val) for one in tried]
        best = tried[int(np.argmax(found))]
        runs.append(_accuracy(_propagated(graph, split.train, *best), _labels(graph), split.test))
    return _summary(protocol, splits, runs, name="label propagation", use="steps and restart chosen on")


def evaluate_supervised(
    graph: Graph,
    *,
    encoder: str = "gcn",
    protocol: str = "paper",
    num_runs: int = 5,
    seed: int = 0,
    device: str = "auto",
    settings: SupervisedSettings | None = None,
) -> Evaluation:
    """A network trained on labels, a fresh one for each split, stopped by validation nodes.

    Args:
        encoder: "gcn" or "mlp".
        settings: None for those of Shchur et al., who also take features as they are. A graph without any gets
            structural ones.
    """
    if encoder not in ("gcn", "mlp"):
        raise InputError(f"encoder must be gcn or mlp, got {encoder!r}")
    splits = _draw_splits(graph, protocol=protocol, num_runs=num_runs, seed=seed)
    transform = FeatureTransform.fit(graph, scaling="none", structural_size=_STRUCTURAL_SIZE)
    prepared = transform(graph).to(resolve_device(device)).with_readable_features()
    runs = []
    for run, split in enumerate(splits):
        halved = _halved(split)
        train, val = (torch.from_numpy(nodes).to(prepared.device) for nodes in (halved.train, halved.val))
        fit_seed = child_seed(seed, run)
        model = fit_supervised(prepared, encoder=encoder, train=train, val=val, settings=settings, seed=fit_seed)
        runs.append(_accuracy(model.predict(prepared).argmax(1), _labels(prepared), split.test))
    return _summary(protocol, splits, runs, name=f"supervised {encoder}", use="stopped by")


def _draw_splits(graph: Graph, *, protocol: str, num_runs: int, seed: int) -> list[Split]:
    """The protocol's splits; those without validation nodes keep an empty `val`."""
    if protocol not in _DETAILS:
        raise InputError(f"a baseline's protocol must be one of {', '.join(_DETAILS)}, got {protocol!r}")
    if num_runs < 1:
        raise InputError(f"num_runs must be at least 1, got {num_runs}")
    check_numbers(graph)
    labels, known = _labels(graph).cpu().numpy(), find_protocol(protocol)
    splits = known.splits(Task.of(None, graph, num_runs=num_runs, seed=seed))
    return [_mixed(split, labels, run) for run, split in enumerate(splits)] if known.uses_published_splits else splits


def _mixed(split: Split, labels: Index, run: int) -> Split:
    """A published split, whose nodes ascend, with training nodes in an order in which both halves have all classes."""
    if len(split.val):
        return split
    order = run_generator(0, run).permutation(split.train)
    order = order[np.argsort(labels[order], kind="stable")]
    return split._replace(train=np.concatenate([order[::2], order[1::2]]))


def _halved(split: Split) -> Split:
    """The split with half of its training nodes for validation, if it has no other."""
    if len(split.val):
        return split
    if len(split.train) < 2:
        raise InputError("a split without validation nodes needs two training nodes at least: half of them validate")
    train, val = np.split(split.train, [(len(split.train) + 1) // 2])
    return Split(train, val, split.test)


def _propagated(graph: Graph, nodes: Index, num_steps: int, restart: float) -> Tensor:
    """(N,) classes; where no label arrives, the most frequent one."""
    train, labels = torch.from_numpy(nodes).to(graph.device), _labels(graph)
    scores = propagate_labels(graph, labels, train, num_steps=num_steps, restart=restart)
    return torch.where(scores.sum(1) > 0, scores.argmax(1), labels[train].mode().values)


def _accuracy(predicted: Tensor, labels: Tensor, nodes: Index) -> float:
    """The part of the nodes that are put into their class."""
    chosen = torch.from_numpy(nodes).to(labels.device)
    return float((predicted[chosen] == labels[chosen]).double().mean())


def _labels(graph: Graph) -> Tensor:
    """(N,) class numbers, -1 for none."""
    if graph.labels is None or graph.labels.dim() != 1:
        raise InputError(f"graph {graph.name!r} needs one class number for each node: there is nothing to learn from")
    return graph.labels


def _summary(protocol: str, splits: Sequence[Split], parts: Sequence[float], *, name: str, use: str) -> Evaluation:
    known = find_protocol(protocol)
    is_halved = known.uses_published_splits and not all(len(split.val) for split in splits)
    done = (_HALVED_DETAIL if is_halved else _DETAILS[protocol]).format(use=use)
    kind = "published" if known.uses_published_splits else "random"
    return known.summary("accuracy", parts, f"{name}, {done}, {len(parts)} {kind} split{'s' if len(parts) > 1 else ''}")
