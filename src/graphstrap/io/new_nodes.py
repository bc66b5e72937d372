"""New nodes for a graph that is known already: their tables are read on top of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import dense
from graphstrap.io.arrays import Array
from graphstrap.io.columns import TableOptions, choose_edge_columns, open_tables
from graphstrap.io.database import connect, open_table
from graphstrap.io.ids import fetch_node_ids, load_ids, match_edges
from graphstrap.io.tables import read_edges, read_nodes

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
        edge_columns, node_columns = open_tables(connection, edges, nodes, options)
        load_ids(edge_columns, node_columns)
        num_given = len(fetch_node_ids(connection))
        _append_ids(connection, original.external_ids)
        ids = fetch_node_ids(connection)
        rows, source, target = match_edges(
            edge_columns, node_columns, ignore_unknown=options.ignore_unknown_nodes, can_name_ends=False
        )
        edge_fields = read_edges(edge_columns, rows=rows)
        check_weights(original.edge_weights is not None, edges, are_there="edge_weights" in edge_fields)
        node_fields: dict[str, Any] = {}
        if node_columns is not None:
            node_fields = read_nodes(node_columns, num_nodes=num_given).fields
            if len(node_fields["node_types"]) > 1:
                raise InputError(f"{nodes} has several node types, but the run's graph has one")
    number_of_id = {str(id_): number for number, id_ in enumerate(ids)}
    numbers = np.array([number_of_id[str(id_)] for id_ in original.external_ids])  # (N,) where each old node is now
    new = Graph.from_edges(source, target, num_nodes=len(ids), directed=options.directed, **edge_fields)
    x = None
    if original.x is not None:
        x = torch.zeros(len(ids), original.x.shape[1])
        x[torch.from_numpy(numbers)] = dense(original.x).float()
        x[:num_given] = _features_as_in(original, node_fields)
    is_old = np.zeros(len(ids), dtype=bool)
    is_old[numbers] = True
    wanted = np.arange(num_given) if nodes is not None else np.flatnonzero(~is_old)
    graph = _joined(new, original, numbers=torch.from_numpy(numbers))
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


def _features_as_in(original: Graph, new: dict[str, Any]) -> Tensor:
    """The features of the nodes table, in the columns that the original graph has."""
    x, names = new["features"][0] if new else None, new.get("feature_names")
    wanted, num_columns = original.feature_names, original.num_features[0]
    trained_on = f"the run was trained on {num_columns} feature columns"
    if x is None:
        raise InputError(f"{trained_on}: give those of the new nodes with --nodes")
    if wanted and names:
        missing = [repr(name) for name in wanted if name not in names]
        if missing:
            shown = ", ".join(missing[:_MOST_NAMES_SHOWN]) + (", ..." if len(missing) > _MOST_NAMES_SHOWN else "")
            raise InputError(
                f"{trained_on}, and the new nodes lack {len(missing)} of them ({shown}): give the same columns"
            )
        x = x[:, [names.index(name) for name in wanted]]
    elif x.shape[1] != num_columns:
        raise InputError(f"{trained_on}, but the new nodes have {x.shape[1]}: give the same columns")
    result: Tensor = x
    return result


def _joined(new: Graph, original: Graph, *, numbers: Tensor) -> Graph:
    """The original's edges as they are, and those of `new` that it does not have. Types and columns are kept where both
    have them; where only new edges have weights, those of the original are 1."""
    size, both, names = new.num_nodes, dict[str, tuple[Tensor, Tensor]](), dict[str, tuple[str, ...]]()
    both["source"] = numbers[original.indices.long()], new.indices.long()
    both["target"] = numbers[original.targets], new.targets
    old_keys, new_keys = (both["target"][i] * size + both["source"][i] for i in (0, 1))
    if original.edge_types is not None and new.edge_types is not None:
        type_names = tuple(dict.fromkeys([*original.edge_type_names, *new.edge_type_names]))
        places = torch.tensor([type_names.index(name) for name in new.edge_type_names], dtype=torch.int64)
        both["edge_types"] = old_types, new_types = original.edge_types.long(), places[new.edge_types.long()]
        old_keys, new_keys = old_keys * len(type_names) + old_types, new_keys * len(type_names) + new_types
        names["edge_type_names"] = type_names
    if new.edge_weights is not None:
        old_weights = torch.ones(original.num_edges) if original.edge_weights is None else original.edge_weights
        both["edge_weights"] = old_weights, new.edge_weights
    wanted = original.edge_column_names
    has_same_columns = bool(wanted) and set(wanted) <= set(new.edge_column_names)
    if original.edge_columns is not None and new.edge_columns is not None and has_same_columns:
        columns = [new.edge_column_names.index(name) for name in wanted]
        both["edge_columns"] = original.edge_columns, new.edge_columns[:, columns]
        names["edge_column_names"] = wanted
    is_new = ~torch.isin(new_keys, old_keys)
    joined: dict[str, Any] = {key: torch.cat([old, of_new[is_new]]) for key, (old, of_new) in both.items()}
    return Graph.from_edges(**joined, **names, num_nodes=size, directed=True, self_loops="keep", duplicates="keep")
