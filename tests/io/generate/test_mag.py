"""Laws of the MAG-like generator: one graph for a seed, whatever the chunks and the device, in MAG240M's shape."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.io.generate.mag import RELATIONS
from graphstrap.io.generate.mag_plan import NUM_CLASSES, NUM_YEARS, Plan, Shuffle, centroids, draw_cites, topic_shares
from graphstrap.io.store import check_structure
from same_graph import assert_same_graph

SCALE = 0.0002  # 24,350 papers
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return mag(SCALE)


@pytest.fixture(scope="module")
def edges_only() -> Graph:
    return mag(5 * SCALE, num_features=0)


def pairs(graph: Graph, relation: str) -> torch.Tensor:
    """(2, K) sources and targets of one relation."""
    chosen = graph.edge_types == RELATIONS.index(relation)
    return torch.stack([graph.indices[chosen].long(), graph.targets[chosen]])


@pytest.mark.parametrize("chunk_bytes", [1 << 14, 1 << 19])
def test_chunks_make_no_difference(graph: Graph, chunk_bytes: int) -> None:
    small = mag(SCALE / 10, chunk_bytes=chunk_bytes)
    whole = mag(SCALE / 10)
    assert_same_graph(small.with_features(None, None, None), whole.with_features(None, None, None))
    for block, wanted in zip(small.features, whole.features, strict=True):
        assert isinstance(block, torch.Tensor)
        assert isinstance(wanted, torch.Tensor)
        torch.testing.assert_close(block, wanted, rtol=2e-3, atol=2e-3)  # long rows are added up in parts
    assert torch.equal(small.features[0], whole.features[0])  # type: ignore[arg-type]


def test_a_seed_is_a_graph_and_another_is_another(graph: Graph) -> None:
    again, other = mag(SCALE), mag(SCALE, seed=1)
    assert again.fingerprint == graph.fingerprint
    assert_same_graph(again, graph)
    assert other.fingerprint != graph.fingerprint
    assert abs(other.num_edges / graph.num_edges - 1) < 0.03


def test_any_part_can_be_drawn_alone() -> None:
    plan = Plan.of(SCALE, seed=0, device=CPU)
    papers = torch.arange(9_000, 12_000)
    counts, cited = draw_cites(plan, papers)
    for begin, end in ((0, 10), (1234, 1250), (2999, 3000)):
        part_counts, part = draw_cites(plan, papers[begin:end])
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        assert torch.equal(part_counts, counts[begin:end])
        assert torch.equal(part, cited[starts[begin] : starts[end]])


def test_it_is_a_graph_with_every_edge_both_ways(graph: Graph) -> None:
    check_structure(graph)
    assert graph.cleaning.num_edges_given * 2 == graph.num_edges
    for forward, backward in (("cites", "reverse_cites"), ("writes", "reverse_writes"), RELATIONS[4:]):
        one, other = pairs(graph, forward), pairs(graph, backward).flip(0)
        keys, other_keys = (ends[0] * graph.num_nodes + ends[1] for ends in (one, other))
        assert torch.equal(keys.sort().values, other_keys.sort().values)
        assert bool((keys.sort().values.diff() > 0).all())


def test_ends_have_the_types_of_their_relation(graph: Graph) -> None:
    offsets = torch.tensor(graph.type_offsets)
    for relation, kinds in (("cites", (0, 0)), ("writes", (1, 0)), ("affiliated_with", (1, 2))):
        ends = torch.searchsorted(offsets, pairs(graph, relation), right=True) - 1
        assert [row.unique().tolist() for row in ends] == [[kinds[0]], [kinds[1]]]


def test_rows_are_sorted_by_relation_and_by_time(graph: Graph) -> None:
    assert graph.node_times is not None
    assert graph.edge_types is not None
    times = graph.node_times[graph.indices.long()]
    years = times[graph.edge_types < 2]
    assert int(years.min()) >= 1970
    rows, types = graph.targets, graph.edge_types.long()
    same_row = rows[1:] == rows[:-1]
    assert bool((types.diff()[same_row] >= 0).all())
    same = same_row & (types[1:] == types[:-1])
    assert bool((times[1:] >= times[:-1])[same].all())
    citing, cited = pairs(graph, "cites")
    assert bool((cited < citing).all())
    assert bool((graph.node_times[cited] <= graph.node_times[citing]).all())


def test_every_author_has_a_paper_but_few(edges_only: Graph) -> None:
    graph = edges_only
    first, last = graph.type_offsets[1:3]
    papers = torch.bincount(pairs(graph, "reverse_writes")[1] - first, minlength=last - first)
    assert float((papers == 0).float().mean()) < 0.01
    assert int(papers.max()) > 20 * float(papers.float().mean())


def test_citations_follow_a_power_law_and_topics(edges_only: Graph) -> None:
    graph, plan = edges_only, Plan.of(5 * SCALE, seed=0, device=CPU)
    citing, cited = pairs(graph, "cites")
    counts = torch.bincount(cited, minlength=plan.sizes[0]).sort(descending=True).values.float()
    assert float(counts[: len(counts) // 100].sum() / counts.sum()) > 0.08  # the first per cent
    assert float(counts[0]) > 15 * float(counts.mean())
    _, topic = plan.papers.cell_of(torch.arange(plan.sizes[0]))
    assert 0.65 < float((topic[citing] == topic[cited]).float().mean()) < 0.85


def test_labels_go_by_year(graph: Graph) -> None:
    assert graph.labels is not None
    assert graph.splits is not None
    assert graph.node_times is not None
    train, val, test = (mask[:, 0] for mask in (graph.splits.train, graph.splits.val, graph.splits.test))
    labelled = graph.labels >= 0
    assert torch.equal(train.int() + val.int() + test.int(), labelled.int())
    assert set(graph.node_times[val].tolist()) == {2019}
    assert set(graph.node_times[test].tolist()) == {2020}
    assert int(graph.node_times[train].max()) <= 2018
    assert not bool(labelled[graph.type_offsets[1] :].any())
    fraction = float(labelled[: graph.type_offsets[1]].float().mean())
    assert 0.008 < fraction < 0.015


def test_features_are_means_of_means(graph: Graph) -> None:
    paper, author, institution = graph.features
    assert isinstance(paper, torch.Tensor)
    assert isinstance(author, torch.Tensor)
    assert isinstance(institution, torch.Tensor)
    first, second = graph.type_offsets[1:3]
    source, target = pairs(graph, "reverse_writes")
    for node in (0, 5, len(author) - 1):
        papers = source[target == first + node]
        wanted = paper[papers].float().mean(0) if len(papers) else torch.zeros(paper.shape[1])
        torch.testing.assert_close(author[node].float(), wanted, rtol=1e-3, atol=1e-3)
    source, target = pairs(graph, "affiliated_with")
    for node in range(len(institution)):
        members = source[target == second + node] - first
        wanted = author[members].float().mean(0) if len(members) else torch.zeros(paper.shape[1])
        torch.testing.assert_close(institution[node].float(), wanted, rtol=1e-3, atol=1e-3)


def test_features_tell_topics_that_move() -> None:
    graph, plan = mag(SCALE, feature_dtype=torch.float32), Plan.of(SCALE, seed=0, device=CPU)
    x = graph.features[0]
    assert isinstance(x, torch.Tensor)
    year, topic = plan.papers.cell_of(torch.arange(len(x)))
    centres = centroids(plan, x.shape[1])
    whitened = x * torch.arange(1, x.shape[1] + 1).sqrt()
    noise = whitened - centres[year, topic]
    assert abs(float(noise.mean())) < 0.01
    assert abs(float(noise.std()) - 4.5) < 0.01
    late = year == NUM_YEARS - 1
    scores = {y: whitened[late] @ centres[y].T - 0.5 * centres[y].square().sum(1) for y in (0, NUM_YEARS - 1)}
    accuracy = {y: float((score.argmax(1) == topic[late]).float().mean()) for y, score in scores.items()}
    assert accuracy[NUM_YEARS - 1] > 0.5
    assert accuracy[NUM_YEARS - 1] > accuracy[0] + 0.1  # old centroids no longer fit


def test_topics_wax_and_wane() -> None:
    shares = topic_shares(0)
    assert shares.shape == (NUM_YEARS, NUM_CLASSES)
    assert np.isclose(shares.sum(), 1.0)
    first, last = shares[0] / shares[0].sum(), shares[-1] / shares[-1].sum()
    assert (last / first).max() > 3
    assert (last / first).min() < 1 / 3


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_a_shuffle_has_an_inverse_and_keeps_ranges(sizes: list[int], seed: int) -> None:
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shuffle = Shuffle.of(starts, seed, device=CPU)
    numbers = torch.arange(int(starts[-1]))
    ranges = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    there = shuffle.forth(numbers, ranges)
    assert torch.equal(shuffle.back(there, ranges), numbers)
    for begin, end in pairwise(starts.tolist()):
        assert sorted(there[begin:end].tolist()) == list(range(begin, end))


def test_without_features_and_with_a_wrong_scale() -> None:
    assert mag(1e-6, num_features=0).features == (None, None, None)
    with pytest.raises(InputError, match="scale"):
        mag(0.0)


@pytest.mark.gpu
def test_the_device_makes_no_difference() -> None:
    here, there = mag(SCALE), mag(SCALE, device="cuda").to("cpu")
    assert_same_graph(there.with_features(None, None, None), here.with_features(None, None, None))
    for block, wanted in zip(there.features, here.features, strict=True):
        torch.testing.assert_close(block, wanted, rtol=2e-3, atol=2e-3)
