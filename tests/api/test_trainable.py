"""Graphs that cannot be trained on are refused, each with its own sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphstrap.api.fitting import check_labels, check_trainable
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import QuantisedMatrix, ScaledMatrix


def test_a_graph_needs_nodes_and_edges() -> None:
    with pytest.raises(InputError, match="empty"):
        check_trainable(Graph.from_edges([], [], num_nodes=0))
    with pytest.raises(InputError, match="no edges"):
        check_trainable(Graph.from_edges([], [], num_nodes=3, x=torch.ones(3, 2)))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_every_number_is_finite(communities: Graph, bad: float) -> None:
    check_trainable(communities)
    x = torch.ones(communities.num_nodes, 3)
    x[7, 1] = bad
    codes = torch.zeros(communities.num_nodes, 3, dtype=torch.uint8)
    for block in (x, ScaledMatrix(x, "none"), QuantisedMatrix(codes, x[7], torch.zeros(3))):
        with pytest.raises(InputError, match="a feature of a node is NaN or infinite"):
            check_trainable(communities.with_features(block))
    for weight in (bad, -1.0):
        weights = torch.ones(communities.num_edges)
        weights[3] = weight
        with pytest.raises(InputError, match="an edge weight is negative, NaN or infinite"):
            check_trainable(replace(communities, edge_weights=weights))


def test_labels_to_learn_from_are_of_two_classes_at_least(communities: Graph) -> None:
    check_labels(communities)
    with pytest.raises(InputError, match="one label column"):
        check_labels(replace(communities, labels=None))
    with pytest.raises(InputError, match="at least two classes, got 120 of 1"):
        check_labels(replace(communities, labels=torch.zeros(120, dtype=torch.int64)))
