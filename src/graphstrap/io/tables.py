"""read_tables: a table of edges, and one of nodes, to a Graph.

Tables are CSV (.csv, .tsv, .txt, also with .gz) or Parquet (.parquet, .pq) files, or globs of several, read by DuckDB.

    edges   two columns of ids; type, weight and time columns; every other column is a number that describes the edge
    nodes   an id column; label, split, type and time columns; every other column is a feature, or a list of features

    files            -> tables           open_table in database.py
    names of columns -> roles            open_tables in columns.py, by `TableOptions`
    ids              -> node numbers     load_ids and match_edges in ids.py
    columns          -> features, ...    read_feature_blocks and its neighbours in values.py

Ids are integers, text or UUIDs. In a CSV file they are text: `007` and `7` are two nodes. `graph.ids` gives them back
in that form: int64 where all are written as integers are, otherwise strings.

Nodes are numbered in the order of the nodes table, type by type where they have types (types in the order of names).
Without a nodes table they are the ids that the edges name, sorted. Times become int64 (dates: seconds since 1970) or
float64. What cannot be read raises an InputError that names the file, the row or column, and the fix.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.io.arrays import Array
from graphstrap.io.columns import EdgeColumns, NodeColumns, TableOptions, choose_node_columns, open_tables
from graphstrap.io.database import Table, connect, fetch_one, open_table, quote_name, quote_text
from graphstrap.io.ids import NodeIds, count_doubtful_ids, load_ids, match_edges
from graphstrap.io.store_format import SPLITS
from graphstrap.io.values import (
    bad_cell,
    check_cells,
    check_kinds,
    code_names,
    read_codes,
    read_feature_blocks,
    read_matrix,
    read_names,
    read_times,
    time_expression,
)

__all__ = ["TableOptions", "read_tables"]

_SPLIT_OF_VALUE = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_DEFAULT_OPTIONS = TableOptions()

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
        ids = NodeIds(connection).read()
        rows, source, target = match_edges(edge_columns, node_columns, ignore_unknown=options.ignore_unknown_nodes)
        num_unknown = fetch_one(connection, "SELECT count(*) FROM edge_ids")[0] - len(rows)
        num_in_both = count_doubtful_ids(edge_columns, node_columns)
        edge_fields, node_fields, order = read_edges(edge_columns, rows=rows), dict[str, Any](), np.arange(len(ids))
        if node_columns is not None:
            node_fields, order = read_nodes(node_columns, num_nodes=len(ids))
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(ids))  # the node that each row became
    graph = Graph.from_edges(
        numbers[source],
        numbers[target],
        num_nodes=len(ids),
        directed=options.directed,
        ids=ids[order],
        **edge_fields,
        **node_fields,
    )
    if graph.num_edges == 0:
        raise InputError(f"{edges} has no edges left: all {graph.cleaning.num_edges_given} go from a node to itself")
    return replace(graph, cleaning=graph.cleaning.with_ids(num_unknown=num_unknown, num_in_both=num_in_both))


def read_edges(columns: EdgeColumns, *, rows: Array) -> dict[str, Any]:
    """What Graph.from_edges takes beside the two ends, for the rows that are kept."""
    table, fields = columns.table, dict[str, Any]()
    if columns.type is not None:
        fields["edge_type_names"], codes = read_names(table, columns.type)
        check_cells(table, columns.type, is_good=codes >= 0, wanted="an edge type")
        fields["edge_types"] = codes[rows]
    if columns.numbers:
        fields["edge_column_names"] = columns.numbers
    return fields | {name: array[rows] for name, array in read_rows(table, edge_readers(columns)).items()}


def edge_readers(columns: EdgeColumns) -> list[Reader]:
    """What reads weights, times and numeric columns of edges, by their names in a Graph."""
    table, readers = columns.table, list[Reader]()
    if (weight := columns.weight) is not None:
        kinds_of_weight = check_kinds(table, (weight,))
        readers.append(lambda rows: {"edge_weights": _read_weights(rows, weight, kinds_of_weight)})
    if (time := columns.time) is not None:
        expression = time_expression(table, time)
        readers.append(lambda rows: {"edge_times": read_times(rows, time, expression)})
    if kinds := check_kinds(table, columns.numbers):
        readers.append(lambda rows: {"edge_columns": read_matrix(rows, kinds)})
    return readers


def _read_weights(table: Table, name: str, kinds: dict[str, str]) -> Array:
    """(N,) weights from 0 up."""
    weights = read_matrix(table, kinds)[:, 0]
    check_cells(table, name, is_good=weights >= 0, wanted="a weight from 0 up")
    return weights


def read_rows(rows: Table, readers: list[Reader]) -> dict[str, Array]:
    return {name: array for read in readers for name, array in read(rows).items()}


def read_nodes(columns: NodeColumns, *, num_nodes: int) -> tuple[dict[str, Any], Array]:
    """What nodes have, for Graph.from_edges, in the order of their types; and (N,) the row of each in the table."""
    table = columns.table
    node_types, rows_by_type = _group_by_type(table, columns.type, num_nodes=num_nodes)
    order = np.concatenate(rows_by_type)
    blocks, feature_names = read_feature_blocks(table, columns.features, rows_by_type=rows_by_type)
    class_names, readers = node_readers(columns)
    arrays = read_rows(table, readers)
    fields: dict[str, Any] = {name: torch.from_numpy(array[order]) for name, array in arrays.items()}
    if columns.split is not None:
        fields["splits"] = Splits(*(fields.pop(name) for name in SPLITS))
    fields |= {
        "features": tuple(None if block is None else torch.from_numpy(block) for block in blocks),
        "feature_names": feature_names,
        "node_types": node_types,
        "type_offsets": (0, *np.cumsum([len(rows) for rows in rows_by_type]).tolist()),
        "class_names": class_names,
    }
    return fields, order


def node_readers(columns: NodeColumns) -> tuple[tuple[str, ...] | None, list[Reader]]:
    """The names of the classes, and what reads labels, splits and times of nodes, by their names in a store."""
    table, class_names, readers = columns.table, None, list[Reader]()
    if columns.label is not None:
        class_names, label_code = code_names(table, columns.label)
        _check_classes(table, columns.label, class_names)
        readers.append(lambda rows: {"labels": read_codes(rows, label_code)})
    if columns.split is not None:
        values, split_code = code_names(table, columns.split)
        split_of_code = _split_names(table, columns.split, values=values)

        def read_splits(rows: Table) -> dict[str, Array]:
            splits = split_of_code[read_codes(rows, split_code)]
            return {name: (splits == name)[:, None] for name in SPLITS}

        readers.append(read_splits)
    if (time := columns.time) is not None:
        expression = time_expression(table, time)
        readers.append(lambda rows: {"node_times": read_times(rows, time, expression)})
    return class_names, readers


def _group_by_type(table: Table, name: str | None, *, num_nodes: int) -> tuple[tuple[str, ...], list[Array]]:
    """The node types, and the rows of each type's nodes in the order of the table."""
    if name is None:
        return ("node",), [np.arange(num_nodes)]
    node_types, codes = read_names(table, name)
    check_cells(table, name, is_good=codes >= 0, wanted="a node type")
    ends = np.cumsum(np.bincount(codes, minlength=len(node_types)))
    return node_types, np.split(np.argsort(codes, kind="stable"), ends[:-1])


def _check_classes(table: Table, name: str, class_names: tuple[str, ...]) -> None:
    """There must be something to tell apart."""
    if len(class_names) < 2:
        what = f"only the label {class_names[0]!r}" if class_names else "no labels"
        fix = f"give at least two, or {table.how_to_leave_out(name)}"
        raise InputError(f"column {name!r} of {table.name} has {what}: {fix}")


def _split_names(table: Table, name: str, *, values: tuple[str, ...]) -> Array:
    """The split that each value of a split column names, then "" for an empty cell."""
    splits = [_SPLIT_OF_VALUE.get(value.strip().lower(), "?") for value in values]
    wrong = [quote_text(value) for value, split in zip(values, splits, strict=True) if split == "?"]
    if wrong:
        row = table.first_row(f"CAST({quote_name(name)} AS VARCHAR) IN ({', '.join(wrong)})")
        raise bad_cell(table, name, row=row, wanted="one of train, val, valid, validation, test or empty: fix the cell")
    return np.array([*splits, ""])


def read_ignored_columns(nodes: str, ids: Array, *, options: TableOptions, limit: int) -> dict[str, Array]:
    """The first `limit` ignored columns of a nodes table, as text, "" where empty: names, places and notes to show.

    They come for the nodes with these ids, in their order.
    """

    with connect() as connection:
        table = open_table(connection, nodes)
        id_column, ignored = choose_node_columns(table, options).id, {name.lower() for name in options.ignore_columns}
        names = [name for name in table.columns if name.lower() in ignored and name != id_column][:limit]
        if not names:
            return {}
        cells = {name: f"coalesce(CAST({quote_name(name)} AS VARCHAR), '')" for name in (id_column, *names)}
        found = {name: np.asarray(column).tolist() for name, column in table.fetch(cells).items()}
    row_of = {text: row for row, text in enumerate(found[id_column])}
    rows = [row_of.get(str(one)) for one in ids.tolist()]
    return {name: np.array(["" if row is None else found[name][row] for row in rows], dtype=np.str_) for name in names}
