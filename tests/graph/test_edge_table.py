"""Edges on their way in: sorting is stable, merging adds weights, reversing keeps columns."""

from __future__ import annotations

import pytest
import torch

from graphstrap.graph.edge_table import Cleaning, EdgeTable, as_integers, count_nodes


def make_table(source: list[int], target: list[int], weights: list[float]) -> EdgeTable:
    return EdgeTable(torch.tensor(source), torch.tensor(target), None, torch.tensor(weights), None, None)


def test_sorted_merged_and_reversed() -> None:
    table = make_table([2, 0, 2], [1, 1, 1], [1.0, 2.0, 3.0]).sorted(3)
    assert table.source.tolist() == [0, 2, 2]
    merged = table.merged(3)
    assert merged.weights is not None
    assert merged.weights.tolist() == [2.0, 4.0]
    firsts = table.firsts(3)
    assert firsts.weights is not None
    assert firsts.weights.tolist() == [2.0, 1.0]
    both, _ = merged.with_reverse(())
    assert list(zip(both.source.tolist(), both.target.tolist(), strict=True)) == [(0, 1), (2, 1), (1, 0), (1, 2)]


def test_nodes_are_counted_from_edges_and_rows() -> None:
    table = make_table([0], [4], [1.0])
    assert count_nodes(table, None, num_rows=3) == 5
    assert count_nodes(table, None, num_rows=9) == 9
    with pytest.raises(ValueError, match="names node 4"):
        count_nodes(table, 4, num_rows=0)


def test_cleaning_speaks() -> None:
    assert (
        str(Cleaning(10, 1, 2, 3)) == "10 edges given; 1 self-loop dropped, 3 reverse edges added, 2 duplicates merged"
    )
    assert str(Cleaning(7).with_unknown(3)) == "10 edges given; 3 that name an unknown node dropped"
    assert "note: 2,000 ids are in both" in str(Cleaning(7, num_ids_in_both=2000))
    assert as_integers("source", []).tolist() == []
