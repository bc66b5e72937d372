"""The transpose in ranges is the transpose; means in pieces are the means."""

from __future__ import annotations

import torch
from conftest import make_random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstrap.graph.blocks import QuantisedMatrix
from graphstrap.graph.csr import count_columns, neighbour_means, transposed_ranges


@given(seed=st.integers(0, 10**6), num_nodes=st.integers(1, 60), max_edges=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_in_ranges_it_is_the_transpose(seed: int, num_nodes: int, max_edges: int) -> None:
    graph = make_random_graph(num_nodes=num_nodes, num_edges=4 * num_nodes, seed=seed)
    ranges = list(transposed_ranges(graph.indptr, graph.indices, num_columns=num_nodes, max_edges=max_edges))
    back = graph.transpose
    assert [one.begin for one in ranges] == [0, *(one.end for one in ranges[:-1])]
    assert ranges[-1].end == num_nodes
    assert torch.equal(torch.cat([one.counts for one in ranges]), back.indptr.diff())
    assert torch.equal(torch.cat([one.rows for one in ranges]).int(), back.indices)
    assert torch.equal(torch.cat([one.positions for one in ranges]), back.edge_positions)
    assert torch.equal(count_columns(graph.indices, num_nodes), back.indptr.diff())
    largest = int(back.indptr.diff().max())
    assert all(len(one.rows) <= max(max_edges, largest) for one in ranges)


@given(seed=st.integers(0, 10**6), max_edges=st.integers(1, 60), quantised=st.booleans())
@settings(max_examples=60, deadline=None)
def test_means_of_neighbours_that_have_features(seed: int, max_edges: int, quantised: bool) -> None:
    num_nodes, first, last = 40, 10, 30
    graph = make_random_graph(num_nodes=num_nodes, num_edges=160, seed=seed)
    x = torch.rand(last - first, 3, generator=torch.Generator().manual_seed(seed))
    block = QuantisedMatrix.from_dense(x) if quantised else x
    x = block.to_dense() if isinstance(block, QuantisedMatrix) else block
    directions = [(graph.indptr, graph.indices), (graph.transpose.indptr, graph.transpose.indices)]
    means = torch.cat(list(neighbour_means(directions, block, rows=(3, 37), first=first, max_edges=max_edges)))
    for node in range(3, 37):
        ends = torch.cat([indices[indptr[node] : indptr[node + 1]] for indptr, indices in directions]).long()
        ends = ends[(ends >= first) & (ends < last)] - first
        wanted = x[ends].mean(0) if len(ends) else torch.zeros(3)
        torch.testing.assert_close(means[node - 3], wanted)
