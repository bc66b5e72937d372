"""Which column is what: named in the options, or recognised by its name.

The index that pandas writes beside a table is the id of the nodes where nothing else is, and nothing otherwise: a table
of edges would start with it, and a model learn from it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.database import connect, quote_name
from graphstrap.io.table_files import Table, open_table

# The names of the two id columns of an edges table: which are usual, and which sound like ids of two kinds.
#
# `userId` and `movieId` may both count from 1, and then user 5 and film 5 are one node; `source` and `target`, or
# `node_1` and `node_2`, are ids of the same nodes.


# What is looked for where the options name neither column, the first pair that a table has winning.
USUAL_ENDS = (("source", "target"), ("src", "dst"), ("from", "to"))
_PAIRS = {
    *map(frozenset, USUAL_ENDS),
    *map(frozenset, (("src", "dest"), ("origin", "destination"), ("start", "end"), ("head", "tail"), ("in", "out"))),
    *map(frozenset, (("parent", "child"), ("citing", "cited"), ("sender", "receiver"), ("caller", "callee"))),
    *map(frozenset, (("follower", "followee"), ("subject", "object"), ("first", "second"), ("left", "right"))),
}
_WORD = r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+"


def sound_like_two_kinds(source: str, target: str) -> bool:
    """Whether the two names differ in more than a number, a letter, or a usual pair of words."""
    one, other = _words(source), _words(target)
    one, other = one - other, other - one
    if all(len(word) == 1 or word.isdigit() for word in one | other):
        return False
    return one | other not in _PAIRS


def _words(name: str) -> frozenset[str]:
    """`userId` and `user_ids` to `user`."""
    words = (re.sub(r"ids?$", "", word.lower()) for word in re.findall(_WORD, name))
    return frozenset(word for word in words if word)


EDGE_ROLES = ("source", "target", "edge_type", "weight", "time", "edge_columns")
NODE_ROLES = ("id", "label", "split", "type", "node_time", "feature_columns")


@dataclass(frozen=True)
class TableOptions:
    """How to read an edges table and a nodes table. Plain values: `dataclasses.asdict` gives something for JSON.

    Args:
        source, target: the two id columns of the edges; otherwise those called source and target, src and dst, or from
            and to; otherwise the first two.
        edge_type, weight, time: columns of the edges; otherwise those called type, weight and time.
        edge_columns: numeric columns of the edges to keep; otherwise all that are left.
        id: the id column of the nodes; otherwise the one called id, or the first.
        label, split, type, node_time: columns of the nodes; otherwise those called label, split, type and time.
        feature_columns: feature columns of the nodes, in this order; otherwise all that are left, in file order.
        ignore_columns: columns of either table that are not read at all.
        ignore_if_there: the same, but no table needs to have them.
        directed: keep edges as they are; otherwise every edge gets its reverse.
        ignore_unknown_nodes: drop edges that name a node the nodes table does not have; otherwise they are an error.
    """

    source: str | None = None
    target: str | None = None
    id: str | None = None
    label: str | None = None
    split: str | None = None
    type: str | None = None
    edge_type: str | None = None
    weight: str | None = None
    time: str | None = None
    node_time: str | None = None
    feature_columns: tuple[str, ...] | None = None
    edge_columns: tuple[str, ...] | None = None
    ignore_columns: tuple[str, ...] = ()
    ignore_if_there: tuple[str, ...] = ()
    directed: bool = False
    ignore_unknown_nodes: bool = False

    def __post_init__(self) -> None:
        for role in ("feature_columns", "edge_columns", "ignore_columns", "ignore_if_there"):
            given = getattr(self, role)
            if isinstance(given, str):
                example = tuple(name.strip() for name in given.split(","))
                raise InputError(f"{role} takes a tuple of names: give {role}={example}, not {given!r}")
            if given is not None:
                object.__setattr__(self, role, tuple(given))

    def replaced(self, more: Mapping[str, Any]) -> TableOptions:
        """The options with others in their place; one that does not exist is an error that names the nearest."""
        known = [one.name for one in fields(self)]
        for name in more:
            if name not in known:
                nearest = difflib.get_close_matches(name.removesuffix("_column"), known, n=1)
                hint = f"did you mean {nearest[0]}?" if nearest else f"choose from {', '.join(known)}"
                raise InputError(f"tables have no option {name}: {hint}")
        return replace(self, **more)

    def named(self, roles: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Each column that the options for these parts name, after its part."""
        asked = {role: getattr(self, role) or () for role in roles}
        return tuple(
            (role, name) for role, names in asked.items() for name in ((names,) if isinstance(names, str) else names)
        )

    def of_a_run(self) -> TableOptions:
        """The options for tables that a run was made with: what is to be ignored need not be there any more."""
        ignored = (*self.ignore_columns, *self.ignore_if_there)
        return replace(self, ignore_columns=(), ignore_if_there=ignored) if ignored else self


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of the edges table, each with its part."""

    source: str
    target: str
    type: str | None
    weight: str | None
    time: str | None
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class NodeColumns:
    """The columns of the nodes table, each with its part."""

    id: str
    label: str | None
    split: str | None
    type: str | None
    time: str | None
    features: tuple[str, ...]


def choose_edge_columns(table: Table, options: TableOptions) -> EdgeColumns:
    """Give each column of the edges table its part."""
    left = _columns_to_read(table, options)
    if len(left) < 2:
        raise InputError(
            f"{table.name} has too few columns for edges ({table.names_in_words()}): it needs two columns of node ids"
        )
    usual_source, usual_target = _usual_ends(left, options)
    asked = {
        "source": (options.source, usual_source),
        "target": (options.target, usual_target),
        "edge_type": (options.edge_type, "type"),
        "weight": (options.weight, "weight"),
        "time": (options.time, "time"),
    }
    parts = _choose_parts(table, asked, left=left)
    free = [name for name in left if name not in parts.values() and name != table.index]
    if len(free) >= (parts["source"] is None) + (parts["target"] is None):
        left = _without_index(table, left)
    source = parts["source"] = parts["source"] or _first_free(table, left, parts=parts, role="source")
    target = parts["target"] = parts["target"] or _first_free(table, left, parts=parts, role="target")
    numbers = _choose_rest(table, options.edge_columns, left=left, parts=parts, role="edge_columns")
    return EdgeColumns(source, target, parts["edge_type"], parts["weight"], parts["time"], numbers)


def choose_node_columns(table: Table, options: TableOptions) -> NodeColumns:
    """Give each column of the nodes table its part."""
    left = _columns_to_read(table, options)
    asked = {
        "id": (options.id, "id"),
        "label": (options.label, "label"),
        "split": (options.split, "split"),
        "type": (options.type, "type"),
        "node_time": (options.node_time, "time"),
    }
    if options.id is not None or "id" in map(str.lower, left):
        left = _without_index(table, left)
    elif table.index in left:
        asked["id"] = (table.index, "id")
    parts = _choose_parts(table, asked, left=left)
    identity = parts["id"] = parts["id"] or _first_free(table, left, parts=parts, role="id")
    features = _choose_rest(table, options.feature_columns, left=left, parts=parts, role="feature_columns")
    _check_features(table, features, parts=parts)
    return NodeColumns(identity, parts["label"], parts["split"], parts["type"], parts["node_time"], features)


def check_no_node_options(options: TableOptions) -> None:
    """Without a nodes table, nothing may be asked of it."""
    for role in NODE_ROLES:
        if getattr(options, role):
            raise InputError(f"{role} {getattr(options, role)!r} is a column of the nodes table: give one with --nodes")


def check_ignored_columns(tables: list[Table], options: TableOptions) -> None:
    """A column to leave out that no table has is a slip: what it was meant for would be learned from."""
    there = {name.lower() for table in tables for name in table.columns}
    for name in options.ignore_columns:
        if name.lower() not in there:
            columns = "; ".join(f"{table.name} has {table.names_in_words()}" for table in tables)
            raise InputError(f"there is no column {name!r} to ignore: {columns}")


def check_named_and_ignored(edges: Table, nodes: Table | None, options: TableOptions) -> None:
    """A column cannot be named and left out, unless the other table has one of that name as well: that one is meant."""
    ignored = {name.lower() for name in options.ignore_columns}
    for roles, other in ((EDGE_ROLES, nodes), (NODE_ROLES, edges)):
        elsewhere = set() if other is None else {name.lower() for name in other.columns}
        for role, name in options.named(roles):
            if name.lower() in ignored - elsewhere:
                raise InputError(
                    f"column {name!r} is named as {role} and is to be ignored: leave it out of one of the two"
                )


def _check_features(table: Table, features: tuple[str, ...], *, parts: dict[str, str | None]) -> None:
    """A feature that is the label gives away what a model is to find out, and an id is a number that means nothing."""
    roles = {parts[role]: role for role in ("id", "label", "split") if parts[role] is not None}
    for name in features:
        if name in roles:
            raise InputError(
                f"column {name!r} of {table.name} is the {roles[name]} column and cannot be a feature too: leave it "
                "out of --feature-columns, or rename it"
            )


def _usual_ends(left: list[str], options: TableOptions) -> tuple[str, str]:
    """The names to look for: other pairs than source and target only where a table has both, and neither is named."""
    there = {name.lower() for name in left}
    if options.source is None and options.target is None and not there & set(USUAL_ENDS[0]):
        return next((pair for pair in USUAL_ENDS if there >= set(pair)), USUAL_ENDS[0])
    return USUAL_ENDS[0]


def _choose_parts(table: Table, asked: dict[str, tuple[str | None, str]], *, left: list[str]) -> dict[str, str | None]:
    """For each part the column that the option names, else the one that has the usual name and no other part."""
    parts = {role: None if name is None else _find(table, name, role) for role, (name, _) in asked.items()}
    roles = {name: role for role, name in parts.items()}
    for role, name in parts.items():
        if name is not None and roles[name] != role:
            raise InputError(
                f"column {name!r} of {table.name} cannot be both {role} and {roles[name]}: name another one"
            )
    free = {name.lower(): name for name in left if name not in roles}
    return {role: parts[role] or free.get(usual) for role, (_, usual) in asked.items()}


def _first_free(table: Table, left: list[str], *, parts: dict[str, str | None], role: str) -> str:
    for name in left:
        if name not in parts.values():
            return name
    raise InputError(f"{table.name} has no column left to use as {role}: its columns are {table.names_in_words()}")


def _choose_rest(
    table: Table, asked: tuple[str, ...] | None, *, left: list[str], parts: dict[str, str | None], role: str
) -> tuple[str, ...]:
    if asked is None:
        return tuple(name for name in left if name not in parts.values())
    return tuple(_find(table, name, role) for name in asked)


def _columns_to_read(table: Table, options: TableOptions) -> list[str]:
    ignored = {name.lower() for name in (*options.ignore_columns, *options.ignore_if_there)}
    return [name for name in table.columns if name.lower() not in ignored]


def _without_index(table: Table, left: list[str]) -> list[str]:
    return [name for name in left if name != table.index]


def _find(table: Table, asked: str, role: str) -> str:
    """The column that an option names. Capitals do not matter: DuckDB does not tell them apart either."""
    for name in table.columns:
        if name.lower() == asked.lower():
            return name
    raise InputError(f"{table.name} has no column {asked!r} to use as {role}: its columns are {table.names_in_words()}")


# Columns of a nodes table that training left out (--ignore-columns): names, places, notes, there to look at.


Array = np.ndarray[Any, Any]


def read_other_columns(nodes: str, ids: Array, *, options: TableOptions, limit: int) -> dict[str, Array]:
    """The first `limit` ignored columns as text, "" where empty, for the nodes with these ids, in their order."""
    with connect() as connection:
        table = open_table(connection, nodes)
        used = choose_node_columns(table, options)
        ignored = {name.lower() for name in options.ignore_columns}
        names = [name for name in table.columns if name.lower() in ignored and name != used.id][:limit]
        if not names:
            return {}
        columns = {"id": used.id} | {f"c{index}": name for index, name in enumerate(names)}
        found = table.fetch({as_: f"CAST({quote_name(name)} AS VARCHAR)" for as_, name in columns.items()})
    row_of = {text: row for row, text in enumerate(_texts(found["id"]))}
    rows = [row_of.get(text, -1) for text in map(str, ids.tolist())]
    texts = [_texts(found[f"c{index}"]) for index in range(len(names))]
    return {
        name: np.array([column[row] if row >= 0 else "" for row in rows], dtype=np.str_)
        for name, column in zip(names, texts, strict=True)
    }


def _texts(column: Array) -> list[str]:
    values = column.tolist()  # a masked cell becomes None
    return ["" if value is None else str(value) for value in values]
