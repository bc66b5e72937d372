from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.scipy import from_scipy, to_scipy


def make_matrix(*, seed: int, num_nodes: int = 20) -> scipy.sparse.csr_array:
    random = np.random.default_rng(seed)
    dense = random.random((num_nodes, num_nodes)) * (random.random((num_nodes, num_nodes)) < 0.2)
    np.fill_diagonal(dense, 0)
    return scipy.sparse.csr_array(dense.astype(np.float32))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil"])
def test_a_matrix_survives_the_way_there_and_back(seed: int, layout: str) -> None:
    matrix = make_matrix(seed=seed)
    assert (to_scipy(from_scipy(matrix.asformat(layout))) != matrix).nnz == 0


def test_a_graph_survives_the_way_there_and_back() -> None:
    random = np.random.default_rng(0)
    x, labels = scipy.sparse.random_array((9, 4), density=0.5, rng=random), random.integers(-1, 2, 9)
    graph = Graph.from_edges(*random.integers(0, 9, (2, 30)), num_nodes=9, directed=True, x=x, labels=labels)
    back = from_scipy(to_scipy(graph), x=x, labels=labels)
    assert back.fingerprint == graph.fingerprint
    assert back.edge_weights is None
    assert back.labels is not None
    assert torch.equal(back.labels, torch.from_numpy(labels))


def test_row_is_the_source_and_column_the_target() -> None:
    graph = from_scipy(scipy.sparse.csr_array(([5.0], ([0], [2])), shape=(3, 3)))
    assert graph.indices.tolist() == [0]
    assert graph.targets.tolist() == [2]
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [5.0]


def test_undirected_adds_the_reverse_of_every_edge() -> None:
    assert from_scipy(make_matrix(seed=1), directed=False).is_symmetric


def test_ones_are_no_weights_unless_asked_for() -> None:
    ones = make_matrix(seed=2).astype(bool)
    assert from_scipy(ones).edge_weights is None
    assert from_scipy(ones, weighted=True).edge_weights is not None
    assert from_scipy(make_matrix(seed=2), weighted=False).edge_weights is None


def test_entries_given_twice_add_up_and_the_matrix_is_left_alone() -> None:
    matrix = scipy.sparse.csr_matrix((np.array([1.0, 1.0]), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 2))
    words = scipy.sparse.csr_matrix((np.array([1.0, 1.0]), np.array([1, 0]), np.array([0, 2, 2])), shape=(2, 2))
    graph = from_scipy(matrix, x=words)
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [2.0]
    assert matrix.nnz == 2
    assert words.indices.tolist() == [1, 0]


def test_self_loops_are_dropped_or_kept() -> None:
    loops = scipy.sparse.eye_array(4)
    assert from_scipy(loops).num_edges == 0
    assert (to_scipy(from_scipy(loops, self_loops="keep")) != loops).nnz == 0


@pytest.mark.parametrize(
    ("matrix", "complaint"),
    [
        (np.ones((2, 3)), "square"),
        (scipy.sparse.csr_array(np.ones((2, 2), dtype=np.complex64)), "complex64"),
    ],
)
def test_what_is_no_adjacency_is_refused(matrix: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        from_scipy(matrix)
