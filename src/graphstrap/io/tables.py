"""read_tables: a table of edges, and one of nodes, to a Graph.

Tables are CSV (.csv, .tsv, .txt, also with .gz) or Parquet (.parquet, .pq) files, or globs of several, read by DuckDB.

    edges   two columns of ids; type, weight and time columns; every other column is a number that describes the edge
    nodes   an id column; label, split, type and time columns; every other column is a feature, or a list of features

`TableOptions` says how columns are found. Ids are integers, text or UUIDs. In a CSV file they are text: `007` and `7`
are two nodes. `graph.ids` gives them back in that form: int64 where all are written as integers are, otherwise strings.

Nodes are numbered in the order of the nodes table, type by type where they have types (types in the order of names).
Without a nodes table they are the ids that the edges name, sorted. Times become int64 (dates: seconds since 1970) or
float64. What cannot be read raises an InputError that names the file, the row or column, and the fix.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import Features, SparseMatrix
from graphstrap.io.columns import (
    EDGE_ROLES,
    NODE_ROLES,
    NodeColumns,
    TableOptions,
    check_ignored_columns,
    check_named_and_ignored,
    check_no_node_options,
    choose_edge_columns,
    choose_node_columns,
    sound_like_two_kinds,
)
from graphstrap.io.database import connect, quote_name, quote_text
from graphstrap.io.ids import (
    count_edges,
    count_ids_in_both,
    fetch_node_ids,
    find_id_type,
    load_edge_ids,
    load_node_ids,
    load_node_ids_of_edges,
    match_edges,
)
from graphstrap.io.table_files import Table, open_table
from graphstrap.io.values import Array, bad_cell, check_cells, read_feature_blocks, read_matrix, read_names, read_times

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from graphstrap.io.columns import EdgeColumns


__all__ = ["TableOptions", "read_tables"]

Path = str | os.PathLike[str]

_DEFAULT_OPTIONS = TableOptions()
_SPLIT_OF_VALUE = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True, eq=False)
class NodePart:
    """What the nodes table says: the row of each node, the node of each row, and arguments for Graph.from_edges."""

    rows: Array  # (N,) the row of each node in the nodes table
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> Array:
        """(N,) the node that each row became."""
        numbers = np.empty_like(self.rows)
        numbers[self.rows] = np.arange(len(self.rows))
        return numbers


def read_tables(
    edges: Path, nodes: Path | None = None, *, options: TableOptions = _DEFAULT_OPTIONS, **more: Any
) -> Graph:
    """Read a graph from a table of edges and, where there is one, a table of nodes.

    Args:
        edges: path or glob of CSV or Parquet files with one row per edge.
        nodes: path or glob of files with one row per node; without it, nodes are what the edges name.
        options: which column is what, and what to do about unknown nodes.
        more: single options, such as label="field" or directed=True, in place of those.
    """
    options = options.replaced(more)
    with connect() as connection:
        (edge_table, edge_columns), (node_table, node_columns) = open_tables(connection, edges, nodes, options)
        load_ids(edge_table, edge_columns, node_table=node_table, node_columns=node_columns)
        ids = fetch_node_ids(connection)
        rows, source, target = match_edges(edge_table, node_table, ignore_unknown=options.ignore_unknown_nodes)
        num_unknown, num_in_both = (
            count_edges(connection) - len(rows),
            count_doubtful_ids(edge_table, edge_columns, nodes),
        )
        edge_arguments = read_edges(edge_table, edge_columns, rows=rows)
        node_part = NodePart(np.arange(len(ids)))
        if node_table is not None and node_columns is not None:
            node_part = read_nodes(node_table, node_columns, num_nodes=len(ids))
    numbers = node_part.numbers
    graph = Graph.from_edges(
        numbers[source],
        numbers[target],
        num_nodes=len(ids),
        directed=options.directed,
        ids=ids[node_part.rows],
        **edge_arguments,
        **node_part.arguments,
    )
    if graph.num_edges == 0:
        raise InputError(f"{edges} has no edges left: all {graph.cleaning.num_edges_given} go from a node to itself")
    return replace(graph, cleaning=replace(graph.cleaning.with_unknown(num_unknown), num_ids_in_both=num_in_both))


def open_tables(
    connection: DuckDBPyConnection, edges: Path, nodes: Path | None, options: TableOptions
) -> tuple[tuple[Table, EdgeColumns], tuple[Table, NodeColumns] | tuple[None, None]]:
    """The table of edges and that of nodes, where there is one, each with the parts of its columns."""
    edge_table = _open_table(connection, edges, options, roles=EDGE_ROLES)
    if nodes is None:
        check_no_node_options(options)
        check_ignored_columns([edge_table], options)
        check_named_and_ignored(edge_table, None, options)
        return (edge_table, choose_edge_columns(edge_table, options)), (None, None)
    node_table = _open_table(connection, nodes, options, roles=NODE_ROLES)
    check_ignored_columns([edge_table, node_table], options)
    check_named_and_ignored(edge_table, node_table, options)
    edge_columns, node_columns = choose_edge_columns(edge_table, options), choose_node_columns(node_table, options)
    return (edge_table, edge_columns), (node_table, node_columns)


def _open_table(connection: DuckDBPyConnection, name: Path, options: TableOptions, *, roles: tuple[str, ...]) -> Table:
    named = tuple(column for _, column in options.named(roles))
    return open_table(connection, name, ignored=options.ignore_columns, named=named)


def load_ids(
    edge_table: Table, edge_columns: EdgeColumns, *, node_table: Table | None, node_columns: NodeColumns | None
) -> None:
    """Fill DuckDB's tables of node ids and edge ends."""
    ends = [(edge_table, edge_columns.source), (edge_table, edge_columns.target)]
    if node_table is None or node_columns is None:
        load_edge_ids(edge_table, edge_columns.source, target=edge_columns.target, id_type=find_id_type(ends))
        load_node_ids_of_edges(edge_table.connection)
        return
    id_type = find_id_type([(node_table, node_columns.id), *ends])
    load_node_ids(node_table, node_columns.id, id_type=id_type)
    load_edge_ids(edge_table, edge_columns.source, target=edge_columns.target, id_type=id_type)


def count_doubtful_ids(table: Table, columns: EdgeColumns, nodes: Path | None) -> int:
    """Without a nodes table: how many ids are in both columns, where their names are those of two kinds of nodes."""
    if nodes is not None or not sound_like_two_kinds(columns.source, columns.target):
        return 0
    return count_ids_in_both(table.connection)


def read_edges(table: Table, columns: EdgeColumns, *, rows: Array) -> dict[str, Any]:
    """The edge arguments of Graph.from_edges, for the rows that are kept."""
    arguments: dict[str, Any] = {}
    if columns.type is not None:
        arguments["edge_type_names"], codes = read_names(table, columns.type)
        check_cells(table, columns.type, is_good=codes >= 0, wanted="an edge type")
        arguments["edge_types"] = codes[rows]
    if columns.weight is not None:
        arguments["edge_weights"] = read_weights(table, columns.weight)[rows]
    if columns.time is not None:
        arguments["edge_times"] = read_times(table, columns.time)[rows]
    matrix = read_matrix(table, columns.numbers)
    if matrix is not None:
        arguments |= {"edge_columns": matrix[rows], "edge_column_names": columns.numbers}
    return arguments


def read_weights(table: Table, name: str, *, kinds: dict[str, str] | None = None) -> Array:
    """(N,) weights from 0 up."""
    matrix = read_matrix(table, (name,), kinds=kinds)
    assert matrix is not None
    check_cells(table, name, is_good=matrix[:, 0] >= 0, wanted="a weight from 0 up")
    return matrix[:, 0]


def read_nodes(table: Table, columns: NodeColumns, *, num_nodes: int) -> NodePart:
    """The node arguments of Graph.from_edges, with nodes in the order of their types."""
    node_types, rows_by_type = _group_by_type(table, columns.type, num_nodes=num_nodes)
    rows = np.concatenate(rows_by_type)
    blocks, feature_names = read_feature_blocks(table, columns.features, rows_by_type=rows_by_type)
    arguments: dict[str, Any] = {
        "features": tuple(None if block is None else torch.from_numpy(block) for block in blocks),
        "feature_names": feature_names,
        "node_types": node_types,
        "type_offsets": (0, *np.cumsum([len(rows_of_type) for rows_of_type in rows_by_type]).tolist()),
    }
    if columns.label is not None:
        arguments["class_names"], labels = _read_labels(table, columns.label)
        arguments["labels"] = torch.from_numpy(labels[rows])
    if columns.split is not None:
        arguments["splits"] = _read_splits(table, columns.split, rows=rows)
    if columns.time is not None:
        arguments["node_times"] = torch.from_numpy(read_times(table, columns.time)[rows])
    return NodePart(rows, arguments)


def _group_by_type(table: Table, name: str | None, *, num_nodes: int) -> tuple[tuple[str, ...], list[Array]]:
    """The node types, and the rows of each type's nodes in the order of the table."""
    if name is None:
        return ("node",), [np.arange(num_nodes)]
    node_types, codes = read_names(table, name)
    check_cells(table, name, is_good=codes >= 0, wanted="a node type")
    ends = np.cumsum(np.bincount(codes, minlength=len(node_types)))
    return node_types, np.split(np.argsort(codes, kind="stable"), ends[:-1])


def _read_labels(table: Table, name: str) -> tuple[tuple[str, ...], Array]:
    class_names, labels = read_names(table, name)
    check_classes(table, name, class_names)
    return class_names, labels


def check_classes(table: Table, name: str, class_names: tuple[str, ...]) -> None:
    """There must be something to tell apart."""
    if len(class_names) < 2:
        what = f"only the label {class_names[0]!r}" if class_names else "no labels"
        fix = f"give at least two, or {table.how_to_leave_out(name)}"
        raise InputError(f"column {name!r} of {table.name} has {what}: {fix}")


def split_parts(table: Table, name: str, *, values: tuple[str, ...]) -> Array:
    """The part that each value of a split column names, then "" for an empty cell."""
    parts = [_SPLIT_OF_VALUE.get(value.strip().lower(), "?") for value in values]
    wrong = [quote_text(value) for value, part in zip(values, parts, strict=True) if part == "?"]
    if wrong:
        row = table.first_row(f"CAST({quote_name(name)} AS VARCHAR) IN ({', '.join(wrong)})")
        raise bad_cell(table, name, row=row, wanted="one of train, val, valid, validation, test or empty: fix the cell")
    return np.array([*parts, ""])


def _read_splits(table: Table, name: str, *, rows: Array) -> Splits:
    values, codes = read_names(table, name)
    parts = split_parts(table, name, values=values)[codes]

    def mask(part: str) -> Tensor:
        return torch.from_numpy(parts[rows] == part)[:, None]

    return Splits(mask("train"), mask("val"), mask("test"))


# New nodes for a graph that is known already: their tables are read on top of it.


_MOST_NAMES_SHOWN = 5


def read_extension(edges: str, nodes: str | None, *, original: Graph, options: TableOptions) -> tuple[Graph, Array]:
    """The original graph with new nodes and edges in it, and the numbers of the new nodes.

    New edges may join new nodes to each other and to the original's; they have weights where the original's have. A
    node that the original has already takes its new features.
    """
    if len(original.node_types) > 1:
        raise InputError(
            f"the run's graph has several node types ({', '.join(original.node_types)}), and new nodes can be put only "
            "into a graph of one: give the tables of the whole graph, with the old nodes and edges and the new ones"
        )
    with connect() as connection:
        (edge_table, edge_columns), (node_table, node_columns) = open_tables(connection, edges, nodes, options)
        load_ids(edge_table, edge_columns, node_table=node_table, node_columns=node_columns)
        num_given = len(fetch_node_ids(connection))
        _append_ids(connection, original.external_ids)
        ids = fetch_node_ids(connection)
        rows, source, target = match_edges(
            edge_table, node_table, ignore_unknown=options.ignore_unknown_nodes, can_name_ends=False
        )
        said = read_edges(edge_table, edge_columns, rows=rows)
        check_weights(original.edge_weights is not None, edges, are_there="edge_weights" in said)
        given = None
        if node_table is not None and node_columns is not None:
            part = read_nodes(node_table, node_columns, num_nodes=num_given).arguments
            if len(part["node_types"]) > 1:
                raise InputError(f"{nodes} has several node types, but the run's graph has one")
            given = part["features"][0], part["feature_names"]
    number_of_id = {str(id_): number for number, id_ in enumerate(ids)}
    numbers = np.array([number_of_id[str(id_)] for id_ in original.external_ids])  # (N,) where each old node is now
    is_old = np.zeros(len(ids), dtype=bool)
    is_old[numbers] = True
    wanted = np.arange(num_given) if nodes is not None else np.flatnonzero(~is_old)
    new = Graph.from_edges(source, target, num_nodes=len(ids), directed=options.directed, **said)
    graph = _joined(new, original, numbers=numbers)
    x = _join_features(given, original, numbers=numbers, num_given=num_given, num_nodes=len(ids))
    return replace(graph, ids=ids, features=(x,), feature_names=original.feature_names), wanted


def has_weight_column(edges: str, options: TableOptions) -> bool:
    """Whether a table of edges has weights. One that is gone, or cannot be read any more, has none."""
    try:
        with connect() as connection:
            return choose_edge_columns(open_table(connection, edges), options).weight is not None
    except InputError:
        return False


def check_weights(are_wanted: bool, edges: str, *, are_there: bool) -> None:
    """Edges without weights are not like those that a model was trained on, where these had some."""
    if are_wanted and not are_there:
        raise InputError(
            f"the run was trained with edge weights, but {edges} has no column 'weight': add it, with a 1 "
            "where nothing is known"
        )


def _joined(new: Graph, original: Graph, *, numbers: Array) -> Graph:
    """The original's edges as they are, and those of `new` that it does not have. Types and columns are kept where both
    have them; where only new edges have weights, those of the original are 1."""
    old_source, old_target = (
        torch.from_numpy(numbers)[original.indices.long()],
        torch.from_numpy(numbers)[original.targets],
    )
    size, names, types = new.num_nodes, original.edge_type_names, None
    old_pairs, new_pairs = old_target * size + old_source, new.targets * size + new.indices
    if original.edge_types is not None and new.edge_types is not None:
        names += tuple(name for name in new.edge_type_names if name not in names)
        places = torch.tensor([names.index(name) for name in new.edge_type_names], dtype=torch.int64)
        types = original.edge_types.long(), places[new.edge_types.long()]
        old_pairs, new_pairs = old_pairs * len(names) + types[0], new_pairs * len(names) + types[1]
    is_new = ~torch.isin(new_pairs, old_pairs)
    weights = None
    if new.edge_weights is not None:
        old_weights = torch.ones(original.num_edges) if original.edge_weights is None else original.edge_weights
        weights = torch.cat([old_weights, new.edge_weights[is_new]])
    columns = _columns_of_both(new, original)
    return Graph.from_edges(
        torch.cat([old_source, new.indices.long()[is_new]]),
        torch.cat([old_target, new.targets[is_new]]),
        num_nodes=size,
        directed=True,
        self_loops="keep",
        duplicates="keep",
        edge_types=None if types is None else torch.cat([types[0], types[1][is_new]]),
        edge_type_names=() if types is None else names,
        edge_weights=weights,
        edge_columns=None if columns is None else torch.cat([columns[0], columns[1][is_new]]),
        edge_column_names=() if columns is None else original.edge_column_names,
    )


def _columns_of_both(new: Graph, original: Graph) -> tuple[Tensor, Tensor] | None:
    """The numeric edge columns of the original, and the same ones of the new edges; None where these lack one."""
    names = original.edge_column_names
    if original.edge_columns is None or new.edge_columns is None:
        return None
    if not names or not set(names) <= set(new.edge_column_names):
        return None
    return original.edge_columns, new.edge_columns[:, [new.edge_column_names.index(name) for name in names]]


def _append_ids(connection: DuckDBPyConnection, old_ids: Array) -> None:
    """Add the ids of the original graph that the new tables do not have, in their order."""
    (type_,) = connection.execute("SELECT typeof(id) FROM node_ids LIMIT 1").fetchall()[0]
    if type_ != "VARCHAR" and old_ids.dtype.kind == "U":
        raise InputError(f"the new tables' ids are {type_}, but those of the run's graph are text: cast them to text")
    connection.register("old_ids", {"id": old_ids.astype(object) if old_ids.dtype.kind == "U" else old_ids})
    connection.execute(
        f"INSERT INTO node_ids SELECT CAST(old_ids.id AS {type_}) FROM old_ids "
        f"WHERE CAST(old_ids.id AS {type_}) NOT IN (SELECT id FROM node_ids)"
    )


def _join_features(
    given: tuple[Any, tuple[str, ...] | None] | None, original: Graph, *, numbers: Array, num_given: int, num_nodes: int
) -> Features | None:
    old = original.x
    if old is None:
        return None
    if given is None or given[0] is None:
        raise InputError(
            f"the run was trained on {old.shape[1]} feature columns: give those of the new nodes with --nodes"
        )
    new, names = given
    if original.feature_names and names and set(names) >= set(original.feature_names):
        new = new[:, [names.index(name) for name in original.feature_names]]
    elif original.feature_names and names:
        missing = [repr(name) for name in original.feature_names if name not in names]
        shown = ", ".join(missing[:_MOST_NAMES_SHOWN]) + (", ..." if len(missing) > _MOST_NAMES_SHOWN else "")
        raise InputError(
            f"the run was trained on {old.shape[1]} feature columns, and the new nodes lack {len(missing)} of them "
            f"({shown}): give the same columns"
        )
    elif new.shape[1] != old.shape[1]:
        raise InputError(
            f"the run was trained on {old.shape[1]} feature columns, but the new nodes have {new.shape[1]}: "
            "give the same columns"
        )
    joined = torch.zeros(num_nodes, old.shape[1])
    joined[torch.from_numpy(numbers)] = (old.to_dense() if isinstance(old, SparseMatrix) else old).float()
    joined[:num_given] = new
    return joined
