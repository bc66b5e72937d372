"""Nearest neighbours by cosine, found by external id."""

from __future__ import annotations

import numpy as np
import pytest

from graphstrap.api.neighbors import find_neighbors, find_node
from graphstrap.errors import InputError
from graphstrap.graph import Graph


def test_neighbours_equal_a_full_sort() -> None:
    h = np.random.default_rng(0).normal(size=(60, 5))
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    similarity = unit @ unit[7]
    order = [i for i in np.argsort(-similarity) if i != 7][:10]
    found = find_neighbors(h, 7, k=10)
    assert [i for i, _ in found] == order
    np.testing.assert_allclose([s for _, s in found], similarity[order], rtol=1e-6)


def test_no_more_neighbours_than_nodes() -> None:
    assert len(find_neighbors(np.eye(3), 0, k=10)) == 2
    assert find_neighbors(np.ones((1, 2)), 0, k=3) == []


def test_nodes_are_found_by_id_and_misspelt_ones_named() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], ids=np.array(["alpha", "beta", "gamma"]))
    assert find_node(graph, "beta") == 1
    assert find_node(Graph.from_edges([0], [1], ids=np.array([10, 20])), "20") == 1
    with pytest.raises(InputError, match="did you mean 'alpha'"):
        find_node(graph, "alfa")


@pytest.mark.parametrize("text", ["ACC-7", "acc-00007", "ACC-0007", "ACC -7 "])
def test_zeros_capitals_and_spaces_are_what_people_leave_out(text: str) -> None:
    ids = np.array([f"ACC-{number:05d}" for number in [70, 2997, 7, 700, 77, 100]])
    with pytest.raises(InputError, match="did you mean 'ACC-00007'"):
        find_node(Graph.from_edges([0], [1], num_nodes=len(ids), ids=ids), text)


def test_zeros_within_a_number_count() -> None:
    graph = Graph.from_edges([0], [1], ids=np.array(["a-107", "a-1007"]))
    with pytest.raises(InputError, match="did you mean 'a-1007'"):
        find_node(graph, "a-01007")
