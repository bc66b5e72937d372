"""Ids of any type to node numbers and back, by joins in DuckDB.

`node_ids` holds the ids in the order of the nodes table, so that DuckDB's rowid is the row; `edge_ids` the ends of the
edges. Ids are compared as integers where all columns are integers of Parquet files, else as text: CSV has no types.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from graphstrap.errors import InputError, UnknownNodesError
from graphstrap.graph.edge_list import counted
from graphstrap.io.arrays import Array
from graphstrap.io.columns import EdgeColumns, NodeColumns
from graphstrap.io.database import Connection, Table, execute_long, fetch_one, quote_name

# Whether each id is written as an integer of 64 bits is.
_ARE_INTEGERS = "bool_and(coalesce(CAST(TRY_CAST(id AS BIGINT) AS VARCHAR) = CAST(id AS VARCHAR), false))"
_WITHOUT_FORM = r"ltrim(regexp_replace(lower(trim(id)), '\.0+$', ''), '0')"
_UNKNOWN = """
    SELECT id, min(place) AS place
    FROM (SELECT source AS id, 2 * rowid AS place FROM edge_ids UNION ALL SELECT target, 2 * rowid + 1 FROM edge_ids)
    ANTI JOIN node_ids USING (id) GROUP BY id
"""


def load_ids(edges: EdgeColumns, nodes: NodeColumns | None) -> None:
    """Fill `edge_ids` and `node_ids`. Without a nodes table, the nodes are the ends of the edges, sorted."""
    connection, ends = edges.table.connection, {"source": edges.source, "target": edges.target}
    columns = [(edges.table, name) for name in ends.values()]
    if nodes is None:
        _load(edges.table, "edge_ids", ends, id_type=_find_id_type(columns), what="edges")
        both = "SELECT source AS id FROM edge_ids UNION SELECT target FROM edge_ids"
        connection.execute(f"CREATE TEMP TABLE ends AS {both}")
        order = "CAST(id AS BIGINT)" if fetch_one(connection, f"SELECT {_ARE_INTEGERS} FROM ends")[0] else "id"
        connection.execute(f"CREATE TABLE node_ids AS SELECT id FROM ends ORDER BY {order}")
        return
    id_type = _find_id_type([(nodes.table, nodes.id), *columns])
    num_rows = _load(nodes.table, "node_ids", {"id": nodes.id}, id_type=id_type, what="nodes")
    distinct = "SELECT id FROM node_ids GROUP BY id"  # spills where count(DISTINCT) would not
    if fetch_one(connection, f"SELECT count(*) FROM ({distinct})")[0] < num_rows:
        query = f"{distinct} HAVING count(*) > 1 ORDER BY min(rowid)"
        repeated = [row[0] for row in connection.execute(query).fetchall()]
        raise InputError(
            f"id column {nodes.id!r} of {nodes.table.name} has {counted(len(repeated), 'id')} more than once "
            f"({_examples(repeated)}): keep one row for each node"
        )
    _load(edges.table, "edge_ids", ends, id_type=id_type, what="edges")


def _find_id_type(columns: list[tuple[Table, str]]) -> str:
    """The SQL type in which ids are compared: BIGINT or VARCHAR. Columns of different kinds cannot be compared."""
    declared = [(table, name, table.columns[name]) for table, name in columns]
    for table, name, type_ in declared:
        if type_ in ("FLOAT", "DOUBLE"):
            raise InputError(
                f"id column {name!r} of {table.name} is {type_}: ids must be integers or text: cast it to BIGINT"
            )
    typed = [(table, name, type_) for table, name, type_ in declared if not table.is_csv]
    for table, name, type_ in typed[1:]:
        if _kind(type_) != _kind(typed[0][2]):
            first_table, first_name, first_type = typed[0]
            raise InputError(
                f"ids differ in type: column {first_name!r} of {first_table.name} is {first_type} but column {name!r} "
                f"of {table.name} is {type_}: cast one of them to the type of the other"
            )
    fits = all(re.fullmatch(r"(U?(TINYINT|SMALLINT|INTEGER)|BIGINT)", type_) for _, _, type_ in declared)
    return "BIGINT" if fits else "VARCHAR"


def _kind(type_: str) -> str:
    """Types within a kind compare as text: integers of any size do, an integer and a decimal do not."""
    if re.fullmatch(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)", type_):
        return "integer"
    return "text" if type_.startswith("ENUM") else type_.replace("VARCHAR", "text")


def _load(table: Table, into: str, columns: dict[str, str], *, id_type: str, what: str) -> int:
    """Load columns of ids, given by their names in the database and in the file; how many rows they have.

    There must be some, and no id may be empty.
    """
    cells = ", ".join(f"CAST({quote_name(name)} AS {id_type}) AS {column}" for column, name in columns.items())
    table.execute(f"CREATE TABLE {into} AS SELECT {cells} FROM {table.scan}")
    counts = ", ".join(f"count({column})" for column in columns)
    num_rows, *nums_filled = fetch_one(table.connection, f"SELECT count(*), {counts} FROM {into}")
    if num_rows == 0:
        raise InputError(f"{table.name} has no {what}: the table is empty")
    for (column, name), num_filled in zip(columns.items(), nums_filled, strict=True):
        if num_filled < num_rows:
            (row,) = fetch_one(table.connection, f"SELECT min(rowid) FROM {into} WHERE {column} IS NULL")
            raise InputError(
                f"id column {name!r} of {table.name} is empty in {counted(num_rows - num_filled, 'row')}, first in "
                f"{table.place(row)}: fill the ids or remove the rows"
            )
    return int(num_rows)


class NodeIds:
    """The ids of all nodes, in the order of the rows: int64 where each is written as an integer is, otherwise text."""

    def __init__(self, connection: Connection) -> None:
        about = f"SELECT count(*), max(length(CAST(id AS VARCHAR))), {_ARE_INTEGERS} FROM node_ids"
        self.count, longest, are_integers = fetch_one(connection, about)
        self.connection, self.cell = connection, "CAST(id AS BIGINT)" if are_integers else "id"
        self.dtype = "<i8" if are_integers else f"<U{max(1, longest)}"

    def read(self, begin: int = 0, end: int | None = None) -> Array:
        """Those of all rows, or from one row up to another."""
        rows = "" if end is None else f"WHERE rowid >= {begin} AND rowid < {end}"
        query = f"SELECT {self.cell} AS id FROM node_ids {rows}"
        return np.asarray(self.connection.execute(query).fetchnumpy()["id"]).astype(self.dtype, copy=False)


def count_doubtful_ids(edges: EdgeColumns, nodes: NodeColumns | None) -> int:
    """Without a nodes table: how many ids are in both columns, where their names are those of two kinds of nodes."""
    if nodes is not None or not edges.ends_differ_in_kind:
        return 0
    both = "SELECT source FROM edge_ids INTERSECT SELECT target FROM edge_ids"
    return int(fetch_one(edges.table.connection, f"SELECT count(*) FROM ({both})")[0])


def number_edges(
    edges: EdgeColumns,
    nodes: NodeColumns | None,
    *,
    node_code: str | None,
    edge_code: str | None,
    ignore_unknown: bool,
    can_name_ends: bool = True,
    report: Callable[[str, float], None] = lambda stage, fraction: None,
) -> int:
    """Make the table `numbered` (see prepare.py) of the edges between known nodes; how many others were dropped.

    Nodes are numbered by the code of their type and then as in `node_ids`; codes are SQL that `code_names` gave. Where
    most edges name unknown nodes and the user `can_name_ends`, the error says with which options.
    """
    connection, known = edges.table.connection, "node_ids"
    if nodes is not None and node_code is not None:
        known = "ids_by_type"
        ordered = f"""
            CREATE TABLE {known} AS SELECT node_ids.id FROM node_ids
            LEFT JOIN (SELECT {nodes.table.row} AS place, {node_code} AS code FROM {nodes.table.scan}) AS typed
            ON node_ids.rowid = typed.place
            ORDER BY typed.code, node_ids.rowid
        """
        execute_long(connection, ordered, "numbering nodes", report)
    code, typed = "0", ""
    if edge_code is not None:
        codes = f"SELECT {edges.table.row} AS place, {edge_code} AS code FROM {edges.table.scan}"
        code, typed = "typed.code", f"JOIN ({codes}) AS typed ON typed.place = edge_ids.rowid"
    numbered = f"""
        CREATE TABLE numbered AS
        SELECT edge_ids.rowid AS row, sources.rowid AS source, targets.rowid AS target, CAST({code} AS INTEGER) AS type
        FROM edge_ids
        LEFT JOIN {known} AS sources ON edge_ids.source = sources.id
        LEFT JOIN {known} AS targets ON edge_ids.target = targets.id {typed}
    """
    execute_long(connection, numbered, "numbering edges", report)
    unknown = "source IS NULL OR target IS NULL"
    num_edges, num_unknown = fetch_one(connection, f"SELECT count(*), count(*) FILTER ({unknown}) FROM numbered")
    if num_unknown:
        _check_known(edges, nodes, num_edges, num_unknown, ignore_unknown=ignore_unknown, can_name_ends=can_name_ends)
        connection.execute(f"DELETE FROM numbered WHERE {unknown}")
    return int(num_unknown)


def _check_known(
    edges: EdgeColumns,
    nodes: NodeColumns | None,
    num_edges: int,
    num_unknown: int,
    *,
    ignore_unknown: bool,
    can_name_ends: bool,
) -> None:
    """Some edges must join two nodes of the nodes table, and all of them unless the others are ignored."""
    assert nodes is not None, "without a table of nodes, the nodes are the ends of the edges"
    table, known = edges.table, nodes.table
    how_to_name_ends = (
        f". If the ids are in other columns ({table.names_in_words()}), name them with --source-column and "
        "--target-column"
    )
    if ignore_unknown:
        if num_unknown < num_edges:
            return
        message = f"{table.name} has no edges between nodes of {known.name}: check the ids"
        raise InputError(message + how_to_name_ends * can_name_ends)
    connection = table.connection
    first = [row[0] for row in connection.execute(f"{_UNKNOWN} ORDER BY place LIMIT 3").fetchall()]
    message = (
        f"{counted(num_unknown, 'edge')} of {table.name} {'names' if num_unknown == 1 else 'name'} a node that "
        f"{known.name} does not have ({_examples(first)}): add the node, or drop such edges with --ignore-unknown-nodes"
    )
    if isinstance(first[0], str):
        forms = f"SELECT {_WITHOUT_FORM} FROM node_ids"
        if fetch_one(connection, f"SELECT count(*) FROM ({_UNKNOWN}) WHERE {_WITHOUT_FORM} IN ({forms})")[0]:
            alike = "Some ids differ only in spaces, capitals, leading zeros or a trailing '.0': write both alike"
            raise UnknownNodesError(f"{message}. {alike}")
    raise UnknownNodesError(message + how_to_name_ends * (can_name_ends and 2 * num_unknown > num_edges))


def _examples(ids: list[object]) -> str:
    return ", ".join(repr(value) for value in ids[:3]) + (", ..." if len(ids) > 3 else "")
