"""Edges on their way into a graph: made undirected, sorted, merged, and what was done to them counted."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError

_LARGEST_TYPE = 65_535
_NUMBER_THE_NODES = (
    "number the nodes from 0 up and give their names as ids=..., or read a table with names in it by gs.read_tables"
)
_NUMBER_THE_CLASSES = "number the classes from 0 up, -1 for none, and give their names as class_names=..."
_NAMES_ELSEWHERE = {"y": "labels", "edge_attr": "edge_columns", "weight": "edge_weights"}
_NUMBER_THE_TYPES = "number the types from 0 up and give their names as edge_type_names=..."


@dataclass(frozen=True)
class Cleaning:
    """What was done to the edges on the way in, and what may be wrong with their ids.

    Args:
        num_edges_given: all of them, also those that name an unknown node.
        num_unknown_dropped: those that name a node which the nodes table lacks.
        num_ids_in_both: ids in both id columns, where these have names as of nodes of two kinds.
    """

    num_edges_given: int = 0
    num_self_loops_dropped: int = 0
    num_duplicates_merged: int = 0
    num_reverse_edges_added: int = 0
    num_unknown_dropped: int = 0
    num_ids_in_both: int = 0

    def with_unknown(self, number: int) -> Cleaning:
        """So many edges more were given, and dropped since they name an unknown node."""
        return replace(self, num_edges_given=self.num_edges_given + number, num_unknown_dropped=number)

    def __str__(self) -> str:
        done = [
            f"{self.num_unknown_dropped:,} that name an unknown node dropped" if self.num_unknown_dropped else "",
            f"{_counted(self.num_self_loops_dropped, 'self-loop')} dropped" if self.num_self_loops_dropped else "",
            f"{_counted(self.num_reverse_edges_added, 'reverse edge')} added" if self.num_reverse_edges_added else "",
            f"{_counted(self.num_duplicates_merged, 'duplicate')} merged" if self.num_duplicates_merged else "",
        ]
        said = f"{_counted(self.num_edges_given, 'edge')} given; " + (
            ", ".join(d for d in done if d) or "nothing to clean"
        )
        if not self.num_ids_in_both:
            return said
        return (
            f"{said}\nnote: {self.num_ids_in_both:,} ids are in both id columns, and each is one node: if the columns "
            "are of two kinds, such as user 5 and film 5, make the ids distinct, such as u5 and m5"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class EdgeTable:
    """Aligned columns, one row per edge; every step returns a new table."""

    source: Tensor
    target: Tensor
    types: Tensor | None
    weights: Tensor | None
    times: Tensor | None
    columns: Tensor | None

    @classmethod
    def of(cls, source: Any, target: Any, *, types: Any, weights: Any, times: Any, columns: Any) -> EdgeTable:
        """From whatever can become tensors; only the two columns of node numbers must be there."""
        return cls(
            source=as_integers("source", source),
            target=as_integers("target", target),
            types=None if types is None else as_integers("edge_types", types),
            weights=as_floats("edge_weights", weights),
            times=None if times is None else as_numbers("edge_times", times, fix="give seconds or years"),
            columns=as_floats("edge_columns", columns),
        )

    def select(self, index: Tensor) -> EdgeTable:
        chosen: list[Any] = [None if column is None else column[index] for column in self._all()]
        return EdgeTable(*chosen)

    def with_reverse(self, names: tuple[str, ...]) -> tuple[EdgeTable, tuple[str, ...]]:
        types = self.types
        if types is not None:
            types = torch.cat([types, types + len(names)])
            names = names + tuple(f"reverse_{name}" for name in names)
        twice = [None if column is None else torch.cat([column, column]) for column in self._all()[3:]]
        source, target = torch.cat([self.source, self.target]), torch.cat([self.target, self.source])
        return EdgeTable(source, target, types, *twice), names

    def sorted(self, num_nodes: int) -> EdgeTable:
        """By destination, then source, then type; equal ones stay in the order given."""
        table = self if self.types is None else self.select(torch.sort(self.types, stable=True).indices)
        return table.select(torch.sort(table._keys(num_nodes), stable=True).indices)

    def firsts(self, num_nodes: int) -> EdgeTable:
        """Of a sorted table: the first row of each (source, target, type)."""
        return self.select(self._is_first(num_nodes))

    def merged(self, num_nodes: int) -> EdgeTable:
        """Of a sorted table: one row for each (source, target, type), its weights added up."""
        table = self.firsts(num_nodes)
        if self.weights is None or len(table.source) == len(self.source):
            return table
        group = self.groups(num_nodes)
        return replace(table, weights=torch.zeros(len(table.source)).index_add_(0, group, self.weights))

    def groups(self, num_nodes: int) -> Tensor:
        """Of a sorted table: which (source, target, type) each row belongs to, counted from 0."""
        return self._is_first(num_nodes).long().cumsum(0) - 1

    def _is_first(self, num_nodes: int) -> Tensor:
        keys = self._keys(num_nodes)
        is_first = torch.ones(len(keys), dtype=torch.bool)
        is_first[1:] = keys[1:] != keys[:-1]
        if self.types is not None:
            is_first[1:] |= self.types[1:] != self.types[:-1]
        return is_first

    def _keys(self, num_nodes: int) -> Tensor:
        return self.target * num_nodes + self.source

    def _all(self) -> list[Tensor | None]:
        return [self.source, self.target, self.types, self.weights, self.times, self.columns]


def clean_edges(
    table: EdgeTable, type_names: tuple[str, ...], num_nodes: int, *, directed: bool, self_loops: str, duplicates: str
) -> tuple[EdgeTable, tuple[str, ...], Cleaning]:
    """A sorted table as a graph takes it, the names of its types, and what was done; see `Graph.from_edges`."""
    check_choice("self_loops", self_loops, ("drop", "keep"))
    check_choice("duplicates", duplicates, ("merge", "keep"))
    num_given = len(table.source)
    if self_loops == "drop":
        table = table.select(table.source != table.target)
    num_without_loops = len(table.source)
    table = table.sorted(num_nodes)
    if duplicates == "merge":
        table = table.merged(num_nodes)
    num_distinct = len(table.source)
    if not directed:
        table, type_names = table.with_reverse(type_names)
        table = table.sorted(num_nodes)
        if duplicates == "merge":
            table = table.firsts(num_nodes)
    cleaning = Cleaning(
        num_edges_given=num_given,
        num_self_loops_dropped=num_given - num_without_loops,
        num_duplicates_merged=num_without_loops - num_distinct,
        num_reverse_edges_added=len(table.source) - num_distinct,
    )
    return table, type_names, cleaning


def as_numbers(name: str, values: Any, *, fix: str, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor from a tensor, an array, a list or a table of pandas; `fix` says what to do about what is no number."""
    if isinstance(values, Tensor):
        return torch.as_tensor(values, dtype=dtype)
    try:
        array = np.array(values) if hasattr(values, "to_numpy") else np.asarray(values)  # that of pandas is read-only
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
    return labels.long()


def as_floats(name: str, values: Any) -> Tensor | None:
    return None if values is None else as_numbers(name, values, fix="give a number for each edge", dtype=torch.float32)


def count_nodes(table: EdgeTable, num_nodes: int | None, *, num_rows: int) -> int:
    """The number of nodes given, else the least that has room for every edge and every row of features or labels."""
    source, target = table.source, table.target
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


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


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
