"""prepare_tables: tables larger than memory to a store, with a cap on memory.

The same graph as `read_tables`, by the same rules. DuckDB copies the columns that are needed into a file beside the
store and maps ids to numbers by joins; everything else is a pass over chunks of a table's rows. Rows come in the order
of the table, while nodes stand type by type: what nodes have goes to one file for each type, joined at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.arrays import Array, ArrayWriter, open_array
from graphstrap.io.columns import EdgeColumns, NodeColumns, TableOptions, open_tables
from graphstrap.io.database import Table, TableCopy, TableSlice, execute_long, fetch_one
from graphstrap.io.ids import are_integers, count_doubtful_ids, load_ids, no_known_edges, unknown_nodes
from graphstrap.io.prepare import Layout, PrepareOptions, make_store
from graphstrap.io.store_format import Report, StoreBuilder
from graphstrap.io.tables import check_classes, read_weights, split_names
from graphstrap.io.values import (
    Column,
    bad_cell,
    check_cells,
    check_gaps,
    check_kinds,
    code_names,
    feature_names,
    find_feature_kinds,
    read_columns,
    read_matrix,
    read_times,
    time_expression,
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

    def read(builder: StoreBuilder, connection: DuckDBPyConnection) -> Layout:
        return _read_tables(builder, connection, edges, nodes, options, job, report)

    make_store(to, read, job=job, report=report)


def _read_tables(
    builder: StoreBuilder,
    connection: DuckDBPyConnection,
    edges: str,
    nodes: str | None,
    options: TableOptions,
    job: PrepareOptions,
    report: Report,
) -> Layout:
    edge_columns, node_columns = open_tables(connection, edges, nodes, options)
    report("copying tables", 0.0)
    edge_copy = TableCopy.of(edge_columns.table, "edge_rows", _names_of(edge_columns))
    edge_columns, node_copy = replace(edge_columns, table=edge_copy.whole), None
    if node_columns is not None:
        node_copy = TableCopy.of(node_columns.table, "node_rows", _names_of(node_columns))
        node_columns = replace(node_columns, table=node_copy.whole)
    report("mapping ids", 0.0)
    load_ids(edge_columns, node_columns)
    num_in_both = count_doubtful_ids(edge_columns, node_columns)
    num_nodes = int(fetch_one(connection, "SELECT count(*) FROM node_ids")[0])
    layout, type_code = Layout(edges, type_offsets=(0, num_nodes), raw_features=[None]), None
    if node_copy is not None and node_columns is not None:
        type_code = _write_nodes(layout, builder, node_copy, node_columns, job.chunk_bytes, report)
    _write_ids(layout, builder, connection, node_copy, type_code, step=job.chunk_bytes // 512)
    edge_code = None
    if edge_columns.type is not None:
        layout.edge_type_names, edge_code = code_names(edge_columns.table, edge_columns.type)
    _number_edges(connection, type_code, edge_code, report)
    node_table = None if node_columns is None else node_columns.table
    layout.num_unknown = _drop_unknown(edge_columns.table, node_table, ignore_unknown=options.ignore_unknown_nodes)
    layout.num_ids_in_both = num_in_both
    if edge_columns.type is not None:
        row = fetch_one(connection, "SELECT min(row) FROM numbered WHERE type < 0")[0]
        if row is not None:
            raise bad_cell(edge_columns.table, edge_columns.type, row=row, wanted="an edge type: fix the cell")
    layout.directed, layout.edge_column_names = options.directed, edge_columns.numbers
    layout.edge_arrays = _read_edge_arrays(builder, edge_copy, edge_columns, step=job.max_edges, report=report)
    return layout


def _names_of(columns: EdgeColumns | NodeColumns) -> tuple[str, ...]:
    """Every column that has a role, once."""
    _, *named, more = vars(columns).values()
    return tuple(dict.fromkeys(name for name in (*named, *more) if name is not None))


# ---- nodes -----------------------------------------------------------------------------------------------------------


class _ByType:
    """An array whose rows come for all types in turn, and stand type by type in the end."""

    def __init__(self, builder: StoreBuilder, name: str, dtype: str, num_types: int, columns: tuple[int, ...] = ()):
        self.builder, self.name, self.dtype, self.columns = builder, name, dtype, columns
        names = [f"{name}.of.{t}" for t in range(num_types)]
        self.writers = [builder.scratch_array(one, dtype=dtype, columns=columns) for one in names]

    def append(self, values: Array, types: Array | None) -> None:
        for t, writer in enumerate(self.writers):
            writer.append(values if types is None else values[types == t])

    def finish(self) -> None:
        with self.builder.array(self.name, dtype=self.dtype, columns=self.columns) as final:
            for writer in self.writers:
                array = _closed(writer)
                for begin in range(0, len(array), 1 << 20):
                    final.append(array[begin : begin + (1 << 20)])
                writer.path.unlink()


def _closed(writer: ArrayWriter) -> Array:
    """What was written, memory-mapped."""
    return open_array(writer.path.parent, writer.path.stem, writer.close())


def _write_nodes(
    layout: Layout, builder: StoreBuilder, copy: TableCopy, columns: NodeColumns, chunk_bytes: int, report: Report
) -> str | None:
    """Write labels, splits and times to the store and raw features to scratch files; the SQL of a node's type code."""
    type_code = None
    if columns.type is not None:
        layout.node_types, type_code = code_names(copy.whole, columns.type)
    num_types = len(layout.node_types)
    readers = _node_readers(layout, builder, copy, columns)
    counts = np.zeros(num_types, dtype=np.int64)
    features = _FeatureWriter(builder, copy, columns.features, num_types)
    step = max(1, chunk_bytes // (64 + 48 * features.width))

    def chunks() -> Iterator[tuple[TableSlice, Array | None]]:
        for rows in copy.slices(step):
            types = _types_of(rows, type_code)
            if types is not None:
                check_cells(rows, str(columns.type), is_good=types >= 0, wanted="a node type")
            yield rows, types

    if num_types > 1:
        for rows, types in chunks():
            features.look(rows, types)
    for rows, types in chunks():
        counts += [rows.end - rows.begin] if types is None else np.bincount(types, minlength=num_types)
        for arrays, read in readers:
            for array, values in zip(arrays, read(rows), strict=True):
                array.append(values, types)
        features.write(rows, types)
        report("reading nodes", rows.end / max(1, copy.num_rows))
    for arrays, _ in readers:
        for array in arrays:
            array.finish()
    layout.raw_features, layout.feature_names = features.finish()
    layout.type_offsets = (0, *np.cumsum(counts).tolist())
    return type_code


def _types_of(rows: TableSlice, type_code: str | None) -> Array | None:
    return None if type_code is None else np.asarray(rows.fetch({"code": type_code})["code"])


def _node_readers(
    layout: Layout, builder: StoreBuilder, copy: TableCopy, columns: NodeColumns
) -> list[tuple[list[_ByType], Callable[[TableSlice], list[Array]]]]:
    """For labels, splits and times: the arrays they go to, and how a chunk of the table becomes rows of them."""
    readers: list[tuple[list[_ByType], Callable[[TableSlice], list[Array]]]] = []
    whole, num_types = copy.whole, len(layout.node_types)
    if columns.label is not None:
        layout.class_names, label_code = code_names(whole, columns.label)
        check_classes(whole, columns.label, layout.class_names)
        labels = _ByType(builder, "labels", "<i8", num_types)
        readers.append(([labels], lambda rows: [np.asarray(rows.fetch({"c": label_code})["c"])]))
    if columns.split is not None:
        values, split_code = code_names(whole, columns.split)
        split_of_code, names = split_names(whole, columns.split, values=values), ("train", "val", "test")

        def read_splits(rows: TableSlice) -> list[Array]:
            found = split_of_code[np.asarray(rows.fetch({"c": split_code})["c"])]
            return [(found == name)[:, None] for name in names]

        readers.append(([_ByType(builder, name, "|b1", num_types, (1,)) for name in names], read_splits))
    if columns.time is not None:
        time, sql = columns.time, time_expression(whole, columns.time)
        dtype = read_times(copy.slice(0, 1), time, expression=sql).dtype.str
        times = _ByType(builder, "node_times", dtype, num_types)
        readers.append(([times], lambda rows: [read_times(rows, time, expression=sql)]))
    return readers


class _FeatureWriter:
    """Feature columns to one raw float32 file for each type; a column that is empty for a whole type is left out."""

    def __init__(self, builder: StoreBuilder, copy: TableCopy, names: tuple[str, ...], num_types: int) -> None:
        self.builder, self.num_types = builder, num_types
        self.kinds = find_feature_kinds(copy.whole, names)
        self.is_used = np.full((num_types, len(names)), num_types == 1)
        self.writers: list[ArrayWriter | None] = [None] * num_types
        self.widths: dict[tuple[int, str], int] = {}
        first = copy.slice(0, min(copy.num_rows, _FIRST_ROWS))
        lengths = [column.lengths for column in read_columns(first, self.kinds)] if self.kinds else []
        self.width = sum(1 if length is None else int(length.max(initial=1)) for length in lengths)

    def look(self, rows: TableSlice, types: Array | None) -> None:
        """Learn which columns the types of these rows have."""
        columns = read_columns(rows, self.kinds)
        for t, of_type in self._by_type(rows, types):
            self.is_used[t] |= np.array([not column.is_empty(of_type) for column in columns], dtype=bool)

    def write(self, rows: TableSlice, types: Array | None) -> None:
        columns = read_columns(rows, self.kinds)
        used = [
            (t, of_type, [column for column, is_used in zip(columns, self.is_used[t], strict=True) if is_used])
            for t, of_type in self._by_type(rows, types)
        ]
        check_gaps(rows, [(column, of_type) for _, of_type, some in used for column in some])
        for t, of_type, some in used:
            if some:
                block = np.concatenate([self._take(t, column, rows, of_type) for column in some], axis=1)
                writer = self.writers[t] or self.builder.scratch_array(f"raw.{t}", dtype="<f4", columns=block.shape[1:])
                self.writers[t] = writer
                writer.append(block)

    def finish(self) -> tuple[list[Array | None], tuple[str, ...] | None]:
        """The block of each type, and the names of the columns where there is one type."""
        blocks = [None if writer is None else _closed(writer) for writer in self.writers]
        if self.num_types > 1:
            return blocks, None
        return blocks, feature_names({name: self.widths.get((0, name), 1) for name in self.kinds}) or None

    def _by_type(self, rows: TableSlice, types: Array | None) -> Iterator[tuple[int, Array]]:
        for t in range(self.num_types):
            of_type = np.arange(rows.end - rows.begin) if types is None else np.flatnonzero(types == t)
            if len(of_type):
                yield t, of_type

    def _take(self, t: int, column: Column, rows: TableSlice, of_type: Array) -> Array:
        block = column.take(rows, of_type)
        width = self.widths.setdefault((t, column.name), block.shape[1])
        if block.shape[1] != width:
            raise InputError(
                f"column {column.name!r} is a list of {block.shape[1]} in {rows.place(int(of_type[0]))} but of {width} "
                f"before: make all lists of equal length"
            )
        return block


def _write_ids(
    layout: Layout,
    builder: StoreBuilder,
    connection: DuckDBPyConnection,
    copy: TableCopy | None,
    type_code: str | None,
    *,
    step: int,
) -> None:
    """External ids, type by type, as int64 where each is written as an integer is, otherwise as text."""
    cell, dtype = "CAST(id AS BIGINT)", "<i8"
    if not are_integers(connection, "node_ids"):
        longest = fetch_one(connection, "SELECT max(length(id)) FROM node_ids")[0]
        cell, dtype = "id", f"<U{max(1, int(longest))}"
    ids = _ByType(builder, "ids", dtype, len(layout.node_types))
    for begin in range(0, layout.num_nodes, step):
        end = min(layout.num_nodes, begin + step)
        query = f"SELECT {cell} AS id FROM node_ids WHERE rowid >= {begin} AND rowid < {end}"
        values = np.asarray(connection.execute(query).fetchnumpy()["id"]).astype(dtype)
        ids.append(values, None if copy is None else _types_of(copy.slice(begin, end), type_code))
    ids.finish()


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


def _drop_unknown(edges: Table, nodes: Table | None, *, ignore_unknown: bool) -> int:
    """Drop the edges that name an unknown node, where that is asked for, and the tables of ids; how many there were."""
    connection = edges.connection
    unknown = "source IS NULL OR target IS NULL"
    count, num_unknown = fetch_one(connection, f"SELECT count(*), count(*) FILTER ({unknown}) FROM numbered")
    if nodes is not None and num_unknown and not ignore_unknown:
        raise unknown_nodes(edges, nodes, num_edges=num_unknown)
    if num_unknown == count:
        raise no_known_edges(edges, nodes)
    if num_unknown:
        connection.execute(f"DELETE FROM numbered WHERE {unknown}")
    for name in ("edge_ids", "node_ids", "ids_by_type"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    return int(num_unknown)


def _read_edge_arrays(
    builder: StoreBuilder, copy: TableCopy, columns: EdgeColumns, *, step: int, report: Report
) -> dict[str, Array]:
    """Weights, times and numeric columns of all rows, in scratch files."""
    readers: dict[str, Callable[[TableSlice], Array | None]] = {}
    if columns.weight is not None:
        weight, kinds = columns.weight, check_kinds(copy.whole, (columns.weight,))
        readers["edge_weights"] = lambda rows: read_weights(rows, weight, kinds=kinds)
    if columns.time is not None:
        time, sql = columns.time, time_expression(copy.whole, columns.time)
        readers["edge_times"] = lambda rows: read_times(rows, time, expression=sql)
    if columns.numbers:
        kinds_of_numbers = check_kinds(copy.whole, columns.numbers)
        readers["edge_columns"] = lambda rows: read_matrix(rows, columns.numbers, kinds=kinds_of_numbers)
    arrays: dict[str, Array] = {}
    for name, reader in readers.items():
        writer = None
        for rows in copy.slices(max(1, step // (1 + len(columns.numbers)))):
            values = reader(rows)
            assert values is not None
            if writer is None:
                writer = builder.scratch_array(name, dtype=values.dtype.str, columns=tuple(values.shape[1:]))
            writer.append(values)
            report(f"reading {name.replace('_', ' ')}", rows.end / copy.num_rows)
        assert writer is not None
        arrays[name] = _closed(writer)
    return arrays
