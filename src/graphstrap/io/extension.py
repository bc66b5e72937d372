"""New nodes for a graph that is known already: their tables are read on top of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.blocks import Features
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io._columns import choose_edge_columns
from graphstrap.io._database import connect
from graphstrap.io._files import open_table
from graphstrap.io._ids import fetch_node_ids, match_edges
from graphstrap.io._values import Array
from graphstrap.io.tables import TableOptions, load_ids, open_tables, read_edges, read_nodes
from graphstrap.sparse import SparseMatrix

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
