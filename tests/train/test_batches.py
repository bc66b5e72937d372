"""Training on sampled batches: learns, resumes bit for bit, and refuses what needs the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import make_communities

from graphstrap.api.estimator import BGRL
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.nn.methods import METHODS, Method
from graphstrap.run.folder import Run
from graphstrap.run.recipe import SAMPLED_METHODS, Recipe, parse_recipe
from graphstrap.train.batches import place_graph
from graphstrap.train.captured_step import make_step
from graphstrap.train.loop import train
from graphstrap.train.step import SampledStep
from graphstrap_lab.reproduce.mag_cells import mag_recipe

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
    return Recipe().with_settings({**SETTINGS, **{key.replace("__", "."): value for key, value in more.items()}})


def make_method(graph: Graph, settings: Recipe) -> Method:
    more = {"num_classes": graph.num_classes} if settings.method.name == "semi-supervised" else {}
    return METHODS[settings.method.name](
        settings, input_sizes=graph.num_features, num_nodes=graph.num_nodes, seed=0, **more
    )


def states_equal(one: Method, other: Method) -> bool:
    pairs = zip(
        cast(torch.nn.Module, one).state_dict().values(),
        cast(torch.nn.Module, other).state_dict().values(),
        strict=True,
    )
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", SAMPLED_METHODS)
@pytest.mark.parametrize("disjoint", [False, True])
def test_every_method_that_can_learns_from_batches(communities: Graph, name: str, disjoint: bool) -> None:
    settings = recipe(method__name=name, method__num_negatives=8, sampling__disjoint=disjoint)
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
    first, second = (BGRL(recipe=settings, device=device).fit(make_graph()).model_.method for _ in range(2))
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
    assert type(step) is SampledStep
    seen = [step.batch(number) for number in range(1, 5)]
    step.close()
    roots = torch.cat([batch.node_ids[:32] for batch in seen if batch.node_ids is not None])
    assert len(torch.unique(roots)) == 120


def test_sampled_embeddings_are_as_good_as_full_ones() -> None:
    graph = make_communities(num_nodes=600, num_classes=3, seed=1)
    scores = []
    for fan_outs in ([], [5, 5]):
        settings = {"train.steps": 60, "sampling.fan_outs": fan_outs, "sampling.batch_size": 128}
        h = torch.from_numpy(BGRL(settings=settings, device="cpu").fit(graph).embed(graph))
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
    assert place_graph(communities, recipe(), torch.device("cpu")) is communities


@pytest.mark.gpu
def test_a_graph_on_the_host_gives_the_batches_of_one_on_the_device(communities: Graph) -> None:
    device = torch.device("cuda", 0)
    methods = []
    for storage in ("host", "device"):
        settings = recipe(sampling__storage=storage, train__precision="fp32")
        placed = place_graph(communities, settings, device)
        assert (placed.device.type == "cuda") == (storage == "device")
        method = make_method(replace(communities), settings)
        cast(torch.nn.Module, method).to(device)
        train(method, placed, recipe=settings, seed=0)
        methods.append(method)
    assert states_equal(*methods)
