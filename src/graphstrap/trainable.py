"""Whether a graph can be trained on; if not, one sentence says why."""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.blocks import Block
from graphstrap.errors import InputError
from graphstrap.foreign_graphs import check_is_graph
from graphstrap.graph import Graph
from graphstrap.methods.semi_supervised import training_labels
from graphstrap.scaled import sample_rows

_CHECKED_AT_ONCE = 1 << 26


def check_trainable(graph: Graph) -> None:
    check_is_graph(graph)
    if graph.num_nodes == 0:
        raise InputError("the graph is empty: give a table with at least one node")
    if graph.num_edges == 0:
        raise InputError("the graph has no edges: give at least one edge between two different nodes")
    check_numbers(graph)


def check_numbers(graph: Graph) -> None:
    """Whether features, weights and columns of edges can be computed with."""
    for kind, block in zip(graph.node_types, graph.features, strict=True):
        if block is not None and not _is_finite(block):
            raise InputError(f"a feature of a {kind} is NaN or infinite: replace it by a number")
    weights = [] if graph.edge_weights is None else torch.split(graph.edge_weights, _CHECKED_AT_ONCE)
    if not all(bool((part.isfinite() & (part >= 0)).all()) for part in weights):
        raise InputError("an edge weight is negative, NaN or infinite: weights are numbers from 0 up")
    columns = [] if graph.edge_columns is None else torch.split(graph.edge_columns, _CHECKED_AT_ONCE)
    if not all(bool(part.isfinite().all()) for part in columns):
        raise InputError("a number in an edge column is NaN or infinite: replace it, or leave the column out")


def check_labels(graph: Graph) -> None:
    """Whether there is something to learn labels from."""
    if graph.labels is None or graph.labels.dim() != 1:
        raise InputError("semi-supervised learning needs one label column: name it with --label-column, or take bgrl")
    known = training_labels(graph)
    classes = torch.unique(known[known >= 0])
    if len(classes) < 2:
        raise InputError(
            f"semi-supervised learning needs training nodes of at least two classes, got {int((known >= 0).sum())} of "
            f"{len(classes)}: fill in the label column, and mark training nodes `train` if there is a split column"
        )


def _is_finite(block: Block) -> bool:
    """Whether its numbers are; of a large table, which comes from a store that was checked when it was made, those of
    some rows."""
    values = sample_rows(block)
    return bool((values if isinstance(values, Tensor) else values.values).isfinite().all())
