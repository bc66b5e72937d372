"""Generated graphs: exact sizes, the same from the same seed, hubs, and communities that are there to be found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import graphstrap as gs
from graphstrap.io.datasets import describe
from graphstrap.io.generate.arxiv import WITHIN_CLASS, WITHIN_COMMUNITY, arxiv_like, draw_edges

NUM_NODES = 4000


def test_same_seed_same_graph() -> None:
    first, again, other = (arxiv_like(num_nodes=NUM_NODES, seed=seed) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.labels is not None
    assert again.labels is not None
    assert torch.equal(first.labels, again.labels)


def test_sizes_are_exact_and_parts_follow_each_other_in_time() -> None:
    graph = arxiv_like(num_nodes=NUM_NODES)
    assert graph.num_edges == 2 * round(1_166_243 * NUM_NODES / 169_343)
    assert graph.is_symmetric
    assert (graph.cleaning.num_self_loops_dropped, graph.cleaning.num_duplicates_merged) == (0, 0)
    assert graph.num_features == (128,)
    assert graph.splits is not None
    assert graph.node_times is not None
    masks = torch.cat([graph.splits.train, graph.splits.val, graph.splits.test], dim=1)
    assert masks.sum(1).tolist() == [1] * NUM_NODES
    years = [graph.node_times[masks[:, part]] for part in range(3)]
    assert (int(years[0].min()), int(years[0].max())) == (2007, 2017)
    assert set(years[1].tolist()) == {2018}
    assert set(years[2].tolist()) == {2019, 2020}


def test_edges_stay_within_classes_as_often_as_they_should() -> None:
    graph = arxiv_like(num_nodes=20_000)  # in fewer, communities are so small that many pairs are drawn twice
    assert graph.labels is not None
    same = float((graph.labels[graph.indices.long()] == graph.labels[graph.targets]).float().mean())
    assert WITHIN_COMMUNITY + WITHIN_CLASS - 0.06 < same < WITHIN_COMMUNITY + WITHIN_CLASS + 0.06


def test_degrees_have_hubs() -> None:
    degrees = arxiv_like(num_nodes=NUM_NODES).in_degrees.float()
    assert float(degrees.max()) > 20 * float(degrees.median())


def test_a_node_is_drawn_in_proportion_to_its_weight() -> None:
    weights = np.array([1.0, 2.0, 4.0, 1.0] * 25)
    groups = np.zeros(100, dtype=np.int64)
    source, target = draw_edges(weights, groups, groups, num_edges=1000, random=np.random.default_rng(0))
    assert len(np.unique(source * 100 + target)) == 1000
    assert (source != target).all()
    degree = np.bincount(np.concatenate([source, target]), minlength=100).reshape(25, 4).sum(0)
    assert degree[2] > degree[1] > max(degree[0], degree[3])
    with pytest.raises(ValueError, match="at most an eighth"):
        draw_edges(weights, groups, groups, num_edges=5000, random=np.random.default_rng(0))


def test_neighbours_tell_more_than_a_nodes_own_features() -> None:
    from graphstrap.graph import CLEAN
    from graphstrap.ops import propagate

    graph = arxiv_like(num_nodes=NUM_NODES)
    assert isinstance(graph.x, torch.Tensor)
    spread = propagate(graph, CLEAN, propagate(graph, CLEAN, graph.x))
    raw, smooth = (gs.evaluate(h, graph, protocol="adamw").mean for h in (graph.x, spread))
    assert smooth > raw + 15


def test_it_is_a_dataset_that_is_described_without_being_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHSTRAP_DATA", raising=False)
    info = next(info for info in describe() if info.name == "arxiv-like")
    assert (info.nodes, info.edges, info.features, info.classes) == (169343, 1166243, 128, 40)
