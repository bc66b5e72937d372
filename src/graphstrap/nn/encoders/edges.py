"""What edges say besides which nodes they join: a row of numbers for each edge, for encoders that can read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.ops.once import once


def edge_inputs(graph: Graph, size: int) -> Tensor | None:
    """(E, size) numbers of each edge: its type, one of which is 1; its weight; its columns. None where an encoder was
    made for edges without any.

    Weights and columns go through asinh: near 0 they stay as they are, and 20,000 becomes 10.6, so that a column of
    large numbers does not drown the rest. No statistics are needed, which a sampled batch would not have.
    """
    if size == 0:
        return None
    found = _table(graph)
    if found.shape[1] != size:
        raise InputError(
            f"the encoder was made for edges of {size} numbers (types, weight, columns), this graph's have "
            f"{found.shape[1]}: give the same edge types and columns"
        )
    return found


@once
def _table(graph: Graph) -> Tensor:
    parts = [torch.zeros(graph.num_edges, 0, device=graph.device)]
    if graph.edge_types is not None:
        parts.append(F.one_hot(graph.edge_types.long(), len(type_names(graph))).float())
    if graph.edge_weights is not None:
        parts.append(graph.edge_weights[:, None].float().asinh())
    if graph.edge_columns is not None:
        parts.append(graph.edge_columns.float().asinh())
    return torch.cat(parts, dim=1)


def type_names(graph: Graph) -> tuple[str, ...]:
    """Of the edges; their numbers where they have no names."""
    if graph.edge_types is None:
        return ()
    if graph.edge_type_names:
        return graph.edge_type_names
    return tuple(map(str, range(int(graph.edge_types.max()) + 1 if len(graph.edge_types) else 0)))


@dataclass(frozen=True)
class KnownEdges:
    """What the edges of a graph said that an encoder was trained on, so that another graph's are read the same way."""

    types: tuple[str, ...] = ()  # their names
    has_weights: bool = False
    columns: tuple[str, ...] = ()  # names of the numeric ones; only their number counts where they have no names
    num_columns: int = 0

    @classmethod
    def of(cls, graph: Graph) -> Self:
        num_columns = 0 if graph.edge_columns is None else int(graph.edge_columns.shape[1])
        return cls(type_names(graph), graph.edge_weights is not None, graph.edge_column_names, num_columns)

    @property
    def size(self) -> int:
        return len(self.types) + self.has_weights + self.num_columns

    def matched(self, graph: Graph) -> Graph:
        """The graph with these types, weights and columns: others are left out, and an edge without a weight has 1."""
        if self == KnownEdges.of(graph) and self.types == graph.edge_type_names:
            return graph
        weights = graph.edge_weights if self.has_weights else None
        if self.has_weights and weights is None:
            weights = torch.ones(graph.num_edges, device=graph.device)
        return replace(
            graph,
            edge_types=self._types_of(graph) if self.types else None,
            edge_type_names=self.types,
            edge_weights=weights,
            edge_columns=self._columns_of(graph) if self.num_columns else None,
            edge_column_names=self.columns,
        )

    def _types_of(self, graph: Graph) -> Tensor:
        if graph.edge_types is None:
            raise InputError(
                f"the model was trained on edges of the types {_listed(self.types)}, this graph's have none: "
                "give a type for every edge"
            )
        names = type_names(graph)
        counts = torch.bincount(graph.edge_types.long().flatten(), minlength=len(names)).tolist()
        unknown = [name for name, count in zip(names, counts, strict=True) if count and name not in self.types]
        if unknown:
            raise InputError(
                f"this graph has edges of the type {unknown[0]!r}, and the model was trained on {_listed(self.types)}: "
                "leave such edges out, or train anew"
            )
        places = [self.types.index(name) if name in self.types else 0 for name in names]
        return torch.tensor(places, device=graph.device)[graph.edge_types.long()].to(graph.edge_types.dtype)

    def _columns_of(self, graph: Graph) -> Tensor:
        found, names = graph.edge_columns, graph.edge_column_names
        if found is not None and self.columns and names:
            missing = [name for name in self.columns if name not in names]
            if not missing:
                return found[:, [names.index(name) for name in self.columns]]
            raise InputError(f"the model was trained with an edge column {missing[0]!r}, this graph has none: give it")
        num_found = 0 if found is None else int(found.shape[1])
        if found is None or num_found != self.num_columns:
            raise InputError(
                f"the model was trained on {self.num_columns} numeric edge columns, this graph has {num_found}: "
                "give the same ones"
            )
        return found

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """From what `dataclasses.asdict` gives, perhaps by way of JSON; a ValueError from anything else."""
        types, columns = tuple(saved["types"]), tuple(saved["columns"])
        has_weights, num_columns = saved["has_weights"], saved["num_columns"]
        if not all(isinstance(name, str) for name in (*types, *columns)) or type(has_weights) is not bool:
            raise ValueError("the names of its edges are none")
        if type(num_columns) is not int or len(columns) not in (0, num_columns):
            raise ValueError("the numbers of edge columns are none")
        return cls(types, has_weights, columns, num_columns)


def _listed(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
