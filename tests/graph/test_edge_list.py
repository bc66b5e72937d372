"""Edges on their way in: sorting is stable, merging adds weights, reversing keeps columns."""

from __future__ import annotations

import pytest

from graphstrap.graph.edge_list import Cleaning, EdgeList, as_integers, count_nodes


def make_edges(source: list[int], target: list[int], weights: list[float]) -> EdgeList:
    return EdgeList.of(source, target, types=None, weights=weights, times=None, columns=None)


def test_sorted_merged_and_reversed() -> None:
    given = make_edges([2, 0, 2], [1, 1, 1], [1.0, 2.0, 3.0])
    edges = given.sorted(3)
    assert edges.source.tolist() == [0, 2, 2]
    merged = edges.merged()
    assert merged.weights is not None
    assert merged.weights.tolist() == [2.0, 4.0]
    both = merged.with_reverse(0)
    assert list(zip(both.source.tolist(), both.target.tolist(), strict=True)) == [(0, 1), (2, 1), (1, 0), (1, 2)]
    assert both.is_reverse.tolist() == [False, False, True, True]
    at_once = given.with_reverse(0).sorted(3).merged()
    assert at_once.weights is not None
    assert at_once.weights.tolist() == [2.0, 2.0, 4.0, 4.0]  # into 0, 1, 1 and 2


def test_an_edge_that_was_given_wins_over_the_reverse_of_another() -> None:
    both_ways = make_edges([0, 1, 1], [1, 0, 0], [1.0, 10.0, 100.0]).with_reverse(0).sorted(2).merged()
    assert both_ways.weights is not None
    assert list(zip(both_ways.source.tolist(), both_ways.weights.tolist(), strict=True)) == [(1, 110.0), (0, 1.0)]
    assert not both_ways.is_reverse.any()


def test_nodes_are_counted_from_edges_and_rows() -> None:
    edges = make_edges([0], [4], [1.0])
    assert count_nodes(edges, None, num_rows=3) == 5
    assert count_nodes(edges, None, num_rows=9) == 9
    with pytest.raises(ValueError, match="names node 4"):
        count_nodes(edges, 4, num_rows=0)


def test_cleaning_speaks() -> None:
    assert (
        str(Cleaning(10, 1, 2, 3)) == "10 edges given; 1 self-loop dropped, 3 reverse edges added, 2 duplicates merged"
    )
    assert str(Cleaning(7).with_ids(num_unknown=3)) == "10 edges given; 3 that name an unknown node dropped"
    assert "note: 2,000 ids are in both" in str(Cleaning(7, num_ids_in_both=2000))
    assert as_integers("source", []).tolist() == []
