"""Edges on their way into a graph: made undirected, sorted, merged, and what was done to them counted.

One sort by (target, source, type) brings together an edge, its duplicates and, in an undirected graph, the reverses of
the opposite ones. Of those, edges that were given come first and win. `io/prepare.py` does the same on disk.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph.blocks import Movable

_LARGEST_TYPE = 65_535
_NUMBER_THE_NODES = (
    "number the nodes from 0 up and give their names as ids=..., or read a table with names in it by gs.read_tables"
)
_NUMBER_THE_CLASSES = "number the classes from 0 up, -1 for none, and give their names as class_names=..."
MOST_CLASSES = 1 << 24
_NUMBER_THE_TYPES = "number the types from 0 up and give their names as edge_type_names=..."
_NAMES_ELSEWHERE = {"y": "labels", "edge_attr": "edge_columns", "weight": "edge_weights"}


@dataclass(frozen=True)
class Cleaning:
    """What was done to the edges on the way in, and what may be wrong with their ids."""

    num_edges_given: int = 0  # also those that name an unknown node
    num_self_loops_dropped: int = 0
    num_duplicates_merged: int = 0
    num_reverse_edges_added: int = 0
    num_unknown_dropped: int = 0  # that name a node which the nodes table lacks
    num_ids_in_both: int = 0  # where the id columns have names as of nodes of two kinds

    @classmethod
    def of(cls, *, num_given: int, num_loops: int, num_distinct: int, num_edges: int) -> Cleaning:
        """From the numbers of edges: given, self-loops dropped, distinct ones without reverses, and all in the end."""
        return cls(num_given, num_loops, num_given - num_loops - num_distinct, num_edges - num_distinct)

    def with_ids(self, *, num_unknown: int = 0, num_in_both: int = 0) -> Cleaning:
        """With the edges that were dropped before because they name an unknown node, and the ids in both columns."""
        num_given = self.num_edges_given + num_unknown
        return replace(self, num_edges_given=num_given, num_unknown_dropped=num_unknown, num_ids_in_both=num_in_both)

    def __str__(self) -> str:
        done = [
            f"{self.num_unknown_dropped:,} that name an unknown node dropped" if self.num_unknown_dropped else "",
            f"{counted(self.num_self_loops_dropped, 'self-loop')} dropped" if self.num_self_loops_dropped else "",
            f"{counted(self.num_reverse_edges_added, 'reverse edge')} added" if self.num_reverse_edges_added else "",
            f"{counted(self.num_duplicates_merged, 'duplicate')} merged" if self.num_duplicates_merged else "",
        ]
        said = f"{counted(self.num_edges_given, 'edge')} given; {', '.join(filter(None, done)) or 'nothing to clean'}"
        if not self.num_ids_in_both:
            return said
        return (
            f"{said}\nnote: {self.num_ids_in_both:,} ids are in both id columns, and each is one node: if the columns "
            "are of two kinds, such as user 5 and film 5, make the ids distinct, such as u5 and m5"
        )


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class EdgeList(Movable):
    """Aligned columns, one entry per edge; every step returns a new list."""

    source: Tensor
    target: Tensor
    is_reverse: Tensor  # False for edges that were given
    types: Tensor | None = None
    weights: Tensor | None = None
    times: Tensor | None = None
    columns: Tensor | None = None

    @classmethod
    def of(cls, source: Any, target: Any, *, types: Any, weights: Any, times: Any, columns: Any) -> EdgeList:
        """From whatever can become tensors; only the two columns of node numbers must be there."""
        source = as_integers("source", source)
        return cls(
            source=source,
            target=as_integers("target", target),
            types=None if types is None else as_integers("edge_types", types),
            weights=_as_floats("edge_weights", weights),
            times=None if times is None else as_numbers("edge_times", times, fix="give seconds or years"),
            columns=_as_floats("edge_columns", columns),
            is_reverse=torch.zeros(len(source), dtype=torch.bool),
        )

    def select(self, index: Tensor) -> EdgeList:
        return self.map(lambda column: column[index])

    def with_reverse(self, num_types: int) -> EdgeList:
        """The edges, then their reverses, whose types follow the others."""
        return replace(
            self.map(lambda column: torch.cat([column, column])),
            source=torch.cat([self.source, self.target]),
            target=torch.cat([self.target, self.source]),
            types=None if self.types is None else torch.cat([self.types, self.types + num_types]),
            is_reverse=torch.cat([self.is_reverse, ~self.is_reverse]),
        )

    def sorted(self, num_nodes: int) -> EdgeList:
        """By destination, then source, then type; equal ones stay in the order given."""
        edges = self if self.types is None else self.select(torch.sort(self.types, stable=True).indices)
        return edges.select(torch.sort(edges.target * num_nodes + edges.source, stable=True).indices)

    def merged(self) -> EdgeList:
        """Of a sorted list: the first edge of each (source, target, type), with the sum of their weights.

        Reverses come after edges that were given, and add nothing to their weights.
        """
        is_first = torch.ones(len(self.source), dtype=torch.bool)
        is_first[1:] = (self.source[1:] != self.source[:-1]) | (self.target[1:] != self.target[:-1])
        if self.types is not None:
            is_first[1:] |= self.types[1:] != self.types[:-1]
        edges = self.select(is_first.nonzero().squeeze(1))
        if self.weights is None or len(edges.source) == len(self.source):
            return edges
        group = is_first.long().cumsum(0) - 1
        counted = self.weights.masked_fill(self.is_reverse != edges.is_reverse[group], 0)
        sums = torch.zeros(len(edges.source)).index_add_(0, group, counted)
        return replace(edges, weights=sums)


def clean_edges(
    edges: EdgeList, type_names: tuple[str, ...], num_nodes: int, *, directed: bool, self_loops: str, duplicates: str
) -> tuple[EdgeList, tuple[str, ...], Cleaning]:
    """A sorted list as a graph takes it, the names of its types, and what was done; see `Graph.from_edges`."""
    for name, value, choices in (
        ("self_loops", self_loops, ("drop", "keep")),
        ("duplicates", duplicates, ("merge", "keep")),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    num_given = len(edges.source)
    if self_loops == "drop":
        edges = edges.select(edges.source != edges.target)
    num_loops = num_given - len(edges.source)
    if not directed:
        edges, type_names = edges.with_reverse(len(type_names)), with_reverse_names(type_names)
    edges = edges.sorted(num_nodes)
    if duplicates == "merge":
        edges = edges.merged()
    num_edges, num_distinct = len(edges.source), int((~edges.is_reverse).sum())
    cleaning = Cleaning.of(num_given=num_given, num_loops=num_loops, num_distinct=num_distinct, num_edges=num_edges)
    return edges, type_names, cleaning


def with_reverse_names(type_names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of edge types, then those of their reverses."""
    return type_names + tuple(f"reverse_{name}" for name in type_names)


def as_numbers(name: str, values: Any, *, fix: str, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor from a tensor, an array, a list or a table of pandas; `fix` says what to do about what is no number."""
    if isinstance(values, Tensor):
        return torch.as_tensor(values, dtype=dtype)
    try:
        array = np.asarray(values)
        if array.dtype == object and all(kind.kind in "biuf" for kind in getattr(values, "dtypes", [array.dtype])):
            array = np.asarray(values.astype(float))  # a table with columns of numbers and of yes and no
        if not array.flags.writeable:  # as that of pandas is
            array = array.copy()
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{name} must have as many numbers in each row as in the first: fill in the others") from error
    if array.dtype.kind not in "biuf":
        wrong = [value for value in array.ravel().tolist() if not isinstance(value, float | int)]
        raise InputError(f"{name} must be numbers, got {str(wrong[0] if wrong else array.dtype)[:40]!r}: {fix}")
    return torch.as_tensor(array, dtype=dtype)


def as_integers(name: str, values: Any) -> Tensor:
    fix = _NUMBER_THE_TYPES if name == "edge_types" else _NUMBER_THE_NODES
    tensor = as_numbers(name, values, fix=fix)
    if tensor.shape == (0,):
        tensor = tensor.long()
    if tensor.dim() != 1 or tensor.is_floating_point():
        raise ValueError(f"{name} must be one row of integers, got {tensor.dtype} of shape {tuple(tensor.shape)}")
    return tensor.long().cpu()


def as_labels(values: Any) -> Tensor:
    """Classes as integers, also where they come as 0.0 and 1.0, or as true and false; several a node are left alone."""
    labels = as_numbers("labels", values, fix=_NUMBER_THE_CLASSES)
    if labels.dim() != 1:
        return labels
    wrong = labels[labels != labels.trunc()] if labels.is_floating_point() else labels[:0]  # as NaN is
    if len(wrong):
        raise InputError(f"labels must be whole numbers, got {wrong[0]:g}: {_NUMBER_THE_CLASSES}")
    labels = labels.long()
    if len(labels) and not -1 <= int(labels.min()) <= int(labels.max()) < MOST_CLASSES:
        wrong = labels[(labels < -1) | (labels >= MOST_CLASSES)]
        raise InputError(f"labels are numbers from 0 up, or -1 for none, got {wrong[0]}: {_NUMBER_THE_CLASSES}")
    return labels


def _as_floats(name: str, values: Any) -> Tensor | None:
    return None if values is None else as_numbers(name, values, fix="give a number for each edge", dtype=torch.float32)


def count_nodes(edges: EdgeList, num_nodes: int | None, *, num_rows: int) -> int:
    """The number of nodes given, else the least that has room for every edge and every row of features or labels."""
    source, target = edges.source, edges.target
    if len(source) != len(target):
        raise ValueError(f"source and target must be aligned, got {len(source)} and {len(target)} values")
    largest = int(torch.maximum(source.max(), target.max())) if len(source) else -1
    if len(source) and int(torch.minimum(source.min(), target.min())) < 0:
        raise ValueError("source and target are node numbers from 0 up, got a negative one")
    if num_nodes is None:
        num_nodes = max(largest + 1, num_rows)
    if largest >= num_nodes:
        raise ValueError(f"an edge names node {largest}, but num_nodes is {num_nodes}")
    return num_nodes


def numbers_as_names(types: Tensor) -> tuple[str, ...]:
    """ "0", "1", ...: one for each edge type up to the largest."""
    if len(types) == 0:
        return ()
    lowest, highest = int(types.min()), int(types.max())
    if lowest < 0 or highest > _LARGEST_TYPE:
        raise InputError(
            f"edge types without names must be numbers from 0 to {_LARGEST_TYPE:,}, got {lowest} to {highest}: "
            "number them from 0 up, or give edge_type_names"
        )
    return tuple(str(kind) for kind in range(highest + 1))


def check_names(given: Collection[str], *, known: Collection[str]) -> None:
    """Refuse what `from_edges` does not know, with the name that it may have here."""
    for name in given:
        if name not in known:
            nearest = [_NAMES_ELSEWHERE[name]] if name in _NAMES_ELSEWHERE else difflib.get_close_matches(name, known)
            hint = f"did you mean {nearest[0]}?" if nearest else "see the fields of gs.Graph"
            raise InputError(f"from_edges has no argument {name}: {hint}")
