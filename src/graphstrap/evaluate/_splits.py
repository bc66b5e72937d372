"""Splits: which nodes a run fits on, chooses on and is tested on.

A run's split depends on (seed, run) and on nothing else: the same for every method, solver and number of runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluate._rows import Index
from graphstrap.graph import Graph, Splits

MIN_NODES = 10


class Split(NamedTuple):
    """Node numbers, disjoint. An empty `val` means: choose on random halves of `train`."""

    train: Index
    val: Index
    test: Index


def run_generator(seed: int, run: int) -> np.random.Generator:
    return np.random.default_rng((seed, run))


def tenths(nodes: Index, generator: np.random.Generator) -> Split:
    """A random 10 / 10 / 80 split, as the paper describes."""
    tenth = _part(nodes, 10)
    return Split(*np.split(generator.permutation(nodes), [tenth, 2 * tenth]))


def fifths(nodes: Index, generator: np.random.Generator) -> Split:
    """A random 20 / 80 split without validation nodes, as the reference code does."""
    train, test = np.split(generator.permutation(nodes), [_part(nodes, 5)])
    return Split(train, train[:0], test)


def published(splits: Splits | None, nodes: Index, *, protocol: str = "public") -> list[Split]:
    """The splits that come with the graph, of its labelled `nodes`."""
    if splits is None:
        raise InputError(
            f"the protocol {protocol!r} needs published splits and this graph has none: give the node table a column "
            "`split` of train, val and test (docs/tables.md), or in Python Graph(splits=...); or use 'paper' or "
            "'reference', which draw random splits"
        )
    return [_published(splits, nodes, column) for column in range(splits.num_splits)]


def has_published_splits(graph: Graph) -> bool:
    """Whether each of the graph's splits has labels to learn from and to be tested on: those of test nodes may be
    kept secret."""
    if graph.splits is None or graph.labels is None:
        return False
    if graph.labels.dim() != 1:  # several labels a node, of which none is missing
        return True
    nodes = np.flatnonzero(graph.labels.cpu().numpy() >= 0)
    parts = [
        (mask, column) for column in range(graph.splits.num_splits) for mask in (graph.splits.train, graph.splits.test)
    ]
    return all(len(_members(mask, nodes, column)) for mask, column in parts)


def _published(splits: Splits, nodes: Index, column: int) -> Split:
    split = Split(*[_members(mask, nodes, column) for mask in (splits.train, splits.val, splits.test)])
    if len(split.train) == 0 or len(split.test) == 0:
        raise InputError(f"published split {column} has no labelled training or test node")
    for name, nodes_of in (("train", split.train), ("val", split.val)):
        num_shared = len(np.intersect1d(nodes_of, split.test))
        if num_shared:
            raise InputError(
                f"published split {column} has {num_shared:,} labelled nodes both in {name} and in test: give masks "
                "that share no node"
            )
    return split


def _members(mask: Tensor, nodes: Index, column: int) -> Index:
    """A mask of one column serves all splits, as the test mask of WikiCS does."""
    columns = mask.detach().cpu().numpy().reshape(len(mask), -1)
    if columns.shape[1] == 0:
        return nodes[:0]
    members: Index = nodes[columns[nodes, min(column, columns.shape[1] - 1)].astype(bool)]
    return members


def _part(nodes: Index, parts: int) -> int:
    if len(nodes) < MIN_NODES:
        raise InputError(f"a random split needs at least {MIN_NODES} labelled nodes, the graph has {len(nodes)}")
    return len(nodes) // parts
