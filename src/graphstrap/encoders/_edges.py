"""What edges say besides which nodes they join: a row of numbers for each edge, for encoders that can read it."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph

_inputs: WeakKeyDictionary[Graph, Tensor] = WeakKeyDictionary()


def edge_size(graph: Graph) -> int:
    """How many numbers each edge has: its type, one of which is 1; its weight; its columns."""
    num_columns = 0 if graph.edge_columns is None else int(graph.edge_columns.shape[1])
    return _num_types(graph) + (graph.edge_weights is not None) + num_columns


def edge_inputs(graph: Graph, size: int) -> Tensor | None:
    """(E, size) those numbers; None where an encoder was made for edges without any.

    Weights and columns go through asinh: near 0 they stay as they are, and 20,000 becomes 10.6, so that a column of
    large numbers does not drown the rest. No statistics are needed, which a sampled batch would not have.
    """
    if size == 0:
        return None
    if graph not in _inputs:
        _inputs[graph] = _table(graph)
    found = _inputs[graph]
    if found.shape[1] != size:
        raise InputError(
            f"the encoder was made for edges of {size} numbers (types, weight, columns), this graph's have "
            f"{found.shape[1]}: give the same edge types and columns"
        )
    return found


def _table(graph: Graph) -> Tensor:
    parts = [torch.zeros(graph.num_edges, 0, device=graph.device)]
    if graph.edge_types is not None:
        parts.append(F.one_hot(graph.edge_types.long(), _num_types(graph)).float())
    if graph.edge_weights is not None:
        parts.append(graph.edge_weights[:, None].float().asinh())
    if graph.edge_columns is not None:
        parts.append(graph.edge_columns.float().asinh())
    return torch.cat(parts, dim=1)


def type_names(graph: Graph) -> tuple[str, ...]:
    """Of the edges; their numbers where they have no names."""
    if graph.edge_types is None:
        return ()
    return graph.edge_type_names or tuple(
        str(kind) for kind in range(int(graph.edge_types.max()) + 1 if len(graph.edge_types) else 0)
    )


def _num_types(graph: Graph) -> int:
    return len(type_names(graph))
