"""Hidden edges: hidden in both directions, found by embeddings that know the graph, not by noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities, make_random_graph
from scipy.sparse import csr_matrix, hstack

from graphstrap.errors import InputError
from graphstrap.evaluation.links import evaluate_links, hide_edges, select_edges, summarise_links
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.graph.many import join_graphs
from same_graph import make_hetero_graph


def pairs_of(graph: Graph) -> set[tuple[int, int]]:
    ends = zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)
    return {(min(a, b), max(a, b)) for a, b in ends}


@pytest.mark.parametrize("directed", [False, True])
def test_hidden_edges_are_gone_and_the_other_pairs_were_never_linked(directed: bool) -> None:
    graph = (
        make_random_graph(num_nodes=300, num_edges=600, seed=0)
        if directed
        else make_communities(num_nodes=120, num_classes=3, seed=0)
    )
    edges = hide_edges(graph, seed=1)
    all_pairs, left = pairs_of(graph), pairs_of(edges.remaining)
    hidden = {tuple(sorted(pair)) for pair in edges.hidden.tolist()}
    assert len(hidden) == len(edges.hidden) == round(0.1 * len(all_pairs))
    assert hidden | left == all_pairs
    assert not hidden & left
    unlinked = {(a, b) for a, b in np.concatenate([edges.unlinked, edges.unseen]).tolist()}
    assert not unlinked & all_pairs
    assert all(a < b for a, b in unlinked)
    assert {tuple(pair) for pair in edges.seen.tolist()} <= left
    assert edges.remaining.is_symmetric == graph.is_symmetric


def test_edges_keep_their_columns() -> None:
    graph = make_random_graph(num_nodes=50, num_edges=200, seed=3, weighted=True)
    keep = torch.arange(graph.num_edges) % 3 > 0
    some = select_edges(graph, keep)
    assert some.edge_weights is not None
    assert graph.edge_weights is not None
    assert torch.equal(some.edge_weights, graph.edge_weights[keep])
    assert torch.equal(some.targets, graph.targets[keep])
    assert torch.equal(some.indices, graph.indices[keep])


def test_the_community_of_a_node_tells_its_links_and_noise_does_not() -> None:
    graph = make_communities(num_nodes=300, num_classes=3, seed=0)
    edges = hide_edges(graph)
    assert graph.labels is not None
    known, _ = evaluate_links(np.eye(3)[graph.labels.numpy()], edges)
    noise, _ = evaluate_links(np.random.default_rng(0).normal(size=(300, 8)), edges)
    assert known > 75
    assert 40 < noise < 60


def test_hits_are_told_where_the_fiftieth_of_the_pairs_is_a_rare_one() -> None:
    few = hide_edges(make_random_graph(num_nodes=300, num_edges=400, seed=0))
    auc, none = evaluate_links(np.random.default_rng(0).normal(size=(300, 8)), few)
    assert none is None
    assert "hits" not in summarise_links([(auc, none)], how="somehow").detail
    many = hide_edges(make_random_graph(num_nodes=3000, num_edges=8000, seed=0))
    assert len(many.unlinked) > 500
    auc, noise = evaluate_links(np.random.default_rng(0).normal(size=(3000, 8)), many)
    assert noise is not None
    assert noise < 20  # 50 of 800 pairs are 6 %
    assert f"hits@50 {noise:.2f}" in summarise_links([(auc, noise)], how="somehow").detail


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_no_pair_is_drawn_twice_and_pairs_without_an_edge_are_counted(share: float) -> None:
    pairs = np.stack(np.triu_indices(40, 1), 1)
    linked = np.random.default_rng(0).permutation(pairs)[: int(share * len(pairs))]
    edges = hide_edges(Graph.from_edges(linked[:, 0], linked[:, 1], num_nodes=40))
    drawn = np.concatenate([edges.unlinked, edges.unseen])
    assert len(np.unique(drawn, axis=0)) == len(drawn) == len(edges.hidden) + len(edges.seen)
    assert not {tuple(pair) for pair in drawn.tolist()} & {tuple(pair) for pair in linked.tolist()}


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(InputError, match="at least 20 edges"):
        hide_edges(Graph.from_edges([0, 1], [1, 2]))
    full = np.array([(a, b) for a in range(12) for b in range(a)])
    with pytest.raises(InputError, match="needs 66 pairs without an edge, the graph has 0"):
        hide_edges(Graph.from_edges(full[:, 0], full[:, 1]))
    edges = hide_edges(make_communities(num_nodes=120, num_classes=3, seed=0))
    with pytest.raises(InputError, match="120 nodes"):
        evaluate_links(np.ones((5, 2)), edges)


def test_sparse_features_are_judged_as_dense_ones() -> None:
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    edges = hide_edges(graph)
    assert isinstance(graph.x, SparseMatrix)
    few = SparseMatrix.from_scipy(
        hstack([graph.x.to_scipy(), csr_matrix((120, 3000))])
    )  # so empty that it stays sparse
    assert evaluate_links(few, edges)[0] == pytest.approx(evaluate_links(graph.x.to_dense(), edges)[0], abs=0.2)


def test_edges_are_taken_out_of_a_graph_that_has_its_transpose_at_hand() -> None:
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    ready = replace(graph, outgoing=graph.transpose)
    remaining = hide_edges(ready, seed=1).remaining
    assert pairs_of(remaining) == pairs_of(hide_edges(graph, seed=1).remaining)
    assert torch.equal(remaining.transpose.indptr, hide_edges(graph, seed=1).remaining.transpose.indptr)


def test_in_several_graphs_pairs_are_within_one() -> None:
    """Edges are random in each graph, so that nothing tells them, its number least of all."""
    graph = join_graphs([make_random_graph(num_nodes=40, num_edges=120, seed=seed) for seed in range(12)])
    edges = hide_edges(graph)
    ids = graph.graph_ids.numpy()
    for pairs in (edges.unlinked, edges.unseen):
        assert (ids[pairs[:, 0]] == ids[pairs[:, 1]]).all()
    assert not {tuple(pair) for pair in edges.unlinked.tolist()} & pairs_of(graph)
    auc, _ = evaluate_links(np.eye(12)[ids], edges)
    assert 40 < auc < 60


def test_in_a_graph_of_several_types_pairs_are_of_the_types_of_edges() -> None:
    graph = make_hetero_graph(seed=0)
    edges, starts = hide_edges(graph), np.array(graph.type_offsets)

    def kinds(pairs: np.ndarray[Any, Any]) -> set[tuple[int, ...]]:
        return {tuple(pair) for pair in (np.searchsorted(starts, pairs, side="right") - 1).tolist()}

    assert kinds(edges.unlinked) <= kinds(np.concatenate([edges.hidden, edges.seen]))
    users, items = np.divmod(np.arange(32), 8)
    types: dict[str, Any] = {"type_offsets": (0, 4, 12), "node_types": ("user", "item"), "features": (None, None)}
    with pytest.raises(InputError, match="of the types"):
        hide_edges(Graph.from_edges(users, 4 + items, num_nodes=12, **types))


def test_edges_from_a_node_to_itself_are_not_hidden() -> None:
    ring = np.arange(40)
    graph = Graph.from_edges(np.r_[ring, ring], np.r_[ring, (ring + 1) % 40], self_loops="keep")
    edges = hide_edges(graph, share=0.5)
    assert (edges.hidden[:, 0] != edges.hidden[:, 1]).all()
    assert {(node, node) for node in range(40)} <= pairs_of(edges.remaining)
