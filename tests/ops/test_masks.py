"""What views keep: rates, directions, columns and elements, batches, and that nothing is mutated."""

from __future__ import annotations

import pytest
import torch
from conftest import draw_views, make_random_graph

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.ops._torch import kept_columns, kept_edges, kept_elements


def symmetric_graph() -> Graph:
    directed = make_random_graph(num_nodes=200, num_edges=3000, seed=0)
    return Graph.from_edges(directed.indices, directed.targets, num_nodes=200)


def test_edges_drop_at_their_rate_and_the_graph_is_untouched() -> None:
    graph = symmetric_graph()
    before = graph.fingerprint, graph.indices.clone()
    kept = kept_edges(graph, View(ViewSpec(edge_drop_prob=0.3), 1))
    assert kept is not None
    bound = 5 * (0.3 * 0.7 / graph.num_edges) ** 0.5
    assert abs(float(kept.float().mean()) - 0.7) < bound
    assert torch.equal(graph.indices, before[1])
    assert symmetric_graph().fingerprint == before[0]
    assert kept_edges(graph, CLEAN) is None


@pytest.mark.parametrize("together", [False, True])
def test_directions_are_dropped_apart_or_together(together: bool) -> None:
    graph = symmetric_graph()
    kept = kept_edges(graph, View(ViewSpec(edge_drop_prob=0.5, drop_directions_together=together), 1))
    assert kept is not None
    pairs = dict(zip(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True), kept.tolist(), strict=True))
    agree = sum(pairs[s, t] == pairs[t, s] for s, t in pairs) / len(pairs)
    assert agree == 1.0 if together else 0.4 < agree < 0.6


def test_a_batch_keeps_the_same_edges_as_the_whole_graph() -> None:
    """Edges are known by their global ids, so a subgraph sees the same view."""
    graph = symmetric_graph()
    view = View(ViewSpec(edge_drop_prob=0.5), 77)
    some = torch.arange(0, graph.num_edges, 3)
    batch = Graph(
        indptr=torch.cat(
            [torch.zeros(1, dtype=torch.long), torch.bincount(graph.targets[some], minlength=200).cumsum(0)]
        ),
        indices=graph.indices[some],
        edge_ids=some,
        node_ids=torch.arange(200),
    )
    whole, part = kept_edges(graph, view), kept_edges(batch, view)
    assert whole is not None
    assert part is not None
    assert torch.equal(whole[some], part)


def test_columns_and_elements_are_masked_at_their_rate() -> None:
    columns = kept_columns(
        View(ViewSpec(feature_mask_prob=0.2), 3), num_columns=20_000, block=0, device=torch.device("cpu")
    )
    assert columns is not None
    assert abs(float(columns.float().mean()) - 0.8) < 0.02
    rows, cols = torch.arange(300)[:, None], torch.arange(100)[None, :]
    view = View(ViewSpec(feature_mask_prob=0.2, mask_elements=True), 3)
    elements = kept_elements(view, rows=rows, columns=cols, num_columns=100, block=0)
    assert elements is not None
    assert abs(float(elements.float().mean()) - 0.8) < 0.02
    assert float(elements.float().mean(0).min()) > 0.5  # no column is masked as a whole


def test_blocks_and_edges_draw_independently() -> None:
    view = View(ViewSpec(edge_drop_prob=0.5, feature_mask_prob=0.5), 3)
    first, second = (kept_columns(view, num_columns=4000, block=b, device=torch.device("cpu")) for b in (0, 1))
    assert first is not None
    assert second is not None
    graph = symmetric_graph()
    edges = kept_edges(graph, view)
    assert edges is not None
    size = min(4000, graph.num_edges)
    for one, other in ((first, second), (first[:size], edges[:size])):
        assert 0.45 < float((one == other).float().mean()) < 0.55


def test_views_of_a_step_repeat_and_differ_from_all_others() -> None:
    specs = [ViewSpec(edge_drop_prob=0.5)] * 2
    first, again, later, other = (
        [view.seed for view in draw_views(specs, seed=seed, step=step)]
        for seed, step in ((0, 1), (0, 1), (0, 2), (1, 1))
    )
    assert first == again
    assert len({*first, *later, *other}) == 6


def test_probabilities_are_checked() -> None:
    with pytest.raises(ValueError, match="edge_drop_prob"):
        ViewSpec(edge_drop_prob=1.5)
    with pytest.raises(ValueError, match="feature_mask_prob"):
        ViewSpec(feature_mask_prob=torch.tensor([0.1, -0.1]))
