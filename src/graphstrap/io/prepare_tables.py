"""prepare_tables: tables larger than memory to a store, with a cap on memory.

The same graph as `read_tables`, by the same rules. DuckDB copies the columns that are needed into a file beside the
store and maps ids to numbers by joins; everything else is a pass over chunks of a table's rows. Rows come in the order
of the table, while nodes stand type by type: what nodes have goes to one file for each type, joined at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.arrays import Array, ArrayWriter, open_array
from graphstrap.io.columns import EdgeColumns, NodeColumns, TableOptions, open_tables
from graphstrap.io.database import TableCopy, execute_long, fetch_one
from graphstrap.io.ids import NodeIds, check_known, count_doubtful_ids, load_ids
from graphstrap.io.prepare import Layout, PrepareOptions, make_store
from graphstrap.io.store_format import Report, StoreBuilder
from graphstrap.io.tables import edge_readers, node_readers, read_rows
from graphstrap.io.values import (
    bad_cell,
    check_cells,
    code_names,
    feature_names,
    find_feature_kinds,
    read_codes,
    read_columns,
    take_columns,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["PrepareOptions", "prepare_tables"]

_DEFAULT_OPTIONS = TableOptions()
_FIRST_ROWS = 1024  # read to learn how wide lists are


def prepare_tables(
    edges: str,
    nodes: str | None,
    to: str,
    *,
    options: TableOptions = _DEFAULT_OPTIONS,
    job: PrepareOptions | None = None,
    report: Report = lambda stage, fraction: None,
) -> None:
    """Make a store of a table of edges and, where there is one, a table of nodes."""
    job = job or PrepareOptions()
    read = partial(_read_tables, edges=edges, nodes=nodes, options=options, job=job, report=report)
    make_store(to, read, job=job, report=report)


def _read_tables(
    builder: StoreBuilder,
    connection: DuckDBPyConnection,
    *,
    edges: str,
    nodes: str | None,
    options: TableOptions,
    job: PrepareOptions,
    report: Report,
) -> Layout:
    edge_columns, node_columns = open_tables(connection, edges, nodes, options)
    report("copying tables", 0.0)
    edge_copy = TableCopy.of(edge_columns.table, "edge_rows", _names_of(edge_columns))
    edge_columns, node_copy = replace(edge_columns, table=edge_copy), None
    if node_columns is not None:
        node_copy = TableCopy.of(node_columns.table, "node_rows", _names_of(node_columns))
        node_columns = replace(node_columns, table=node_copy)
    report("mapping ids", 0.0)
    load_ids(edge_columns, node_columns)
    layout = Layout(edges, raw_features=[None], directed=options.directed, edge_column_names=edge_columns.numbers)
    layout.num_ids_in_both = count_doubtful_ids(edge_columns, node_columns)
    ids = NodeIds(connection)
    type_code = edge_code = None
    if node_copy is None or node_columns is None:
        layout.type_offsets, step = (0, ids.count), job.chunk_bytes // 512
        with builder.array("ids", dtype=ids.dtype) as writer:
            for begin in range(0, ids.count, step):
                writer.append(ids.read(begin, begin + step))
    else:
        type_code = _write_nodes(layout, builder, node_copy, node_columns, ids, job.chunk_bytes, report)
    if edge_columns.type is not None:
        layout.edge_type_names, edge_code = code_names(edge_copy, edge_columns.type)
    _number_edges(connection, type_code, edge_code, report)
    layout.num_unknown = _drop_unknown(edge_columns, node_columns, ignore_unknown=options.ignore_unknown_nodes)
    if edge_columns.type is not None:
        row = fetch_one(connection, "SELECT min(row) FROM numbered WHERE type < 0")[0]
        if row is not None:
            raise bad_cell(edge_copy, edge_columns.type, row=row, wanted="an edge type: fix the cell")
    layout.edge_arrays = _read_edge_arrays(builder, edge_copy, edge_columns, step=job.max_edges, report=report)
    return layout


def _names_of(columns: EdgeColumns | NodeColumns) -> tuple[str, ...]:
    """Every column that has a role, once."""
    _, *named, more = vars(columns).values()
    return tuple(dict.fromkeys(name for name in (*named, *more) if name is not None))


class _Scratch:
    """Temporary arrays that grow by rows, each of the type and width of the first that it gets."""

    def __init__(self, builder: StoreBuilder) -> None:
        self.builder, self.writers = builder, dict[str, ArrayWriter]()

    def append(self, name: str, rows: Array) -> None:
        if name not in self.writers:
            self.writers[name] = self.builder.scratch_array(name, dtype=rows.dtype.str, columns=rows.shape[1:])
        self.writers[name].append(rows)

    def read(self, name: str) -> Array:
        """What was written, memory-mapped."""
        return open_array(self.builder.scratch, name, self.writers[name].close())


# ---- nodes -----------------------------------------------------------------------------------------------------------


def _write_nodes(
    layout: Layout,
    builder: StoreBuilder,
    copy: TableCopy,
    columns: NodeColumns,
    ids: NodeIds,
    chunk_bytes: int,
    report: Report,
) -> str | None:
    """Write ids, labels, splits and times to the store and raw features to scratch files; the SQL of a node's type
    code."""
    type_code = None
    if columns.type is not None:
        layout.node_types, type_code = code_names(copy, columns.type)
    num_types = len(layout.node_types)
    layout.class_names, readers = node_readers(columns)
    counts, names = np.zeros(num_types, dtype=np.int64), set[str]()
    scratch = _Scratch(builder)
    features = _FeatureWriter(scratch, copy, columns.features, num_types)
    step = max(1, chunk_bytes // (512 + 48 * features.width))  # an id, and what becomes of it, is up to 512 bytes

    def chunks() -> Iterator[tuple[TableCopy, list[Array]]]:
        """Successive rows of the table, and which of them are nodes of each type."""
        for rows in copy.slices(step):
            if type_code is None:
                yield rows, [np.arange(rows.end - rows.begin)]
                continue
            types = read_codes(rows, type_code)
            check_cells(rows, str(columns.type), is_good=types >= 0, wanted="a node type")
            yield rows, [np.flatnonzero(types == t) for t in range(num_types)]

    if num_types > 1:
        for rows, rows_by_type in chunks():
            features.look(rows, rows_by_type)
    for rows, rows_by_type in chunks():
        counts += [len(of_type) for of_type in rows_by_type]
        arrays = read_rows(rows, readers) | {"ids": ids.read(rows.begin, rows.end)}
        for name, values in arrays.items():
            for t, of_type in enumerate(rows_by_type):
                scratch.append(f"{name}.of.{t}", values[of_type])
        names |= set(arrays)
        features.write(rows, rows_by_type)
        report("reading nodes", rows.end / copy.end)
    for name in names:  # rows came for all types in turn, and stand type by type in the end
        first, *others = (scratch.read(f"{name}.of.{t}") for t in range(num_types))
        with builder.array(name, dtype=first.dtype.str, columns=first.shape[1:]) as final:
            for array in (first, *others):
                for begin in range(0, len(array), 1 << 20):
                    final.append(array[begin : begin + (1 << 20)])
        for t in range(num_types):
            scratch.writers[f"{name}.of.{t}"].path.unlink()
    layout.raw_features, layout.feature_names = features.finish()
    layout.type_offsets = (0, *np.cumsum(counts).tolist())
    return type_code


class _FeatureWriter:
    """Feature columns to one raw float32 file for each type; a column that is empty for a whole type is left out."""

    def __init__(self, scratch: _Scratch, copy: TableCopy, names: tuple[str, ...], num_types: int) -> None:
        self.scratch, self.kinds = scratch, find_feature_kinds(copy, names)
        self.is_used = np.full((num_types, len(names)), num_types == 1)
        self.widths: list[dict[str, int]] = [{} for _ in range(num_types)]
        first = copy.slice(0, min(copy.end, _FIRST_ROWS))
        lengths = [column.lengths for column in read_columns(first, self.kinds)]
        self.width = sum(1 if length is None else int(length.max(initial=1)) for length in lengths)

    def look(self, rows: TableCopy, rows_by_type: list[Array]) -> None:
        """Learn which columns the types of these rows have."""
        columns = read_columns(rows, self.kinds)
        for is_used, of_type in zip(self.is_used, rows_by_type, strict=True):
            is_used |= np.array([not column.is_empty(of_type) for column in columns], dtype=bool)

    def write(self, rows: TableCopy, rows_by_type: list[Array]) -> None:
        columns = read_columns(rows, self.kinds)
        used = [
            list(compress(columns, is_used)) if len(of_type) else []
            for is_used, of_type in zip(self.is_used, rows_by_type, strict=True)
        ]
        for t, arrays in enumerate(take_columns(rows, used, rows_by_type)):
            for name, array in arrays.items():
                width = self.widths[t].setdefault(name, array.shape[1])
                if array.shape[1] != width:
                    raise InputError(
                        f"column {name!r} is a list of {array.shape[1]} in {rows.place(int(rows_by_type[t][0]))} but "
                        f"of {width} before: make all lists of equal length"
                    )
            if arrays:
                self.scratch.append(f"raw.{t}", np.concatenate(list(arrays.values()), axis=1))

    def finish(self) -> tuple[list[Array | None], tuple[str, ...] | None]:
        """The block of each type, and the names of the columns where there is one type."""
        blocks = [self.scratch.read(f"raw.{t}") if widths else None for t, widths in enumerate(self.widths)]
        return blocks, (feature_names(self.widths[0]) or None) if len(blocks) == 1 else None


# ---- edges -----------------------------------------------------------------------------------------------------------


def _number_edges(connection: DuckDBPyConnection, type_code: str | None, edge_code: str | None, report: Report) -> None:
    """Make the table `numbered`: both ends of each edge as node numbers, NULL where a node is unknown."""
    known = "node_ids"
    if type_code is not None:
        known = "ids_by_type"
        ordered = f"""
            CREATE TABLE {known} AS SELECT node_ids.id FROM node_ids
            JOIN (SELECT rowid AS place, {type_code} AS code FROM node_rows) AS typed
            ON node_ids.rowid = typed.place
            ORDER BY typed.code, node_ids.rowid
        """
        execute_long(connection, ordered, "numbering nodes", report)
    sources = f"""
        CREATE TABLE half AS SELECT edge_ids.rowid AS row, known.rowid AS source, edge_ids.target AS other
        FROM edge_ids LEFT JOIN {known} AS known ON edge_ids.source = known.id
    """
    execute_long(connection, sources, "matching sources", report)
    code, typed = "0", ""
    if edge_code is not None:
        code = "typed.code"
        typed = f"JOIN (SELECT rowid AS place, {edge_code} AS code FROM edge_rows) AS typed ON typed.place = half.row"
    targets = f"""
        CREATE TABLE numbered AS SELECT half.row AS row, half.source AS source, known.rowid AS target,
            CAST({code} AS INTEGER) AS type
        FROM half LEFT JOIN {known} AS known ON half.other = known.id {typed}
    """
    execute_long(connection, targets, "matching targets", report)
    connection.execute("DROP TABLE half")


def _drop_unknown(edges: EdgeColumns, nodes: NodeColumns | None, *, ignore_unknown: bool) -> int:
    """Drop the edges that name an unknown node, where that is asked for, and the tables of ids; how many there were."""
    connection = edges.table.connection
    unknown = "source IS NULL OR target IS NULL"
    count, num_unknown = fetch_one(connection, f"SELECT count(*), count(*) FILTER ({unknown}) FROM numbered")
    check_known(edges, nodes, num_edges=count, num_unknown=num_unknown, ignore_unknown=ignore_unknown)
    if num_unknown:
        connection.execute(f"DELETE FROM numbered WHERE {unknown}")
    for name in ("edge_ids", "node_ids", "ids_by_type"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    return int(num_unknown)


def _read_edge_arrays(
    builder: StoreBuilder, copy: TableCopy, columns: EdgeColumns, *, step: int, report: Report
) -> dict[str, Array]:
    """Weights, times and numeric columns of all rows, in scratch files."""
    scratch, readers = _Scratch(builder), edge_readers(columns)
    for rows in copy.slices(max(1, step // (1 + len(columns.numbers)))) if readers else ():
        for name, values in read_rows(rows, readers).items():
            scratch.append(name, values)
        report("reading edge columns", rows.end / copy.end)
    return {name: scratch.read(name) for name in scratch.writers}
