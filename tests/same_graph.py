"""Graphs that have everything, and what it means that one survived a way there and back."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch

from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import Block, SparseMatrix

EDGE_FIELDS = ("edge_types", "edge_weights", "edge_times", "edge_columns")
NAME_FIELDS = (
    "class_names",
    "feature_names",
    "edge_type_names",
    "edge_column_names",
    "node_types",
    "type_offsets",
    "graph_offsets",
    "name",
)


def make_full_graph(*, seed: int, num_nodes: int = 30, directed: bool = True) -> Graph:
    """One node type and every optional field."""
    random = np.random.default_rng(seed)
    source, target = random.integers(0, num_nodes, (2, 4 * num_nodes))
    source[:2], target[:2] = [3, 5], [5, 3]  # a pair of opposite edges that differ
    words = random.random((num_nodes, 7)) * (random.random((num_nodes, 7)) < 0.4)
    masks = random.integers(0, 3, (num_nodes, 4))
    return Graph.from_edges(
        source,
        target,
        num_nodes=num_nodes,
        directed=directed,
        x=scipy.sparse.csr_matrix(words.astype(np.float32)),
        feature_names=tuple(f"word {column}" for column in range(7)),
        labels=random.integers(-1, 3, num_nodes),
        class_names=("red", "green", "blue"),
        splits=Splits(*(torch.from_numpy(masks == part) for part in range(3))),
        node_times=torch.from_numpy(random.integers(1990, 2020, num_nodes)),
        edge_types=random.integers(0, 2, len(source)),
        edge_type_names=("cites", "answers"),
        edge_weights=random.random(len(source), dtype=np.float32),
        edge_times=torch.from_numpy(random.integers(0, 100, len(source))),
        edge_columns=random.random((len(source), 2), dtype=np.float32),
        edge_column_names=("length", "width"),
        ids=np.array([f"n{number:03d}" for number in random.permutation(num_nodes)]),
        name="full",
    )


def make_hetero_graph(*, seed: int) -> Graph:
    """Three node types: one with sparse and one with dense features, one with none; reverse edge types."""
    random = np.random.default_rng(seed)
    offsets = (0, 12, 20, 25)
    written = random.integers(12, 20, 30), random.integers(0, 12, 30)
    cited = random.integers(0, 12, (2, 20))
    topics = random.integers(0, 12, 15), random.integers(20, 25, 15)
    labels = np.full(25, -1)
    labels[:12] = random.integers(-1, 3, 12)
    parts = np.where(np.arange(25)[:, None] < 12, random.integers(0, 3, (25, 2)), -1)
    return Graph.from_edges(
        np.concatenate([written[0], cited[0], topics[0]]),
        np.concatenate([written[1], cited[1], topics[1]]),
        num_nodes=25,
        edge_types=np.repeat([0, 1, 2], [30, 20, 15]),
        edge_type_names=("author|writes|paper", "paper|cites|paper", "paper|has|topic"),
        edge_weights=random.random(65, dtype=np.float32),
        features=(
            SparseMatrix.from_scipy(scipy.sparse.csr_matrix(np.eye(12, 5, dtype=np.float32))),
            torch.from_numpy(random.random((8, 3), dtype=np.float32)),
            None,
        ),
        type_offsets=offsets,
        node_types=("paper", "author", "topic"),
        labels=labels,
        splits=Splits(*(torch.from_numpy(parts == part) for part in range(3))),
        ids=np.array([f"{kind}{number}" for kind, count in (("p", 12), ("a", 8), ("t", 5)) for number in range(count)]),
        name="hetero",
    )


def assert_same_graph(actual: Graph, expected: Graph, *, same_layout: bool = True) -> None:
    """Every field is the same; without `same_layout`, sparse features may have become dense."""
    assert torch.equal(actual.indptr, expected.indptr)
    assert torch.equal(actual.indices, expected.indices)
    for name in NAME_FIELDS:
        assert getattr(actual, name) == getattr(expected, name), name
    for name in (*EDGE_FIELDS, "labels", "node_times"):
        assert_same_tensor(name, getattr(actual, name), getattr(expected, name))
    assert (actual.ids is None) == (expected.ids is None)
    assert expected.ids is None or np.array_equal(actual.external_ids, expected.ids)
    _assert_same_splits(actual.splits, expected.splits)
    for block, other in zip(actual.features, expected.features, strict=True):
        assert not same_layout or type(block) is type(other)
        assert_same_tensor("features", _dense(block), _dense(other))


def assert_same_data(actual: Graph, expected: Graph) -> None:
    """Name, edges, features, labels and splits are the same."""
    assert actual.name == expected.name
    assert actual.fingerprint == expected.fingerprint
    assert_same_tensor("labels", actual.labels, expected.labels)
    _assert_same_splits(actual.splits, expected.splits)


def assert_same_tensor(name: str, actual: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert (actual is None) == (expected is None), name
    if actual is not None and expected is not None:
        assert actual.dtype == expected.dtype, name
        assert torch.equal(actual, expected), name


def _assert_same_splits(actual: Splits | None, expected: Splits | None) -> None:
    assert (actual is None) == (expected is None)
    if actual is not None and expected is not None:
        for part in ("train", "val", "test"):
            assert_same_tensor(part, getattr(actual, part), getattr(expected, part))


def _dense(block: Block | None) -> torch.Tensor | None:
    return block if block is None or isinstance(block, torch.Tensor) else block.to_dense()
