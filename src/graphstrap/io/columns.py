"""Which column is what: named in the options, or recognised by its name.

`open_tables` opens the tables and gives each column its role, once; what reads their values goes by `EdgeColumns` and
`NodeColumns`. The index that pandas writes beside a table is the id of the nodes where nothing else is, and nothing
otherwise: a table of edges would start with it, and a model learn from it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from graphstrap.errors import InputError
from graphstrap.io.database import Connection, Table, open_table

# The option for each role, and the name of a column that has it by default.
_EDGE_ROLES = {"source": "source", "target": "target", "edge_type": "type", "weight": "weight", "time": "time"}
_NODE_ROLES = {"id": "id", "label": "label", "split": "split", "type": "type", "node_time": "time"}

# Pairs of names for the ids of an edge's two ends. The first are looked for, one after the other; all of them say that
# both ends are nodes of one kind.
_USUAL_ENDS = (("source", "target"), ("src", "dst"), ("from", "to"))
_ENDS_OF_ONE_KIND = {
    *map(frozenset, _USUAL_ENDS),
    *map(frozenset, (("src", "dest"), ("origin", "destination"), ("start", "end"), ("head", "tail"), ("in", "out"))),
    *map(frozenset, (("parent", "child"), ("citing", "cited"), ("sender", "receiver"), ("caller", "callee"))),
    *map(frozenset, (("follower", "followee"), ("subject", "object"), ("first", "second"), ("left", "right"))),
}


@dataclass(frozen=True)
class TableOptions:
    """How to read an edges table and a nodes table. `dataclasses.asdict` gives something for JSON.

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
        header: whether the first line of CSV files names their columns; None looks.

    Example:
        graph = gs.read_tables("calls.csv", "people.csv", options=gs.TableOptions(source="caller", target="callee"))
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
    header: bool | None = None

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

    def of_a_run(self) -> TableOptions:
        """The options for tables that a run was made with: what is to be ignored need not be there any more."""
        ignored = (*self.ignore_columns, *self.ignore_if_there)
        return replace(self, ignore_columns=(), ignore_if_there=ignored) if ignored else self


@dataclass(frozen=True)
class EdgeColumns:
    """The edges table, and the role of each of its columns."""

    table: Table
    source: str
    target: str
    type: str | None
    weight: str | None
    time: str | None
    numbers: tuple[str, ...]

    @property
    def ends_differ_in_kind(self) -> bool:
        """Whether the names of the ends differ in more than a number, a letter, or a usual pair of words.

        `userId` and `movieId` may both count from 1, and then user 5 and film 5 are one node; `source` and `target`, or
        `node_1` and `node_2`, are ids of the same nodes.
        """
        source, target = _words(self.source), _words(self.target)
        different = source ^ target
        return different not in _ENDS_OF_ONE_KIND and not all(len(word) == 1 or word.isdigit() for word in different)


@dataclass(frozen=True)
class NodeColumns:
    """The nodes table, and the role of each of its columns."""

    table: Table
    id: str
    label: str | None
    split: str | None
    type: str | None
    time: str | None
    features: tuple[str, ...]


def open_tables(
    connection: Connection, edges: str | os.PathLike[str], nodes: str | os.PathLike[str] | None, options: TableOptions
) -> tuple[EdgeColumns, NodeColumns | None]:
    """Open the table of edges and that of nodes, where there is one, and find out which column is what."""
    edge_names = _named_columns(options, _EDGE_ROLES, "edge_columns")
    node_names = _named_columns(options, _NODE_ROLES, "feature_columns")
    tables = []
    for path, named in ((edges, edge_names), (nodes, node_names)):
        if path is not None:
            known: dict[str, Any] = {"ignored": options.ignore_columns, "named": tuple(name for _, name in named)}
            tables.append((open_table(connection, path, **known, has_header=options.header), named))
        elif named:
            role, name = named[0]
            raise InputError(f"{role} {name!r} is a column of the nodes table: give one with --nodes")
    _check_ignored(tables, options)
    edge_columns = choose_edge_columns(tables[0][0], options)
    return edge_columns, None if nodes is None else choose_node_columns(tables[1][0], options)


def _named_columns(options: TableOptions, roles: Mapping[str, str], rest: str) -> list[tuple[str, str]]:
    """(role, column) for each column that an option names."""
    single = [(role, name) for role in roles if (name := getattr(options, role))]
    return single + [(rest, name) for name in getattr(options, rest) or ()]


def choose_edge_columns(table: Table, options: TableOptions) -> EdgeColumns:
    left = _columns_to_read(table, options)
    if len(left) < 2:
        raise InputError(
            f"{table.name} has too few columns for edges ({table.names_in_words()}): it needs two columns of node ids"
        )
    usual = _EDGE_ROLES | dict(zip(("source", "target"), _usual_ends(left, options), strict=True))
    found = _find_roles(table, options, usual, left)
    missing = [role for role in ("source", "target") if found[role] is None]
    free = [name for name in left if name not in found.values()]
    without_index = [name for name in free if name != table.index]
    free = without_index if len(without_index) >= len(missing) else free
    source, target = (found[role] or _take_first(free, table, role) for role in ("source", "target"))
    numbers = _find_all(table, options.edge_columns, free, "edge_columns")
    return EdgeColumns(table, source, target, found["edge_type"], found["weight"], found["time"], numbers)


def choose_node_columns(table: Table, options: TableOptions) -> NodeColumns:
    left = _columns_to_read(table, options)
    if options.id is None and table.index in left and "id" not in map(str.lower, left):
        options = replace(options, id=table.index)
    else:
        left = [name for name in left if name != table.index]
    found = _find_roles(table, options, _NODE_ROLES, left)
    free = [name for name in left if name not in found.values()]
    identity = found["id"] or _take_first(free, table, "id")
    features = _find_all(table, options.feature_columns, free, "feature_columns")
    # A label among the features gives away what a model is to find out, and an id is a number that means nothing.
    forbidden = {identity: "id", found["label"]: "label", found["split"]: "split"}
    for name in features:
        if name in forbidden:
            raise InputError(
                f"column {name!r} of {table.name} is the {forbidden[name]} column and cannot be a feature too: leave "
                "it out of --feature-columns, or rename it"
            )
    return NodeColumns(table, identity, found["label"], found["split"], found["type"], found["node_time"], features)


def _check_ignored(tables: list[tuple[Table, list[tuple[str, str]]]], options: TableOptions) -> None:
    """A column to ignore that no table has is a slip: what it was meant for would be learned from. One that is named
    too is meant of the other table, which must have it."""
    columns_of = [{name.lower() for name in table.columns} for table, _ in tables]
    for name in options.ignore_columns:
        if name.lower() not in set[str]().union(*columns_of):
            columns = "; ".join(f"{table.name} has {table.names_in_words()}" for table, _ in tables)
            raise InputError(f"there is no column {name!r} to ignore: {columns}")
    ignored = {name.lower() for name in options.ignore_columns}
    for number, (_, named) in enumerate(tables):
        elsewhere = set[str]().union(*columns_of[:number], *columns_of[number + 1 :])
        for role, name in named:
            if name.lower() in ignored - elsewhere:
                raise InputError(
                    f"column {name!r} is named as {role} and is to be ignored: leave it out of one of the two"
                )


def _columns_to_read(table: Table, options: TableOptions) -> list[str]:
    ignored = {name.lower() for name in (*options.ignore_columns, *options.ignore_if_there)}
    return [name for name in table.columns if name.lower() not in ignored]


def _usual_ends(left: list[str], options: TableOptions) -> tuple[str, str]:
    """The names to look for: other pairs than source and target only where a table has both, and neither is named."""
    there = {name.lower() for name in left}
    if options.source is None and options.target is None and not there & set(_USUAL_ENDS[0]):
        return next((pair for pair in _USUAL_ENDS if there >= set(pair)), _USUAL_ENDS[0])
    return _USUAL_ENDS[0]


def _find_roles(
    table: Table, options: TableOptions, usual: Mapping[str, str], left: list[str]
) -> dict[str, str | None]:
    """For each role the column that the option names, else the one that has the usual name and no other role."""
    named = {role: _find(table, asked, role) for role in usual if (asked := getattr(options, role)) is not None}
    role_of: dict[str, str] = {}
    for role, name in named.items():
        if role_of.setdefault(name, role) != role:
            raise InputError(
                f"column {name!r} of {table.name} cannot be both {role_of[name]} and {role}: name another one"
            )
    free = {name.lower(): name for name in left if name not in role_of}
    return {role: named.get(role) or free.get(word) for role, word in usual.items()}


def _take_first(free: list[str], table: Table, role: str) -> str:
    if not free:
        raise InputError(f"{table.name} has no column left to use as {role}: its columns are {table.names_in_words()}")
    return free.pop(0)


def _find_all(table: Table, asked: tuple[str, ...] | None, free: list[str], role: str) -> tuple[str, ...]:
    return tuple(free) if asked is None else tuple(_find(table, name, role) for name in asked)


def _find(table: Table, asked: str, role: str) -> str:
    """The column that an option names. Capitals do not matter: DuckDB does not tell them apart either."""
    for name in table.columns:
        if name.lower() == asked.lower():
            return name
    raise InputError(f"{table.name} has no column {asked!r} to use as {role}: its columns are {table.names_in_words()}")


def _words(name: str) -> frozenset[str]:
    """`userId` and `user_ids` to `user`."""
    words = (re.sub(r"ids?$", "", word.lower()) for word in re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+", name))
    return frozenset(word for word in words if word)
