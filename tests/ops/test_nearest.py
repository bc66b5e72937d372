"""Nearest neighbours: exact ones are those of a full sort, ties by the smaller number; the fast ones miss few."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from graphstrap.api.neighbors import find_neighbors
from graphstrap.ops import nearest
from graphstrap.ops.nearest import nearest_nodes, recall, search, unit_rows


@pytest.mark.parametrize("block_entries", [2**21, 7 * 50])
@pytest.mark.parametrize("k", [1, 6, 49])
def test_of_equally_similar_rows_the_smaller_number_comes_first(
    k: int, block_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "_BLOCK_ENTRIES", block_entries)
    h = torch.from_numpy(np.eye(4)[np.random.default_rng(0).integers(4, size=50)])  # cosines are 0 or 1
    cosines = (h @ h.T).numpy()
    np.fill_diagonal(cosines, -2.0)
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    nodes, similarities = search(h, h, k=k, own=torch.arange(50))
    np.testing.assert_array_equal(nodes, expected)
    np.testing.assert_array_equal(similarities, np.take_along_axis(cosines, expected, 1))


def test_sparse_rows_and_other_queries_give_what_dense_rows_give() -> None:
    random = np.random.default_rng(4)
    queries, known = random.integers(2, size=(20, 9)).astype(float), random.integers(2, size=(30, 9)).astype(float)
    dense = search(torch.from_numpy(queries), torch.from_numpy(known), k=5)
    sparse = search(scipy.sparse.csr_matrix(queries), scipy.sparse.csr_matrix(known), k=5)
    assert torch.equal(dense[0], sparse[0])
    assert torch.equal(dense[1], sparse[1])
    assert torch.equal(search(torch.from_numpy(queries), torch.from_numpy(known), k=5, order_ties=False)[1], dense[1])
    assert search(torch.zeros(0, 9), torch.from_numpy(known), k=5)[0].shape == (0, 5)


def test_exact_ones_are_those_that_neighbors_lists() -> None:
    h = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    found = nearest_nodes(h, k=7)
    assert found.is_exact
    for node in range(60):
        expected = find_neighbors(h, node, k=7)
        assert found.nodes[node].tolist() == [other for other, _ in expected]
        assert found.similarities[node] == pytest.approx([value for _, value in expected], abs=1e-5)


def test_cells_find_nearly_all() -> None:
    random = np.random.default_rng(1)
    h = random.normal(size=(30, 16))[random.integers(30, size=4000)] + 0.5 * random.normal(size=(4000, 16))
    found = nearest_nodes(h, k=10, exact_nodes=1000)
    assert not found.is_exact
    assert (found.nodes != np.arange(4000)[:, None]).all()
    assert (np.diff(found.similarities, axis=1) <= 0).all()
    assert all(len(set(row)) == 10 for row in found.nodes.tolist())
    assert found.recall == recall(found.nodes, unit_rows(h)) > 0.95


def test_what_is_said_to_be_found_is_what_a_full_search_finds() -> None:
    """The sample that recall is measured on must not be the nodes that cells were grown around."""
    h = np.random.default_rng(2).normal(size=(3000, 24))
    fast, exact = nearest_nodes(h, k=10, exact_nodes=1000), nearest_nodes(h, k=10)
    found = np.mean([len({*a} & {*b}) / 10 for a, b in zip(fast.nodes.tolist(), exact.nodes.tolist(), strict=True)])
    assert fast.recall == pytest.approx(found, abs=0.03)
    same = fast.nodes == exact.nodes
    assert fast.similarities[same] == pytest.approx(exact.similarities[same], abs=1e-5)


def test_nodes_that_are_all_alike_are_not_all_compared() -> None:
    found = nearest_nodes(np.ones((20_000, 2)), k=3, exact_nodes=1000)
    assert found.similarities == pytest.approx(1.0)
    assert (found.nodes != np.arange(20_000)[:, None]).all()


def test_small_and_degenerate_graphs() -> None:
    assert nearest_nodes(np.ones((1, 3)), k=10).nodes.shape == (1, 0)
    assert nearest_nodes(np.ones((4, 3)), k=10).nodes.shape == (4, 3)
    same = nearest_nodes(np.zeros((500, 3)), k=10, exact_nodes=100)
    assert (same.nodes != np.arange(500)[:, None]).all()
