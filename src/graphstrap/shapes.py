"""Whether the columns of a graph fit together: shapes only, cheap enough for every batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from itertools import pairwise

from graphstrap.blocks import Block


def check_types(
    type_offsets: tuple[int, ...], names: Sequence[str], features: Sequence[Block | None], *, num_nodes: int
) -> None:
    """Node types cover all nodes, and each has a feature block with a row for each of its nodes, or none."""
    if type_offsets[0] != 0 or type_offsets[-1] != num_nodes:
        raise ValueError(f"type_offsets must run from 0 to {num_nodes}, got {type_offsets}")
    if not len(features) == len(names) == len(type_offsets) - 1:
        raise ValueError(f"{len(type_offsets) - 1} node types need as many feature blocks and names")
    for name, block, (first, last) in zip(names, features, pairwise(type_offsets), strict=True):
        if block is not None and block.shape[0] != last - first:
            raise ValueError(f"{name} has {last - first} nodes but {block.shape[0]} feature rows")


def check_graphs(graph_offsets: tuple[int, ...], *, num_types: int, num_nodes: int) -> None:
    """Several graphs in one cover all nodes, which are of one type."""
    if graph_offsets[0] != 0 or graph_offsets[-1] != num_nodes or any(a > b for a, b in pairwise(graph_offsets)):
        raise ValueError(f"graph_offsets must rise from 0 to {num_nodes}, got {graph_offsets}")
    if len(graph_offsets) > 2 and num_types > 1:
        raise ValueError(f"several graphs in one must be of one node type, got {num_types}")


def check_lengths(columns: Mapping[str, Sized | None], number: int, what: str) -> None:
    """Every column that is there has an entry for each node, or for each edge."""
    for name, column in columns.items():
        if column is not None and len(column) != number:
            raise ValueError(f"{name} must have one entry for each of the {number} {what}, got {len(column)}")
