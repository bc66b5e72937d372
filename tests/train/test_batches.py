"""Roots, batches made ahead, and training on them: learns, resumes bit for bit, refuses what needs the whole graph."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import make_communities, make_random_graph, train

from graphstrap.api.estimator import Embedder
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.nn.methods import Method, build_method
from graphstrap.nn.model import Model
from graphstrap.run.folder import Run
from graphstrap.run.recipe import METHODS, Recipe, parse_recipe
from graphstrap.train.batches import Prefetcher, roots_at
from graphstrap.train.loop import make_step
from graphstrap.train.sampling.draw import permuted
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer
from graphstrap.train.step import EagerStep
from graphstrap_lab.reproduce.mag import mag_recipe


@pytest.mark.parametrize("size", [1, 2, 3, 10, 99, 100, 101, 1023, 4097])
def test_an_order_holds_every_number_once(size: int) -> None:
    assert torch.equal(permuted(torch.arange(size), size=size, seed=7).sort().values, torch.arange(size))


def test_every_number_is_equally_likely_at_every_place() -> None:
    size, num_orders = 12, 3000
    counts = torch.zeros(size, size)
    for seed in range(num_orders):
        counts[torch.arange(size), permuted(torch.arange(size), size=size, seed=seed)] += 1
    expected = num_orders / size
    assert float(((counts - expected) ** 2 / expected).sum()) < 174  # 121 degrees of freedom, 99.9 %


def test_an_epoch_visits_every_candidate_once() -> None:
    candidates = torch.arange(100, 160)
    visited = torch.cat([roots_at(step, candidates=candidates, batch_size=15, seed=3) for step in range(1, 5)])
    assert torch.equal(visited.sort().values, candidates)
    second = torch.cat([roots_at(step, candidates=candidates, batch_size=15, seed=3) for step in range(5, 9)])
    assert torch.equal(second.sort().values, candidates)
    assert not torch.equal(visited, second)


@pytest.mark.parametrize(("size", "batch_size"), [(7, 4), (10, 9), (5, 5), (5, 50), (1000, 7)])
def test_a_batch_has_no_node_twice_across_the_end_of_an_epoch(size: int, batch_size: int) -> None:
    for step in range(1, 60):
        roots = roots_at(step, candidates=size, batch_size=batch_size, seed=0)
        assert len(roots) == len(torch.unique(roots)) == min(size, batch_size)
        assert torch.equal(roots, roots_at(step, candidates=size, batch_size=batch_size, seed=0))


CPU = torch.device("cpu")


def make_maker(graph: Graph) -> tuple[Sampler, Gatherer]:
    return Sampler(graph, [4, 3]), Gatherer(graph)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_batches_do_not_depend_on_how_far_ahead_they_are_made(depth: int) -> None:
    graph = make_random_graph(num_nodes=300, num_edges=4000, seed=1)
    sampler, gatherer = make_maker(graph)

    def make(step: int) -> Graph:
        roots = roots_at(step, candidates=300, batch_size=20, seed=0)
        return gatherer.fill(sampler.sample(roots, seed=0, step=step))

    expected = {step: make(step) for step in range(1, 8)}
    prefetcher = Prefetcher(make, last_step=7, device=CPU, depth=depth)
    for step in (1, 2, 3, 6, 7, 2):  # in order, then with a leap and back
        batch = prefetcher(step)
        assert batch.edge_ids is not None
        assert torch.equal(batch.edge_ids, expected[step].edge_ids)  # type: ignore[arg-type]
    prefetcher.close()


def test_the_next_batch_is_made_while_this_one_is_used() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=40, seed=1)
    begun = {step: threading.Event() for step in range(1, 4)}

    def make(step: int) -> Graph:
        begun[step].set()
        return graph

    prefetcher = Prefetcher(make, last_step=3, device=CPU, depth=1)
    prefetcher(1)
    assert begun[2].wait(timeout=30)
    assert not begun[3].is_set()
    prefetcher.close()


def test_a_failure_is_raised_at_its_step() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=40, seed=1)

    def make(step: int) -> Graph:
        if step == 2:
            raise RuntimeError("disk gone")
        return graph

    prefetcher = Prefetcher(make, last_step=5, device=CPU, depth=2)
    assert prefetcher(1) is graph
    with pytest.raises(RuntimeError, match="disk gone"):
        prefetcher(2)
    prefetcher.close()


SETTINGS: dict[str, Any] = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "method.predictor_hidden_size": 16,
    "sampling.fan_outs": [4, 3],
    "sampling.batch_size": 32,
    "train.steps": 30,
    "train.warmup_steps": 3,
    "train.learning_rate": 0.01,
    "train.log_every": 5,
    "train.checkpoint_seconds": 0.0,
}


def recipe(**more: Any) -> Recipe:
    return Recipe().with_settings(SETTINGS).with_settings({k.replace("__", "."): value for k, value in more.items()})


def make_method(graph: Graph, settings: Recipe) -> Method:
    more = {"num_classes": graph.num_classes} if settings.method.name == "semi-supervised" else {}
    method: Method = build_method(settings, input_sizes=graph.num_features, num_nodes=graph.num_nodes, seed=0, **more)
    return method


def states_equal(one: Method, other: Method) -> bool:
    pairs = zip(
        cast(torch.nn.Module, one).state_dict().values(),
        cast(torch.nn.Module, other).state_dict().values(),
        strict=True,
    )
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", [m for m in METHODS if METHODS.get(m).takes_samples and METHODS.get(m).is_trained])
@pytest.mark.parametrize("disjoint", [False, True])
def test_every_method_that_can_learns_from_batches(communities: Graph, name: str, disjoint: bool) -> None:
    negatives = {"method__num_negatives": 8} if name in ("grace", "gca") else {}
    settings = recipe(method__name=name, sampling__disjoint=disjoint, **negatives)
    records = train(make_method(communities, settings), communities, recipe=settings, seed=0)
    assert records[-1]["step"] == 30
    assert records[-1]["loss"] < records[0]["loss"]


@pytest.mark.parametrize("encoder", ["gcn", "mean-pooling", "gat", "mpnn", "mlp"])
def test_encoders_see_batches(communities: Graph, encoder: str) -> None:
    settings = recipe(encoder__name=encoder)
    records = train(make_method(communities, settings), communities, recipe=settings, seed=0)
    assert records[-1]["loss"] < records[0]["loss"]


@pytest.mark.parametrize("cut", [1, 7, 29])
def test_a_sampled_run_resumes_bit_for_bit(communities: Graph, tmp_path: Path, cut: int) -> None:
    settings = recipe()
    whole = make_method(communities, settings)
    train(whole, communities, recipe=settings, seed=0)
    run = Run.create(tmp_path / "run", recipe=settings, source={}, seed=0, device="cpu", graph=communities)

    def fail(method: Method) -> dict[str, float]:
        raise RuntimeError("power cut")

    cut_here = recipe(train__evaluate_every=cut)
    with pytest.raises(RuntimeError, match="power cut"):
        train(make_method(communities, settings), communities, recipe=cut_here, seed=0, run=run, evaluate=fail)
    resumed = make_method(communities, settings)
    train(resumed, communities, recipe=settings, seed=0, run=Run.open(run.folder))
    assert states_equal(whole, resumed)


def assert_repeats(settings: Recipe, make_graph: Callable[[], Graph], device: str) -> None:
    first, second = (Embedder(recipe=settings, device=device).fit(make_graph()).model_.method for _ in range(2))
    assert states_equal(first, second)


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ["gcn", "mean-pooling", "gat", "mpnn"])
def test_sampled_training_on_cuda_repeats_bit_for_bit(communities: Graph, encoder: str) -> None:
    assert_repeats(recipe(encoder__name=encoder), lambda: communities, "cuda")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("row", ["mag-supervised", "mag-bgrl-1", "mag-grace-256"])
def test_training_by_mag240ms_recipe_repeats_bit_for_bit(row: str, device: str) -> None:
    few = {"train.steps": 6, "train.warmup_steps": 1, "train.evaluate_every": 0}
    settings = mag_recipe(row, "mag-like-0.0005", quick=True).with_settings(few)
    assert_repeats(settings, lambda: mag(0.0005, device=device), device)


def test_making_batches_ahead_changes_nothing(communities: Graph) -> None:
    methods = []
    for depth in (0, 3):
        settings = recipe(sampling__prefetch=depth)
        methods.append(make_method(communities, settings))
        train(methods[-1], communities, recipe=settings, seed=0)
    assert states_equal(*methods)


def test_steps_see_different_roots_and_every_node_is_one(communities: Graph) -> None:
    settings = recipe()
    step = make_step(make_method(communities, settings), communities, recipe=settings, seed=0)
    assert type(step) is EagerStep
    assert isinstance(step.batches, Prefetcher)
    seen = [step.batch(number) for number in range(1, 5)]
    step.close()
    roots = torch.cat([batch.node_ids[:32] for batch in seen if batch.node_ids is not None])
    assert len(torch.unique(roots)) == 120


def test_sampled_embeddings_are_as_good_as_full_ones() -> None:
    graph = make_communities(num_nodes=600, num_classes=3, seed=1)
    scores = []
    for fan_outs in ([], [5, 5]):
        settings = {"train.steps": 60, "sampling.fan_outs": fan_outs, "sampling.batch_size": 128}
        h = torch.from_numpy(Embedder(settings=settings, device="cpu").fit(graph).embed(graph))
        h = torch.nn.functional.normalize(h - h.mean(0), dim=1)
        assert graph.labels is not None
        same = graph.labels[:, None] == graph.labels
        scores.append(float((h @ h.T)[same].mean() - (h @ h.T)[~same].mean()))
    assert scores[1] > 0.8 * scores[0] > 0.1


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(InputError, match="gmi sees the whole graph"):
        recipe(method__name="gmi")
    with pytest.raises(InputError, match="1 hops, but the encoder has 2 layers"):
        recipe(sampling__fan_outs=[4])
    with pytest.raises(InputError, match=r"sampling\.disjoint"):
        recipe(sampling__by_time=True)
    with pytest.raises(InputError, match="cites=40,40"):
        recipe(sampling__relation_fan_outs=["cites=4"])
    with pytest.raises(InputError, match="take layer or batch"):
        recipe(encoder__norm="graph")
    with pytest.raises(InputError, match="draws whole graphs"):
        recipe(train__graphs_per_step=1)


def test_fan_outs_by_relation_survive_toml() -> None:
    settings = recipe(sampling__relation_fan_outs=["cites=7,0"])
    assert parse_recipe(settings.to_toml(), origin="test").sampling == settings.sampling
    assert settings.sampling.by_hop() == [{"*": 4, "cites": 7}, {"*": 3, "cites": 0}]


def test_a_graph_stays_on_the_host_only_where_that_is_asked_for(communities: Graph) -> None:
    model = Model.build(communities, recipe(), seed=0)
    assert model.place(communities, torch.device("cpu")) is communities


@pytest.mark.gpu
def test_a_graph_on_the_host_gives_the_batches_of_one_on_the_device(communities: Graph) -> None:
    device = torch.device("cuda", 0)
    methods = []
    for storage in ("host", "device"):
        settings = recipe(sampling__storage=storage, train__precision="fp32")
        placed = Model.build(communities, settings, seed=0).place(communities, device)
        assert (placed.device.type == "cuda") == (storage == "device")
        method = make_method(replace(communities), settings)
        cast(torch.nn.Module, method).to(device)
        train(method, placed, recipe=settings, seed=0)
        methods.append(method)
    assert states_equal(*methods)
