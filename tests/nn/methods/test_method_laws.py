"""What every method obeys: gradients, renumbering, half precision, seeds, and that training teaches it something."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from conftest import draw_views, make_communities, make_random_graph
from torch import nn

import graphstrap as gs
from graphstrap.graph import Graph, View, ViewSpec
from graphstrap.nn.methods import Method, build_method
from graphstrap.nn.model import Model
from graphstrap.run.recipe import Recipe
from graphstrap.train.loop import make_step

SPEC = ViewSpec(edge_drop_prob=0.3, feature_mask_prob=0.2)
CASES: dict[str, dict[str, Any]] = {
    "bgrl": {"method.name": "bgrl"},
    "bgrl with a projector": {"method.name": "bgrl", "method.projector_size": 8},
    "bgrl-cca": {"method.name": "bgrl-cca"},
    "grace": {"method.name": "grace"},
    "grace with 16 negatives": {"method.name": "grace", "method.num_negatives": 16},
    "gca": {"method.name": "gca", "views.centrality": "degree"},
    "barlow-twins": {"method.name": "barlow-twins"},
    "dgi": {"method.name": "dgi"},
    "gmi": {"method.name": "gmi"},
    "mvgrl": {"method.name": "mvgrl"},
}
every_method = pytest.mark.parametrize("case", CASES)
# Points above its untrained self on planted communities, and how it is trained there.
TWO_LAYERS = {"encoder.hidden_sizes": [16], "encoder.embedding_size": 3}
ONE_LAYER = {"encoder.hidden_sizes": [], "encoder.embedding_size": 16, "encoder.norm": "none"}
LESSONS: dict[str, tuple[dict[str, Any], float, int, float]] = {  # settings, rate, steps, points
    **dict.fromkeys(CASES, (TWO_LAYERS, 0.01, 60, 10.0)),
    "bgrl": (TWO_LAYERS, 0.01, 100, 5.0),
    "bgrl with a projector": (TWO_LAYERS, 0.01, 100, 5.0),
    "bgrl-cca": (TWO_LAYERS, 0.01, 100, 5.0),
    "dgi": (ONE_LAYER, 0.003, 200, 5.0),
    "gmi": (ONE_LAYER, 0.01, 100, 1.0),
    "mvgrl": (ONE_LAYER, 0.01, 100, 1.0),
}
NO_NORM = {"dgi", "gmi", "mvgrl"}


def build(case: str, graph: Graph, *, seed: int = 0, **more: Any) -> Method:
    settings = {"encoder.hidden_sizes": [16], "encoder.embedding_size": 8, "encoder.norm": "layer", **CASES[case]}
    recipe = Recipe().with_settings(settings | {key.replace("__", "."): value for key, value in more.items()})
    method: Method = build_method(recipe, input_sizes=graph.num_features, num_nodes=graph.num_nodes, seed=seed)
    return method


def views_of(method: Method, spec: ViewSpec = SPEC, *, step: int = 1) -> list[View]:
    return draw_views([spec] * method.num_views, seed=0, step=step)


def weights(method: Method) -> dict[str, nn.Parameter]:
    return dict(cast(nn.Module, method).named_parameters())


@every_method
def test_gradients_reach_every_weight_that_is_learned(case: str) -> None:
    graph = make_random_graph(num_nodes=40, num_edges=120, seed=0)
    method = build(case, graph)
    torch.autograd.backward(method.loss(graph, views_of(method))[0])
    for name, parameter in weights(method).items():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert bool(parameter.grad.any()), name
        else:
            assert parameter.grad is None, name


@every_method
def test_embeddings_follow_a_renumbering_of_the_nodes(case: str) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=0)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)  # node i of the old graph is node place[i] of the new one
    assert graph.x is not None
    renumbered = Graph.from_edges(
        place[graph.indices.long()], place[graph.targets], num_nodes=30, directed=True, x=graph.x.to_dense()[order]
    )
    method = build(case, graph)
    torch.testing.assert_close(method.embed(renumbered), method.embed(graph)[order], atol=1e-5, rtol=1e-5)


@every_method
def test_half_precision_moves_the_loss_little_and_keeps_it_in_float32(case: str) -> None:
    graph = make_random_graph(num_nodes=40, num_edges=120, seed=0)
    method = build(case, graph)
    exact, _ = method.loss(graph, views_of(method))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, stats = method.loss(graph, views_of(method))
        torch.autograd.backward(rounded)
    assert rounded.dtype == torch.float32
    assert float(rounded.detach()) == pytest.approx(float(exact.detach()), rel=0.05)
    assert bool(stats["embedding"].isfinite().all())
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in weights(method).values())


@every_method
def test_the_seed_gives_the_weights_and_the_clean_graph_the_embedding(case: str, communities: Graph) -> None:
    first, again, other = (build(case, communities, seed=seed) for seed in (4, 4, 5))
    h = first.embed(communities)
    assert not h.requires_grad
    assert torch.equal(h, again.embed(communities))
    assert not torch.equal(h, other.embed(communities))
    assert all(torch.equal(weight, weights(again)[name]) for name, weight in weights(first).items())


@every_method
def test_training_separates_planted_communities(case: str) -> None:
    graph = make_communities(num_nodes=300, num_classes=3, seed=1)
    settings, rate, steps, points = LESSONS[case]
    method = build(case, graph, **{"encoder.norm": "batch", **settings, "train.steps": steps})
    module = cast(nn.Module, method)
    untrained = gs.evaluate(method.embed(graph).numpy(), graph, num_runs=5).mean
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=rate)
    for step in range(steps):
        module.train()
        loss, _ = method.loss(graph, views_of(method, step=step))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        method.after_step(step)
    trained = gs.evaluate(method.embed(graph).numpy(), graph, num_runs=5).mean
    assert trained > untrained + points, (untrained, trained)


@pytest.mark.realdata
@every_method
def test_training_on_cora_beats_random_init(case: str, data_folder: object) -> None:
    graph = gs.load("cora")
    steps = 15 if case in ("grace", "gca") else 60  # with all other nodes as negatives a step takes half a second
    settings = {"train.steps": steps, "train.warmup_steps": 5, "train.learning_rate": 0.01, "train.precision": "fp32"}
    two = {"encoder.hidden_sizes": [64], "encoder.embedding_size": 32}
    one = {"encoder.hidden_sizes": [], "encoder.embedding_size": 64, "encoder.norm": "none"}
    recipe = Recipe().with_settings(CASES[case] | settings | (one if case in NO_NORM else two))
    model = Model.build(graph, recipe, seed=0)
    prepared = model.transform(graph)
    untrained = gs.evaluate(model.method.embed(prepared).numpy(), graph, num_runs=3).mean
    step = make_step(model.method, prepared, recipe=recipe, seed=0)
    for number in range(1, steps + 1):
        step(number)
    trained = gs.evaluate(model.method.embed(prepared).numpy(), graph, num_runs=3).mean
    assert trained > untrained + (3 if "projector" in case else 10), (untrained, trained)
