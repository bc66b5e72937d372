"""Walks, negatives and the skip-gram loss against exact probabilities and an independent NumPy version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities, make_random_graph

from graphstrap.api.estimator import Embedder, random_init
from graphstrap.errors import InputError
from graphstrap.evaluation.protocols import evaluate
from graphstrap.graph import Graph, View, ViewSpec
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.datasets import load
from graphstrap.nn.features import raw_features
from graphstrap.nn.methods import build_method
from graphstrap.nn.methods.skip_gram import (
    DeepWalk,
    Roads,
    draw_negatives,
    draw_starts,
    draw_walks,
    find_pairs,
    num_trials,
    skip_gram_loss,
    with_features,
)
from graphstrap.run.recipe import Recipe
from graphstrap.train.step import CapturedStep, EagerStep

Array = np.ndarray[Any, Any]
VIEW = View(ViewSpec(), 1234567890123)

# Triangle 0-1-2 with a tail 2-3-4 and a chord 1-3: from 2, coming from 0, there are ways back, aside and outward.
HOUSE = Graph.from_edges([0, 1, 0, 2, 3, 1], [1, 2, 2, 3, 4, 3])


def make_method(num_nodes: int, **settings: Any) -> DeepWalk:
    num_walks = settings.pop("num_walks", 20)
    own = {"name": "node2vec", "walk_length": 12, "window_size": 3, "num_negatives": 5} | settings
    recipe = Recipe().with_settings({"encoder.embedding_size": 8, **{f"method.{key}": own[key] for key in own}})
    method: DeepWalk = build_method(recipe, input_sizes=(12,), num_nodes=num_nodes, seed=0)
    method.num_walks = num_walks
    return method


def make_graph_with_dead_ends() -> Graph:
    """Directed, 30 nodes: edges lead from the first 22 to the first 26, so that walks of all lengths occur."""
    random = np.random.default_rng(0)
    source, target = random.integers(22, size=110), random.integers(26, size=110)
    return Graph.from_edges(source, target, num_nodes=30, directed=True)


def adjacency(graph: Graph) -> Array:
    """[i, j]: the weight of the edge from i to j."""
    dense = np.zeros((graph.num_nodes, graph.num_nodes))
    weights = 1.0 if graph.edge_weights is None else graph.edge_weights.numpy()
    dense[graph.indices.numpy(), graph.targets.numpy()] = weights
    return dense


def assert_frequencies(counts: Array, probabilities: Array) -> None:
    """Each count within five standard deviations of what its probability says, and 0 where that is 0."""
    total = counts.sum()
    deviation = np.sqrt(total * probabilities * (1 - probabilities))
    assert (np.abs(counts - total * probabilities) <= 5 * deviation + 1e-9).all(), (counts / total, probabilities)


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.5, 2.0)])
def test_walks_follow_edges_and_stay_only_where_none_leads_on(p: float, q: float) -> None:
    graph = make_graph_with_dead_ends()
    roads, edges = Roads.of(graph), adjacency(graph) > 0
    starts = draw_starts(roads, 200, seed=3)
    walks = draw_walks(roads, starts, length=15, seed=3, return_weight=p, outward_weight=q)
    assert torch.equal(walks[:, 0], starts)
    before, after = walks[:, :-1].numpy(), walks[:, 1:].numpy()
    dead_end: Array = (adjacency(graph) == 0).all(axis=1)
    assert dead_end[before].any()
    assert not dead_end[before].all()
    assert edges[before, after][~dead_end[before]].all()
    assert (before == after)[dead_end[before]].all()
    stuck = np.maximum.accumulate(np.pad(dead_end[before], ((0, 0), (1, 0))), axis=1)
    assert np.array_equal(roads.reached(walks).numpy(), ~stuck)


def test_first_order_steps_are_uniform_or_in_proportion_to_weights() -> None:
    weights = torch.tensor([1.0, 2.0, 0.0, 5.0])
    star = Graph.from_edges([0, 0, 0, 0], [1, 2, 3, 4], num_nodes=6, edge_weights=weights)
    for graph, expected in ((replace(star, edge_weights=None), np.full(4, 0.25)), (star, weights.numpy() / 8.0)):
        roads = Roads.of(graph)
        walks = draw_walks(roads, torch.zeros(20_000, dtype=torch.int64), length=3, seed=5)
        assert_frequencies(np.bincount(walks[:, 1], minlength=6)[1:5], expected)
        assert (walks[:, 2] == 0).all()  # back over the only way there is
    alone = draw_walks(Roads.of(star), torch.tensor([3, 5]), length=4, seed=5)  # an edge of weight 0, and none
    assert alone.tolist() == [[3] * 4, [5] * 4]


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (4.0, 1.0), (1.0, 0.25), (0.25, 4.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_second_order_steps_have_node2vecs_probabilities(p: float, q: float, weighted: bool) -> None:
    weights = torch.linspace(0.5, 2.0, HOUSE.num_edges) if weighted else None
    graph = replace(HOUSE, edge_weights=weights)
    edges, roads = adjacency(graph), Roads.of(graph)
    starts = torch.arange(5).repeat(8_000)
    walks = draw_walks(roads, starts, length=3, seed=9, return_weight=p, outward_weight=q).numpy()
    trials = num_trials(1 / p, 1.0, 1 / q)
    for previous, node in zip(*np.nonzero(edges), strict=True):
        bias = np.where(np.arange(5) == previous, 1 / p, np.where(edges[previous] > 0, 1.0, 1 / q))
        first_order = edges[node] / edges[node].sum()
        exact = first_order * bias / (first_order * bias).sum()
        accepted = (first_order * bias / max(1 / p, 1.0, 1 / q)).sum()
        all_refused = (1 - accepted) ** trials if trials > 1 else 0.0
        assert all_refused < 0.02
        here = walks[(walks[:, 0] == previous) & (walks[:, 1] == node)]
        assert len(here) > 1000
        # Given that all are refused one is taken by its bias, of what refusal leaves of the first-order step.
        refused = first_order * (1 - bias / max(1 / p, 1.0, 1 / q)) * bias
        left = refused / refused.sum() if refused.sum() > 1e-12 else first_order
        assert_frequencies(np.bincount(here[:, 2], minlength=5), (1 - all_refused) * exact + all_refused * left)


@pytest.mark.parametrize(("p", "q"), [(100.0, 0.01), (1000.0, 0.001), (0.01, 100.0)])
def test_biases_that_refuse_nearly_all_proposals_still_count(p: float, q: float) -> None:
    """In a triangle no step leads outward, so that the largest bias is nobody's."""
    triangle = Graph.from_edges([0, 1, 2], [1, 2, 0], num_nodes=3)
    starts = torch.arange(3).repeat(4_000)
    walks = draw_walks(Roads.of(triangle), starts, length=3, seed=3, return_weight=p, outward_weight=q).numpy()
    returned = np.array([(walks[:, 2] == walks[:, 0]).sum(), (walks[:, 2] != walks[:, 0]).sum()])
    assert_frequencies(returned, np.array([1 / p, 1.0]) / (1 / p + 1.0))


def test_the_number_of_trials_grows_with_the_bias_up_to_a_limit() -> None:
    assert num_trials(1.0, 1.0, 1.0) == 1
    assert num_trials(4.0, 1.0, 1.0) == 17
    assert num_trials(1000.0, 1.0, 0.001) == 64


def test_negatives_follow_degree_to_the_three_quarters() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    negatives = draw_negatives(Roads.of(graph), (300, 200), seed=11)
    assert negatives.shape == (300, 200)
    power = graph.in_degrees.numpy() ** 0.75
    assert (power == 0).any()
    assert_frequencies(np.bincount(negatives.reshape(-1), minlength=30), power / power.sum())


def test_starts_are_even() -> None:
    roads = Roads.of(make_random_graph(num_nodes=30, num_edges=90, seed=0))
    assert torch.equal(torch.bincount(draw_starts(roads, 90, seed=1), minlength=30), torch.full((30,), 3))
    few = torch.cat([draw_starts(roads, 7, seed=seed) for seed in range(3000)])
    assert_frequencies(torch.bincount(few, minlength=30).numpy(), np.full(30, 1 / 30))


def test_the_seed_alone_decides_and_may_be_a_tensor() -> None:
    graph = make_communities(num_nodes=60, num_classes=3, seed=0)
    method = make_method(60, return_weight=0.5)
    with torch.no_grad():
        method.context.normal_(generator=torch.Generator().manual_seed(1))
    loss, again, other = (float(method.loss(graph, [View(ViewSpec(), seed)])[0].detach()) for seed in (5, 5, 6))
    as_tensor = float(method.loss(graph, [View(ViewSpec(), torch.tensor(5))])[0].detach())
    assert loss == again == as_tensor != other


def numpy_loss(method: DeepWalk, walks: Array, negatives: Array, ends: Array) -> float:
    """Pair by pair. `ends`: the number of positions of each walk that count."""
    table, context = method.online.weight.detach().numpy(), method.context.detach().numpy()
    losses = []
    for walk, drawn, end in zip(walks, negatives, ends, strict=True):
        for i in range(end):
            for j in range(max(0, i - method.window_size), min(end, i + method.window_size + 1)):
                if i == j:
                    continue
                positive = np.log(1 + np.exp(-(table[walk[i]] @ context[walk[j]])))
                negative = np.mean([np.log(1 + np.exp(table[walk[i]] @ context[node])) for node in drawn])
                losses.append(positive + method.num_negatives * negative)
    return float(np.mean(losses))


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.5, 2.0)])
def test_loss_equals_an_independent_numpy_version(p: float, q: float) -> None:
    graph = make_graph_with_dead_ends()
    method = make_method(30, return_weight=p, outward_weight=q)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(2))
    loss, stats = method.loss(graph, [VIEW])
    roads, seed = Roads.of(graph), VIEW.seed
    starts = draw_starts(roads, 20, seed=seed)
    walks = draw_walks(roads, starts, length=12, seed=seed, return_weight=p, outward_weight=q).numpy()
    negatives = draw_negatives(roads, (20, 12), seed=seed).numpy()
    dead_end: Array = (adjacency(graph) == 0).all(axis=1)
    ends = np.array([next((k + 1 for k in range(12) if dead_end[walk[k]]), 12) for walk in walks])
    assert ends.min() == 1
    assert ends.max() == 12
    assert float(loss.detach()) == pytest.approx(numpy_loss(method, walks, negatives, ends), rel=1e-5)
    assert torch.equal(stats["embedding"], method.online.weight)


def test_a_step_without_any_pair_has_loss_zero_and_no_gradient() -> None:
    h = torch.randn(2, 4, 3, requires_grad=True)
    is_pair = find_pairs(torch.tensor([[True, False, False, False]] * 2), window_size=2)
    loss = skip_gram_loss(h, torch.randn(2, 4, 3), torch.randn(2, 4, 3), is_pair, num_negatives=5)
    torch.autograd.backward(loss)
    assert float(loss.detach()) == 0.0
    assert h.grad is not None
    assert not h.grad.any()


def test_isolated_nodes_are_not_moved() -> None:
    graph = make_graph_with_dead_ends()
    alone = (graph.in_degrees == 0) & (graph.transpose.indptr.diff() == 0)
    method = make_method(30, num_walks=60)
    torch.nn.init.normal_(method.context)
    torch.autograd.backward(method.loss(graph, [VIEW])[0])
    assert method.online.weight.grad is not None
    moved = method.online.weight.grad.abs().sum(1) > 0
    assert alone.any()
    assert not moved[alone].any()
    assert moved.any()


def test_embedding_is_the_table_and_other_graphs_are_refused() -> None:
    method = make_method(30)
    h = method.embed(make_random_graph(num_nodes=30, num_edges=60, seed=1))
    assert torch.equal(h, method.online.weight)
    assert not h.requires_grad
    for use in (method.embed, lambda graph: method.loss(graph, [VIEW])):
        with pytest.raises(InputError, match="30 nodes it was trained on"):
            use(make_random_graph(num_nodes=31, num_edges=60, seed=1))
    with pytest.raises(InputError, match="no edges"):
        method.loss(Graph.from_edges([], [], num_nodes=30), [VIEW])


def test_the_recipe_says_which_of_the_two_it_is() -> None:
    biased: dict[str, Any] = {"method.return_weight": 0.5, "method.outward_weight": 2.0}
    made = {}
    for name, settings in {"deepwalk": {}, "node2vec": biased}.items():
        recipe = Recipe().with_settings({**settings, "train.steps": 300, "method.name": name})
        made[name] = build_method(recipe, input_sizes=(12,), num_nodes=1000, seed=0)
    assert (made["deepwalk"].return_weight, made["deepwalk"].outward_weight) == (1.0, 1.0)
    assert (made["node2vec"].return_weight, made["node2vec"].outward_weight) == (0.5, 2.0)
    assert made["deepwalk"].num_walks == 34  # 34 * 300 is the least that gives each of 1000 nodes 10 walks
    assert made["deepwalk"].num_negatives == 5


@pytest.mark.parametrize("name", ["deepwalk", "node2vec"])
def test_training_finds_planted_communities(communities: Graph, name: str, tmp_path: Path) -> None:
    """Through the estimator: trained by the one loop, saved and loaded."""
    settings: dict[str, Any] = {
        "method.name": name,
        "method.walk_length": 20,
        **({"method.return_weight": 0.5, "method.outward_weight": 2.0} if name == "node2vec" else {}),
        "encoder.embedding_size": 16,
        "encoder.batch_norm_statistics": "recalibrated",
        "train.steps": 60,
        "train.learning_rate": 0.05,
    }
    model = Embedder(recipe=Recipe(), settings=settings, device="cpu").fit(communities)
    h = model.embed(communities)
    untrained = random_init(communities, model.recipe_, seed=0, device="cpu")
    assert evaluate(h, communities).mean > evaluate(untrained, communities).mean + 30
    assert model.metrics_[-1]["loss"] < model.metrics_[0]["loss"]
    model.save(tmp_path)
    assert np.array_equal(Embedder.load(tmp_path, device="cpu").embed(communities), h)


@pytest.mark.parametrize("name", ["deepwalk", "node2vec"])
def test_walks_read_digits(name: str) -> None:
    """Better than pixels do (91), and no worse with them beside the table."""
    graph = load("digits")
    settings: dict[str, Any] = {
        "method.name": name,
        "method.walk_length": 20,
        **({"method.outward_weight": 0.5} if name == "node2vec" else {}),
        "encoder.embedding_size": 32,
        "train.steps": 100,
        "train.learning_rate": 0.05,
    }
    model = Embedder(recipe=Recipe(), settings=settings, device="cpu").fit(graph)
    h = torch.from_numpy(model.embed(graph))
    untrained = evaluate(random_init(graph, model.recipe_, seed=0, device="cpu"), graph, num_runs=2).mean
    x = raw_features(graph)
    assert x is not None
    alone, pixels = evaluate(h, graph, num_runs=2).mean, evaluate(x, graph, num_runs=2).mean
    both = evaluate(with_features(h, graph), graph, num_runs=2).mean
    assert untrained < 30
    assert alone > pixels + 3
    assert both > pixels + 3


def test_features_stand_beside_the_table_sparse_where_they_are() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    h, x = torch.randn(30, 8, generator=torch.Generator().manual_seed(0)), graph.x
    assert isinstance(x, SparseMatrix)
    dense = with_features(h, graph.with_features(x.to_dense()))
    sparse = with_features(h, graph)
    assert isinstance(dense, torch.Tensor)
    assert isinstance(sparse, SparseMatrix)
    torch.testing.assert_close(sparse.to_dense(), dense)
    lengths = dense[:, :8].norm(dim=1), dense[:, 8:].norm(dim=1)
    torch.testing.assert_close(lengths[0], torch.ones(30))
    torch.testing.assert_close(lengths[1], (x.to_dense().abs().sum(1) > 0).float())
    with pytest.raises(InputError, match="no features"):
        with_features(h, graph.with_features(None))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["deepwalk", "node2vec"])
def test_a_captured_step_is_the_eager_one(name: str) -> None:
    biased = {"method.return_weight": 0.5} if name == "node2vec" else {}
    recipe = Recipe().with_settings({"method.name": name, **biased, "train.steps": 40, "train.precision": "fp32"})
    graph = make_communities(num_nodes=300, num_classes=3, seed=0).to("cuda")
    losses = []
    for kind in (EagerStep, CapturedStep):
        method = build_method(recipe, input_sizes=graph.num_features, num_nodes=300, seed=0).to("cuda")
        step = kind(method, graph, recipe=recipe, seed=0)
        losses.append([float(step(number)[0]) for number in range(1, 21)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
