"""Sampling: true neighbours, the exact number of them, each once, uniformly, and never by place in the batch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from conftest import make_communities, make_random_graph
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, View, ViewSpec
from graphstrap.graph.many import select_roots
from graphstrap.nn.encoders.gcn import GCN
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.bgrl import BGRL
from graphstrap.run.recipe import Recipe
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer

ALL = 10**6


def hub_graph() -> Graph:
    return make_random_graph(num_nodes=300, num_edges=4000, seed=1)


def typed_graph(*, with_times: bool = False, relabelled: bool = False) -> Graph:
    """Papers and authors; citations among papers, authorship both ways."""
    generator = torch.Generator().manual_seed(0)
    num_papers, num_authors = 60, 20
    cited, citing = torch.randint(0, num_papers, (2, 500), generator=generator)
    author = torch.randint(num_papers, num_papers + num_authors, (300,), generator=generator)
    paper = torch.randint(0, num_papers, (300,), generator=generator)
    graph = Graph.from_edges(
        torch.cat([cited, author]),
        torch.cat([citing, paper]),
        num_nodes=num_papers + num_authors,
        edge_types=torch.cat([torch.zeros(500), torch.ones(300)]).long(),
        edge_type_names=("cites", "writes"),
        features=(torch.rand(num_papers, 6, generator=generator), torch.rand(num_authors, 3, generator=generator)),
        type_offsets=(0, num_papers, num_papers + num_authors),
        node_types=("paper", "author"),
        labels=torch.arange(num_papers + num_authors) % 3,
    )
    years = torch.randint(2000, 2010, (graph.num_nodes,), generator=generator).double()
    years[num_papers:] = torch.nan  # authors have none
    return replace(graph, node_times=years) if with_times else graph


def global_edges(batch: Graph) -> tuple[Tensor, Tensor]:
    assert batch.node_ids is not None
    return batch.node_ids[batch.indices.long()], batch.node_ids[batch.targets]


def depths(batch: Graph) -> Tensor:
    """The hop in which each node was found."""
    return torch.bucketize(torch.arange(batch.num_nodes), torch.tensor(batch.hop_offsets), right=True)


def edge_set(batch: Graph) -> set[int]:
    assert batch.edge_ids is not None
    return set(batch.edge_ids.tolist())


@pytest.mark.parametrize("disjoint", [False, True])
def test_edges_are_the_graphs_own_and_none_comes_twice(disjoint: bool) -> None:
    graph = hub_graph()
    roots = torch.arange(0, 300, 7)
    batch = Sampler(graph, [5, 3], disjoint=disjoint).sample(roots, seed=0)
    assert batch.node_ids is not None
    assert batch.edge_ids is not None
    source, target = global_edges(batch)
    assert torch.equal(source, graph.indices.long()[batch.edge_ids])
    assert torch.equal(target, graph.targets[batch.edge_ids])
    assert torch.equal(batch.node_ids[: len(roots)], roots)
    owner = torch.zeros_like(batch.node_ids) if batch.owners is None else batch.owners
    assert len(torch.unique(owner * 300 + batch.node_ids)) == batch.num_nodes
    assert len(torch.unique(owner[batch.targets] * graph.num_edges + batch.edge_ids)) == batch.num_edges
    assert torch.equal(owner[batch.targets], owner[batch.indices.long()])


@pytest.mark.parametrize("disjoint", [False, True])
def test_every_node_gets_exactly_its_fan_out_or_all_it_has(disjoint: bool) -> None:
    graph = hub_graph()
    batch = Sampler(graph, [5, 3], disjoint=disjoint).sample(torch.arange(0, 300, 7), seed=0)
    assert batch.node_ids is not None
    fan_outs = torch.tensor([5, 3, 0])[depths(batch)]
    degrees = graph.in_degrees[batch.node_ids]
    assert torch.equal(batch.in_degrees, torch.minimum(degrees, fan_outs))
    assert bool((degrees > 100).any())  # hubs are among them


def test_fan_outs_by_relation_and_hop() -> None:
    graph = typed_graph()
    names = graph.edge_type_names
    fan_outs = [{"cites": 2, "writes": 3}, {"reverse_writes": 4}]
    batch = Sampler(graph, fan_outs).sample(torch.tensor([5, 3, 50]), seed=0)
    assert batch.node_ids is not None
    assert batch.edge_types is not None
    assert batch.root_places is not None
    assert batch.node_ids[batch.root_places].tolist() == [5, 3, 50]
    assert graph.edge_types is not None
    true_counts = torch.zeros(graph.num_nodes, len(names)).index_put_(
        (graph.targets, graph.edge_types), torch.ones(1), accumulate=True
    )
    counts = torch.zeros(batch.num_nodes, len(names)).index_put_(
        (batch.targets, batch.edge_types), torch.ones(1), accumulate=True
    )
    at_root = torch.tensor([2.0, 3.0, 0.0, 0.0])
    assert torch.equal(counts[batch.root_places], torch.minimum(true_counts[[5, 3, 50]], at_root))
    authors = slice(batch.type_offsets[1], batch.num_nodes)
    expected = torch.minimum(true_counts[batch.node_ids[authors]], torch.tensor([0.0, 0.0, 0.0, 4.0]))
    assert torch.equal(counts[authors], expected)
    assert batch.num_nodes > batch.type_offsets[1] > 3
    assert bool((batch.node_ids[: batch.type_offsets[1]] < 60).all())  # types keep their nodes together
    assert bool((batch.node_ids[batch.type_offsets[1] :] >= 60).all())


def test_every_neighbour_and_every_pair_is_equally_likely() -> None:
    """Chi-square over 8,000 draws of 3 of 10: the 99.9 % quantiles for 9 and 44 degrees of freedom."""
    graph = Graph.from_edges(torch.arange(1, 11), torch.zeros(10).long(), directed=True)
    sampler = Sampler(graph, [3])
    counts, num_draws = torch.zeros(10, 10), 8_000
    for step in range(num_draws):
        edges = sampler.sample(torch.tensor([0]), seed=5, step=step).edge_ids
        assert edges is not None
        counts[edges[:, None], edges] += 1
    singles = counts.diagonal()
    expected = num_draws * 3 / 10
    assert float(((singles - expected) ** 2 / expected).sum()) * 9 / 7 < 27.9  # variance n p (1 - p), dependent
    pairs = counts[torch.triu(torch.ones(10, 10), 1).bool()]
    expected = num_draws / 15
    assert float(((pairs - expected) ** 2 / expected).sum()) < 78.7


def test_hubs_are_sampled_uniformly_across_their_row() -> None:
    graph = Graph.from_edges(torch.arange(1, 100_001), torch.zeros(100_000).long(), directed=True)
    sampler = Sampler(graph, [1000])
    edges = torch.cat([sampler.sample(torch.tensor([0]), seed=0, step=step).edge_ids for step in range(20)])  # type: ignore[misc]
    counts = torch.histc(edges.float(), bins=50, min=0, max=100_000)
    assert float(((counts - 400) ** 2 / 400).sum()) < 85.4  # 49 degrees of freedom, 99.9 %


def test_halves_of_a_disjoint_batch_add_up_to_the_whole() -> None:
    graph = hub_graph()
    sampler = Sampler(graph, [4, 3], disjoint=True)
    roots = torch.randperm(300, generator=torch.Generator().manual_seed(0))[:40]
    whole = sampler.sample(roots, seed=3, step=9)
    parts = [sampler.sample(part, seed=3, step=9) for part in (roots[:15], roots[15:])]
    pieces: dict[tuple[int, int], set[int]] = {}
    for batch, shift in ((whole, 0), (parts[0], 0), (parts[1], 15)):
        assert batch.owners is not None
        assert batch.edge_ids is not None
        for owner in range(int(batch.owners.max()) + 1):
            mine = batch.edge_ids[batch.owners[batch.targets] == owner]
            pieces.setdefault((owner + shift, id(batch) == id(whole)), set()).update(mine.tolist())
    assert all(pieces[k, True] == pieces[k, False] for k in range(40))


@pytest.mark.parametrize("typed", [False, True])
def test_a_part_of_a_batch_is_the_batch_of_those_roots(typed: bool) -> None:
    graph = typed_graph() if typed else hub_graph()
    sampler, gatherer = Sampler(graph, [4, 3], disjoint=True), Gatherer(graph)
    roots = torch.randperm(60, generator=torch.Generator().manual_seed(0))[:20]
    wanted = torch.arange(20) % 3 == 1
    part = select_roots(gatherer.fill(sampler.sample(roots, seed=0)), wanted)
    alone = gatherer.fill(sampler.sample(roots[wanted], seed=0))
    assert part.type_offsets == alone.type_offsets
    assert part.hop_offsets == alone.hop_offsets
    assert part.num_roots == alone.num_roots
    for field in fields(Graph):
        mine, other = getattr(part, field.name), getattr(alone, field.name)
        if isinstance(mine, Tensor):
            assert torch.equal(mine, other), field.name
    for mine, other in zip(part.features, alone.features, strict=True):
        assert mine is not None
        assert other is not None
        assert torch.equal(mine.to_dense(), other.to_dense())


def test_loss_of_a_disjoint_batch_is_the_mean_of_its_halves() -> None:
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    method = make_bgrl(graph, norm="layer")
    sampler, gatherer = Sampler(graph, [4, 3], disjoint=True), Gatherer(graph)
    views = [View(ViewSpec(edge_drop_prob=0.3, feature_mask_prob=0.2), seed) for seed in (1, 2)]
    losses = [
        method.loss(gatherer.fill(sampler.sample(roots, seed=0, step=1)), views)[0]
        for roots in (torch.arange(20), torch.arange(10), torch.arange(10, 20))
    ]
    torch.testing.assert_close(losses[0], (losses[1] + losses[2]) / 2)


def test_merged_batches_draw_the_same_edges_for_a_node_wherever_it_stands() -> None:
    graph = hub_graph()
    sampler = Sampler(graph, [4])
    roots = torch.randperm(300, generator=torch.Generator().manual_seed(0))[:40]
    whole = edge_set(sampler.sample(roots, seed=3, step=9))
    flipped = edge_set(sampler.sample(roots.flip(0), seed=3, step=9))
    halves = [edge_set(sampler.sample(part, seed=3, step=9)) for part in (roots[:15], roots[15:])]
    assert whole == flipped == halves[0] | halves[1]


def test_seed_and_step_decide() -> None:
    graph = hub_graph()
    roots = torch.arange(40)
    first, again, other_step, other_seed = (
        Sampler(graph, [4, 2]).sample(roots, seed=seed, step=step) for seed, step in ((0, 1), (0, 1), (0, 2), (1, 1))
    )
    assert first.edge_ids is not None
    assert again.edge_ids is not None
    assert torch.equal(first.edge_ids, again.edge_ids)
    assert edge_set(first) != edge_set(other_step)
    assert edge_set(first) != edge_set(other_seed)


def test_a_sampler_forgets_the_batch_before() -> None:
    graph = hub_graph()
    sampler = Sampler(graph, [4, 2])
    before = sampler.sample(torch.arange(40), seed=0)
    sampler.sample(torch.arange(30, 90), seed=1)
    after = sampler.sample(torch.arange(40), seed=0)
    assert before.node_ids is not None
    assert after.node_ids is not None
    assert torch.equal(before.node_ids, after.node_ids)
    assert torch.equal(before.indices, after.indices)


@pytest.mark.parametrize("disjoint", [False, True])
def test_large_fan_outs_give_the_exact_neighbourhood(disjoint: bool) -> None:
    graph = hub_graph()
    roots = torch.tensor([2, 250, 17])
    batch = Sampler(graph, [ALL, ALL], disjoint=disjoint).sample(roots, seed=0)
    assert batch.node_ids is not None
    for number, root in enumerate(roots.tolist()):
        reached, frontier, edges = {root}, {root}, set()
        for _ in range(2):
            into = torch.isin(graph.targets, torch.tensor(sorted(frontier)))
            edges |= set(into.nonzero().squeeze(1).tolist())
            frontier = set(graph.indices[into].tolist()) - reached
            reached |= frontier
        mine = torch.full_like(batch.node_ids, True, dtype=torch.bool)
        if batch.owners is not None:
            mine = batch.owners == number
            assert set(batch.node_ids[mine].tolist()) == reached
            assert {e for e, t in zip(batch.edge_ids.tolist(), batch.targets.tolist(), strict=True) if mine[t]} == edges  # type: ignore[union-attr]
        assert reached <= set(batch.node_ids[mine].tolist())
        assert edges <= edge_set(batch)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("num_hops", [2, 3])
def test_a_gcn_gives_roots_their_embeddings_in_the_whole_graph(weighted: bool, disjoint: bool, num_hops: int) -> None:
    graph = make_random_graph(num_nodes=200, num_edges=900, seed=2, weighted=weighted)
    encoder = GCN(graph.num_features, [16, 8], generator=torch.Generator().manual_seed(0)).eval()
    roots = torch.tensor([3, 100, 199, 0, 44])
    batch = Sampler(graph, [ALL] * num_hops, disjoint=disjoint).sample(roots, seed=0)
    h = batch.roots_of(encoder(Gatherer(graph).fill(batch)))
    torch.testing.assert_close(h, encoder(graph)[roots], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("fan_outs", [[{"cites": ALL}] * 2, [{"cites": ALL}, {"cites": ALL}, 0], [{"cites": ALL}] * 3])
def test_relations_that_no_hop_draws_are_as_if_they_were_not_there(
    weighted: bool, disjoint: bool, fan_outs: list[int | dict[str, int]]
) -> None:
    generator = torch.Generator().manual_seed(3)
    source, target = torch.randint(0, 60, (2, 300), generator=generator)
    kinds, x = torch.arange(300) % 2, torch.rand(60, 5, generator=generator)
    weights = torch.rand(300, generator=generator) + 0.5 if weighted else None
    shared: dict[str, Any] = {"num_nodes": 60, "x": x, "directed": True}
    graph = Graph.from_edges(
        source, target, edge_weights=weights, edge_types=kinds, edge_type_names=("cites", "likes"), **shared
    )
    cites = kinds == 0
    without = Graph.from_edges(
        source[cites], target[cites], edge_weights=None if weights is None else weights[cites], **shared
    )
    encoder = GCN([5], [8, 8], generator=torch.Generator().manual_seed(0)).eval()
    roots = torch.tensor([3, 59, 0, 44])
    batch = Sampler(graph, fan_outs, disjoint=disjoint).sample(roots, seed=0)
    h = batch.roots_of(encoder(Gatherer(graph).fill(batch)))
    torch.testing.assert_close(h, encoder(without)[roots], rtol=1e-5, atol=1e-6)


def test_a_relation_that_is_taken_whole_costs_no_more_than_its_edges() -> None:
    """Beside one that is cut: slots for a million draws of each node would not end."""
    graph = typed_graph()
    batch = Sampler(graph, [{"cites": 2, "writes": ALL}]).sample(torch.arange(60), seed=0)
    assert batch.edge_types is not None
    assert graph.edge_types is not None
    written = torch.bincount(graph.edge_types[graph.targets < 60], minlength=2)[1]
    assert torch.bincount(batch.edge_types)[1] == written


def test_sampled_sums_are_unbiased() -> None:
    """The mean over many batches of a root's weighted in-degree, and of a first layer without nonlinearity."""
    from graphstrap.graph import CLEAN
    from graphstrap.ops import propagate

    graph = make_random_graph(num_nodes=100, num_edges=1500, seed=3, weighted=True)
    x = torch.rand(100, 4, generator=torch.Generator().manual_seed(0))
    sampler, root = Sampler(graph, [4]), torch.tensor([1])
    batches = [sampler.sample(root, seed=0, step=step) for step in range(3000)]
    sums = torch.stack([propagate(b, CLEAN, x[b.node_ids], norm="sum")[0] for b in batches])
    exact = propagate(graph, CLEAN, x, norm="sum")[1]
    error = sums.std(0) / 3000**0.5
    assert bool(((sums.mean(0) - exact).abs() < 4 * error).all())


def test_no_node_is_newer_than_its_root() -> None:
    graph = typed_graph(with_times=True)
    assert graph.node_times is not None
    roots = torch.arange(0, 60, 3)
    fan_outs = [3, 3]
    batch = Sampler(graph, fan_outs, disjoint=True, by_time=True).sample(roots, seed=0)
    assert batch.node_ids is not None
    assert batch.owners is not None
    times, limit = graph.node_times[batch.node_ids], graph.node_times[roots][batch.owners]
    assert not bool((times > limit).any())  # authors' times are NaN: never newer
    assert bool((times < limit).any())
    eligible = graph.node_times[graph.indices.long()]
    assert graph.edge_types is not None
    assert batch.edge_types is not None
    assert batch.root_places is not None
    for number, root in enumerate(roots.tolist()):
        for relation in range(len(graph.edge_type_names)):
            into = (graph.targets == root) & (graph.edge_types == relation)
            wanted = min(3, int((into & ~(eligible > graph.node_times[root])).sum()))
            drawn = (batch.targets == batch.root_places[number]) & (batch.edge_types == relation)
            assert int(drawn.sum()) == wanted


@pytest.mark.parametrize("weighted", [False, True])
def test_missing_degrees_by_time_count_no_edge_from_a_node_newer_than_the_root(weighted: bool) -> None:
    graph = make_random_graph(num_nodes=80, num_edges=900, seed=2, weighted=weighted)
    times = torch.randint(0, 9, (80,), generator=torch.Generator().manual_seed(3)).float()
    times[::7] = torch.nan
    roots = torch.arange(0, 60, 2)
    batch = Sampler(replace(graph, node_times=times), [4, 3], disjoint=True, by_time=True).sample(roots, seed=0)
    assert batch.node_ids is not None
    assert batch.owners is not None
    assert batch.missing_degrees is not None
    weights = torch.ones(graph.num_edges) if graph.edge_weights is None else graph.edge_weights
    last = slice(batch.hop_offsets[-2], batch.hop_offsets[-1])
    limits = times[roots[batch.owners[last]]]
    is_old = ~(times[graph.indices.long()] > limits[:, None])  # (nodes of the last hop, edges)
    into = graph.targets == batch.node_ids[last, None]
    assert bool((into & ~is_old).any())
    torch.testing.assert_close(batch.missing_degrees[last], (weights * (into & is_old)).sum(1))
    assert not bool(batch.missing_degrees[: last.start].any())


def test_rows_sorted_otherwise_give_the_same_numbers_of_edges() -> None:
    """A graph whose ids grow with time needs no order of its own, and one that does gets it."""
    graph = make_random_graph(num_nodes=200, num_edges=900, seed=2)
    grown = replace(graph, node_times=torch.arange(200))
    shuffled = replace(graph, node_times=torch.arange(200).flip(0))
    assert Sampler(grown, [3], disjoint=True, by_time=True).index.order is None
    assert Sampler(shuffled, [3], disjoint=True, by_time=True).index.order is not None


def test_bad_arguments_say_what_to_do() -> None:
    graph = typed_graph()
    with pytest.raises(InputError, match="no edge type 'likes'"):
        Sampler(graph, [{"likes": 3}])
    with pytest.raises(InputError, match="from 0 up"):
        Sampler(graph, [-1])
    assert Sampler(hub_graph(), [{"*": 3}]).fan_outs == [[3]]  # where edges have no types
    with pytest.raises(InputError, match="time column"):
        Sampler(graph, [3], disjoint=True, by_time=True)
    with pytest.raises(InputError, match="disjoint"):
        Sampler(graph, [3], by_time=True)
    with pytest.raises(ValueError, match="different nodes"):
        Sampler(graph, [3]).sample(torch.tensor([1, 1]), seed=0)
    assert Sampler(graph, [3]).sample(torch.tensor([1]), seed=0).num_roots == 1  # the failure left no trace


@pytest.mark.gpu
@pytest.mark.parametrize("disjoint", [False, True])
def test_cuda_draws_the_bits_of_a_cpu(disjoint: bool) -> None:
    for graph, fan_outs in ((hub_graph(), [5, 3]), (typed_graph(), [5, 3])):
        roots = torch.arange(0, 60, 2)
        ours, theirs = (
            Sampler(one, fan_outs, disjoint=disjoint).sample(roots, seed=1, step=4) for one in (graph, graph.to("cuda"))
        )
        for name in ("indptr", "indices", "node_ids", "edge_ids", "edge_weights", "missing_degrees", "owners"):
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert (mine is None and other is None) or torch.equal(mine, other.cpu()), name


def make_bgrl(graph: Graph, *, norm: str) -> BGRL:
    settings: dict[str, Any] = {
        "encoder.hidden_sizes": [16],
        "encoder.embedding_size": 8,
        "encoder.norm": norm,
        "method.predictor_hidden_size": 16,
        "method.target_decay": 0.9,
        "train.steps": 10,
    }
    method: BGRL = build_method(Recipe().with_settings(settings), input_sizes=graph.num_features, seed=0)
    return method
