"""Tables to graphs: `read_tables` in memory, `prepare_tables` to a store, with a cap on memory, for larger ones.

Tables are CSV (.csv, .tsv, .txt, also with .gz) or Parquet (.parquet, .pq) files, or globs of several, read by DuckDB.

    edges   two columns of ids; type, weight and time columns; every other column is a number that describes the edge
    nodes   an id column; label, split, type and time columns; every other column is a feature, or a list of features

    files            -> tables           open_table in database.py
    names of columns -> roles            open_tables in columns.py, by `TableOptions`
    ids              -> node numbers     load_ids and number_edges in ids.py
    columns          -> features, ...    read_columns and its neighbours in values.py

Both read the same way: in memory a table at once; for a store in slices, of copies that DuckDB makes beside it of the
columns that are needed. Rows come in the order of the table, while nodes stand type by type: what nodes have is kept
for each type on its own, and joined at the end.

Ids are integers, text or UUIDs. In a CSV file they are text: `007` and `7` are two nodes. `graph.ids` gives them back
in that form: int64 where all are written as integers are, otherwise strings.

Nodes are numbered in the order of the nodes table, type by type where they have types (types in the order of names).
Without a nodes table they are the ids that the edges name, sorted. Times become int64 (dates: seconds since 1970) or
float64. What cannot be read raises an InputError that names the file, the row or column, and the fix.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.graph import SPLITS
from graphstrap.io import values
from graphstrap.io.arrays import Array
from graphstrap.io.columns import EdgeColumns, NodeColumns, TableOptions, choose_node_columns, open_tables
from graphstrap.io.database import Connection, Table, TableCopy, connect, fetch_one, open_table, quote_name, quote_text
from graphstrap.io.ids import NodeIds, count_doubtful_ids, load_ids, number_edges
from graphstrap.io.prepare import Layout, PrepareOptions, make_store
from graphstrap.io.store_format import Report, StoreBuilder

__all__ = ["TableOptions", "prepare_tables", "read_tables"]

_SPLIT_OF_VALUE = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_DEFAULT_OPTIONS = TableOptions()
_FEW_CLASSES, _MOST_NAMED = 50, 0.5  # more, of more than this share of the rows, are names of rows
_FIRST_ROWS = 1024  # read to learn how wide lists are
_ROWS_AT_ONCE = 1 << 20

Reader = Callable[[Table], dict[str, Array]]  # arrays of some rows of a table, by their names


def read_tables(
    edges: str | os.PathLike[str],
    nodes: str | os.PathLike[str] | None = None,
    *,
    options: TableOptions = _DEFAULT_OPTIONS,
    **more: Any,
) -> Graph:
    """Read a graph from a table of edges and, where there is one, a table of nodes.

    Args:
        edges: path or glob of CSV or Parquet files with one row per edge.
        nodes: path or glob of files with one row per node; without it, nodes are what the edges name.
        options: which column is what, and what to do about unknown nodes.
        more: single options, such as label="field" or directed=True, in place of those.

    Returns:
        The graph. `graph.ids` are the ids of the tables, `graph.cleaning` counts what was merged, added and dropped.

    Example:
        graph = gs.read_tables("edges.csv", "nodes.csv", label="field", ignore_columns=("name",))
    """
    options = options.replaced(more)
    with connect() as connection:
        edge_columns, node_columns = open_tables(connection, edges, nodes, options)
        load_ids(edge_columns, node_columns)
        layout = read_layout(edge_columns, node_columns, NodeIds(connection), options=options)
        source, target, edge_fields = edges_of(layout, connection)
    arrays = {name: np.concatenate(parts) for name, parts in layout.node_arrays.items()}
    external_ids = arrays.pop("ids")
    fields: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if SPLITS[0] in fields:
        fields["splits"] = Splits(*(fields.pop(name) for name in SPLITS))
    graph = Graph.from_edges(
        source,
        target,
        directed=options.directed,
        ids=external_ids,
        features=tuple(None if x is None else torch.from_numpy(x) for x in layout.raw_features),
        feature_names=layout.feature_names,
        class_names=layout.class_names,
        node_types=layout.node_types,
        num_nodes=layout.type_offsets[-1],
        type_offsets=layout.type_offsets,
        **edge_fields,
        **fields,
    )
    if graph.num_edges == 0:
        raise InputError(f"{edges} has no edges left: all {graph.cleaning.num_edges_given} go from a node to itself")
    cleaning = graph.cleaning.with_ids(num_unknown=layout.num_unknown, num_in_both=layout.num_ids_in_both)
    return replace(graph, cleaning=cleaning)


def prepare_tables(
    edges: str,
    nodes: str | None,
    to: str,
    *,
    options: TableOptions = _DEFAULT_OPTIONS,
    job: PrepareOptions | None = None,
    report: Report = lambda stage, fraction: None,
) -> None:
    """Make a store of a table of edges and, where there is one, a table of nodes: the graph of `read_tables`."""
    job = job or PrepareOptions()

    def read(builder: StoreBuilder, connection: Connection) -> Layout:
        edge_columns, node_columns = open_tables(connection, edges, nodes, options)
        report("copying tables", 0.0)
        edge_columns = replace(edge_columns, table=_copy(edge_columns, "edge_rows"))
        if node_columns is not None:
            node_columns = replace(node_columns, table=_copy(node_columns, "node_rows"))
        report("mapping ids", 0.0)
        load_ids(edge_columns, node_columns)
        layout = read_layout(
            edge_columns,
            node_columns,
            NodeIds(connection),
            options=options,
            kept=builder,
            chunk_bytes=job.chunk_bytes,
            max_edges=job.max_edges,
            report=report,
        )
        for name in ("edge_ids", "node_ids", "ids_by_type"):
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        for name, arrays in layout.node_arrays.items():
            with builder.array(name, dtype=arrays[0].dtype.str, columns=arrays[0].shape[1:]) as final:
                for array in arrays:
                    for begin in range(0, len(array), _ROWS_AT_ONCE):
                        final.append(array[begin : begin + _ROWS_AT_ONCE])
        return layout

    make_store(to, read, job=job, report=report)


def _copy(columns: EdgeColumns | NodeColumns, name: str) -> TableCopy:
    """A copy in the database of every column that has a role."""
    _, *single, several = vars(columns).values()
    named = dict.fromkeys(column for column in (*single, *several) if column is not None)
    return TableCopy.of(columns.table, name, tuple(named))


# ---- what both do ----------------------------------------------------------------------------------------------------


class InMemory:
    """Arrays that grow by rows, as those of a `StoreBuilder` do."""

    def __init__(self) -> None:
        self._appended = defaultdict[str, list[Array]](list)

    def append(self, name: str, rows: Array) -> None:
        self._appended[name].append(rows)

    def appended(self, name: str) -> Array:
        rows = self._appended.pop(name)
        return rows[0] if len(rows) == 1 else np.concatenate(rows)


def read_layout(
    edges: EdgeColumns,
    nodes: NodeColumns | None,
    ids: NodeIds,
    *,
    options: TableOptions,
    kept: InMemory | StoreBuilder | None = None,
    chunk_bytes: int = 1 << 28,
    max_edges: int = 1 << 21,
    report: Report = lambda stage, fraction: None,
    can_name_ends: bool = True,
) -> Layout:
    """Number the edges in the table `numbered`, and read what nodes and edges have, after `load_ids`.

    Args:
        edges, nodes: the tables; copies of them are read in slices.
        ids: of the rows of the nodes table, or of all nodes.
        kept: where arrays are put; memory unless given.
        chunk_bytes, max_edges: how much of nodes and of edges to read at a time.
    """
    kept = kept or InMemory()
    layout = Layout(edges.table.name, directed=options.directed, edge_column_names=edges.numbers)
    layout.num_ids_in_both = count_doubtful_ids(edges, nodes)
    node_code = edge_code = None
    if nodes is not None and nodes.type is not None:
        layout.node_types, node_code = values.code_names(nodes.table, nodes.type)
    if edges.type is not None:
        layout.edge_type_names, edge_code = values.code_names(edges.table, edges.type)
    layout.num_unknown = number_edges(
        edges,
        nodes,
        node_code=node_code,
        edge_code=edge_code,
        ignore_unknown=options.ignore_unknown_nodes,
        can_name_ends=can_name_ends,
        report=report,
    )
    if edges.type is not None:
        (row,) = fetch_one(edges.table.connection, "SELECT min(row) FROM numbered WHERE type < 0")
        if row is not None:
            raise values.bad_cell(edges.table, edges.type, row=row, wanted="an edge type: fix the cell")
    if nodes is None:
        layout.type_offsets, step = (0, ids.count), chunk_bytes // 512
        for begin in range(0, ids.count, step):
            kept.append("ids", ids.read(begin, begin + step))
        layout.node_arrays, layout.raw_features = {"ids": [kept.appended("ids")]}, [None]
    else:
        _read_nodes(layout, nodes, node_code, ids, kept, chunk_bytes, report)
    readers, names = edge_readers(edges), list[str]()
    (num_rows,) = fetch_one(edges.table.connection, "SELECT count(*) FROM edge_ids")
    for rows, _, end in edges.table.slices(max(1, max_edges // (1 + len(edges.numbers))), num_rows):
        arrays = read_rows(rows, readers)
        names = list(arrays)
        for name, array in arrays.items():
            kept.append(name, array)
        report("reading edge columns", end / num_rows)
    layout.edge_arrays = {name: kept.appended(name) for name in names}
    return layout


def edges_of(layout: Layout, connection: Connection) -> tuple[Array, Array, dict[str, Any]]:
    """The two ends of the edges in `numbered`, in the order of their table, and what they have for a Graph."""
    numbered = connection.execute("SELECT * FROM numbered ORDER BY row").fetchnumpy()
    fields: dict[str, Any] = {name: array[numbered["row"]] for name, array in layout.edge_arrays.items()}
    if layout.edge_type_names:
        fields["edge_types"] = numbered["type"]
    names = {"edge_type_names": layout.edge_type_names, "edge_column_names": layout.edge_column_names}
    return numbered["source"], numbered["target"], fields | names


def _read_nodes(
    layout: Layout,
    nodes: NodeColumns,
    code: str | None,
    ids: NodeIds,
    kept: InMemory | StoreBuilder,
    chunk_bytes: int,
    report: Report,
) -> None:
    """What the table of nodes has, type by type; `code` is the SQL of a node's type."""
    table, types = nodes.table, range(len(layout.node_types))
    layout.class_names, readers = node_readers(nodes)
    kinds = values.find_feature_kinds(table, nodes.features)
    used = values.used_columns(table, kinds, code, len(types))
    widths: list[dict[str, int]] = [{} for _ in types]
    counts, names = np.zeros(len(types), dtype=np.int64), set[str]()
    step = max(1, chunk_bytes // (512 + 48 * _width(table, kinds)))  # an id, and what becomes of it, is up to 512 bytes
    for rows, begin, end in table.slices(step, ids.count):
        rows_by_type = [np.arange(end - begin)]
        if code is not None:
            codes = values.read_codes(rows, code)
            values.check_cells(rows, str(nodes.type), is_good=codes >= 0, wanted="a node type")
            rows_by_type = [np.flatnonzero(codes == t) for t in types]
        counts += [len(of_type) for of_type in rows_by_type]
        arrays = read_rows(rows, readers) | {"ids": ids.read(begin, end)}
        names |= set(arrays)
        for name, array in arrays.items():
            for t, of_type in enumerate(rows_by_type):
                kept.append(f"{name}.of.{t}", array[of_type])
        columns = values.read_columns(rows, kinds)
        wanted = [
            [column for column in columns if column.name in some] if len(of_type) else []
            for some, of_type in zip(used, rows_by_type, strict=True)
        ]
        for t, blocks in enumerate(values.take_columns(rows, wanted, rows_by_type)):
            for name, block in blocks.items():
                width = widths[t].setdefault(name, block.shape[1])
                if block.shape[1] != width:
                    raise InputError(
                        f"column {name!r} is a list of {block.shape[1]} in {rows.place(int(rows_by_type[t][0]))} but "
                        f"of {width} before: make all lists of equal length"
                    )
            if blocks:
                kept.append(f"raw.{t}", np.concatenate(list(blocks.values()), axis=1))
        report("reading nodes", end / ids.count)
    layout.node_arrays = {name: [kept.appended(f"{name}.of.{t}") for t in types] for name in names}
    layout.raw_features = [kept.appended(f"raw.{t}") if widths[t] else None for t in types]
    layout.feature_names = (values.feature_names(widths[0]) or None) if len(types) == 1 else None
    layout.type_offsets = (0, *np.cumsum(counts).tolist())


def _width(table: Table, kinds: dict[str, str]) -> int:
    """How many features a row of a copy has, by its first rows."""
    if not isinstance(table, TableCopy):
        return 0
    first, _, _ = next(table.slices(_FIRST_ROWS, _FIRST_ROWS))
    lengths = [column.lengths for column in values.read_columns(first, kinds)]
    return sum(1 if length is None else int(length.max(initial=1)) for length in lengths)


def edge_readers(columns: EdgeColumns) -> list[Reader]:
    """What reads weights, times and numeric columns of edges, by their names in a Graph."""
    table, readers = columns.table, list[Reader]()
    if (weight := columns.weight) is not None:
        kinds_of_weight = values.check_kinds(table, (weight,))
        readers.append(lambda rows: {"edge_weights": _read_weights(rows, weight, kinds_of_weight)})
    if (time := columns.time) is not None:
        expression = values.time_expression(table, time)
        readers.append(lambda rows: {"edge_times": values.read_times(rows, time, expression)})
    if kinds := values.check_kinds(table, columns.numbers):
        readers.append(lambda rows: {"edge_columns": values.read_matrix(rows, kinds)})
    return readers


def _read_weights(table: Table, name: str, kinds: dict[str, str]) -> Array:
    """(N,) weights from 0 up."""
    weights = values.read_matrix(table, kinds)[:, 0]
    values.check_cells(table, name, is_good=weights >= 0, wanted="a weight from 0 up")
    return weights


def read_rows(rows: Table, readers: list[Reader]) -> dict[str, Array]:
    return {name: array for read in readers for name, array in read(rows).items()}


def node_readers(columns: NodeColumns) -> tuple[tuple[str, ...] | None, list[Reader]]:
    """The names of the classes, and what reads labels, splits and times of nodes, by their names in a store."""
    table, class_names, readers = columns.table, None, list[Reader]()
    if columns.label is not None:
        class_names, label_code = values.code_names(table, columns.label)
        _check_classes(table, columns.label, class_names)
        readers.append(lambda rows: {"labels": values.read_codes(rows, label_code)})
    if columns.split is not None:
        names, split_code = values.code_names(table, columns.split)
        split_of_code = _split_names(table, columns.split, names)

        def read_splits(rows: Table) -> dict[str, Array]:
            splits = split_of_code[values.read_codes(rows, split_code)]
            return {name: (splits == name)[:, None] for name in SPLITS}

        readers.append(read_splits)
    if (time := columns.time) is not None:
        expression = values.time_expression(table, time)
        readers.append(lambda rows: {"node_times": values.read_times(rows, time, expression)})
    return class_names, readers


def _check_classes(table: Table, name: str, class_names: tuple[str, ...]) -> None:
    """There must be something to tell apart."""
    if len(class_names) < 2:
        what = f"only the label {class_names[0]!r}" if class_names else "no labels"
        fix = f"give at least two, or {table.how_to_leave_out(name)}"
        raise InputError(f"column {name!r} of {table.name} has {what}: {fix}")
    (num_filled,) = table.execute(f"SELECT count({quote_name(name)}) FROM {table.scan}")
    if len(class_names) > max(_FEW_CLASSES, _MOST_NAMED * num_filled):
        raise InputError(
            f"column {name!r} of {table.name} has {len(class_names):,} different values in {num_filled:,} rows, so it "
            f"is a name and no class: {table.how_to_leave_out(name)}, and name the classes' column with --label-column"
        )


def _split_names(table: Table, name: str, given: tuple[str, ...]) -> Array:
    """The split that each value of a split column names, then "" for an empty cell."""
    splits = [_SPLIT_OF_VALUE.get(value.strip().lower(), "?") for value in given]
    wrong = [quote_text(value) for value, split in zip(given, splits, strict=True) if split == "?"]
    if wrong:
        row = table.first_row(f"CAST({quote_name(name)} AS VARCHAR) IN ({', '.join(wrong)})")
        raise values.bad_cell(
            table, name, row=row, wanted="one of train, val, valid, validation, test or empty: fix the cell"
        )
    return np.array([*splits, ""])


def read_ignored_columns(nodes: str, ids: Array, *, options: TableOptions, limit: int) -> dict[str, Array]:
    """The first `limit` ignored columns of a nodes table, as text, "" where empty: names, places and notes to show.

    They come for the nodes with these ids, in their order.
    """
    with connect() as connection:
        table = open_table(connection, nodes, has_header=options.header)
        id_column, ignored = choose_node_columns(table, options).id, {name.lower() for name in options.ignore_columns}
        names = [name for name in table.columns if name.lower() in ignored and name != id_column][:limit]
        if not names:
            return {}
        cells = {name: f"coalesce(CAST({quote_name(name)} AS VARCHAR), '')" for name in (id_column, *names)}
        found = {name: np.asarray(column).tolist() for name, column in table.fetch(cells).items()}
    row_of = {text: row for row, text in enumerate(found[id_column])}
    rows = [row_of.get(str(one)) for one in ids.tolist()]
    return {name: np.array(["" if row is None else found[name][row] for row in rows], dtype=np.str_) for name in names}
