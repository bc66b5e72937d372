"""The default recipe follows the graph's statistics and says why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import make_communities, make_random_graph

import graphstrap as gs
from graphstrap.graph import Graph
from graphstrap.graph.blocks import dense
from graphstrap.run.defaults import OWN_COLUMNS, choose_recipe, resolve_recipe
from same_graph import make_hetero_graph


def with_columns(num_columns: int) -> Graph:
    graph = make_communities(num_nodes=60, num_classes=3, seed=0)
    return graph.with_features(torch.randn(60, num_columns, generator=torch.Generator().manual_seed(0)))


def test_counts_are_scaled_by_row_and_measurements_by_column() -> None:
    assert choose_recipe(make_random_graph(num_nodes=50, num_edges=100, seed=0))[0].data.feature_scaling == "row"
    assert choose_recipe(with_columns(5))[0].data.feature_scaling == "column"


def test_more_columns_are_masked_more() -> None:
    masks = [choose_recipe(with_columns(n))[0].views.feature_mask_probs[0] for n in (5, 50, 500)]
    assert masks == sorted(masks)
    assert masks[0] < masks[-1]


def test_every_choice_is_explained_and_the_recipe_is_valid() -> None:
    recipe, reasons = choose_recipe(with_columns(50))
    assert recipe.name == "default"
    assert recipe.train.steps <= 1000
    assert len(reasons) >= 5
    assert any(str(recipe.train.steps) in reason for reason in reasons)
    assert recipe.with_settings({"train.steps": 10}).train.warmup_steps == 1


def test_norms_that_collapse_at_a_high_rate_get_a_lower_one_unless_it_is_given() -> None:
    graph = with_columns(5)
    for norm, rate in (("batch", 1e-2), ("layer", 1e-3), ("none", 1e-3)):
        recipe, reasons = resolve_recipe("default", graph, {"encoder.norm": norm})
        assert (recipe.encoder.norm, recipe.train.learning_rate) == (norm, rate)
        assert any(f"rate {rate}" in reason for reason in reasons)
    given, _ = resolve_recipe("default", graph, {"encoder.norm": "layer", "train.learning_rate": 0.5})
    assert given.train.learning_rate == 0.5


def test_large_graphs_are_trained_longer() -> None:
    graphs = [make_random_graph(num_nodes=n, num_edges=n, seed=0) for n in (4_999, 5_000)]
    assert [choose_recipe(graph)[0].train.steps for graph in graphs] == [300, 1000]


def test_what_is_said_is_what_runs() -> None:
    settings = {"train.steps": 7, "encoder.hidden_sizes": [], "encoder.embedding_size": 32}
    _, reasons = resolve_recipe("default", with_columns(5), settings)
    said = "\n".join(reasons)
    assert all(words in said for words in ("7 steps", "layers of 32:", "64 columns of own features"))
    _, reasons = resolve_recipe("default", with_columns(5), {**settings, "data.structural_columns": "missing"})
    assert any(reason.startswith("5 columns of own features") for reason in reasons)
    _, reasons = resolve_recipe("default", with_columns(5).with_features(None), {})
    assert not any("there are 0" in reason for reason in reasons)


def test_nothing_is_said_of_what_a_method_does_not_read() -> None:
    def said(settings: dict[str, Any]) -> str:
        return "\n".join(resolve_recipe("default", with_columns(5), settings)[1])

    assert "masked" not in said({"method.name": "dgi"})
    walks = said({"method.name": "deepwalk", "encoder.embedding_size": 32})
    assert "a row of 32 columns" in walks
    assert "64 columns of own features" in walks
    assert "layers" not in walks
    assert "masked" not in walks
    assert "probability 0.1 and 0.9" in said({"views.feature_mask_probs": [0.1, 0.9]})
    assert "own features" not in said({"encoder.own_features": 0})
    assert "there are 5, and " in said({"data.structural_columns": "always"})


def with_signal(num_columns: int) -> Graph:
    """Columns that neighbours share beside noise of the same size."""
    graph = make_communities(num_nodes=600, num_classes=3, seed=0)
    assert graph.labels is not None
    noise = torch.randn(600, num_columns, generator=torch.Generator().manual_seed(0))
    return graph.with_features(noise + 2 * F.one_hot(graph.labels, num_columns))


def test_features_that_say_little_of_the_graph_get_structural_columns() -> None:
    """By what they say of it, not by whether there are any, in any unit; and it is said."""

    def has_structural(graph: Graph, settings: dict[str, Any] | None = None) -> bool:
        recipe, reasons = resolve_recipe("default", graph, settings or {})
        is_said = any("structural columns beside the features" in reason for reason in reasons)
        assert is_said == (recipe.data.structural_columns == "always")
        return is_said

    noise = torch.randn(600, 40, generator=torch.Generator().manual_seed(1))
    graph = with_signal(40)
    assert graph.x is not None
    assert not has_structural(graph)
    assert not has_structural(graph.with_features(dense(graph.x) * 1e-9))
    assert not has_structural(graph.with_features(dense(graph.x) + 5.0))
    for columns in (noise, noise[:, :1], noise.relu() * (noise > 1), dense(graph.x)[:, :3]):
        assert has_structural(graph.with_features(columns))
    by_time = {"sampling.by_time": True, "sampling.disjoint": True, "sampling.fan_outs": [5, 5]}
    assert not has_structural(graph.with_features(noise), by_time)
    without_edges = Graph.from_edges([], [], x=noise)
    assert not has_structural(without_edges)


def test_one_column_of_noise_does_not_hide_the_graph() -> None:
    """A column beside a graph with planted communities must not cost what the graph alone would give."""
    graph = make_communities(num_nodes=600, num_classes=4, seed=0)
    year = graph.with_features(torch.randn(600, 1, generator=torch.Generator().manual_seed(0)))
    found = [
        gs.evaluate(gs.Instant(seed=0).fit(g).embed(g), g, num_runs=3).mean for g in (graph.with_features(None), year)
    ]
    assert found[1] > found[0] - 3


@pytest.mark.parametrize(("encoder", "sizes"), [("gcn", (512, 256)), ("gat", (128, 256)), ("mpnn", (128, 64))])
def test_encoders_that_work_on_edges_are_narrower(encoder: str, sizes: tuple[int, int]) -> None:
    recipe, _ = resolve_recipe("default", with_columns(5), {"encoder.name": encoder})
    assert (*recipe.encoder.hidden_sizes, recipe.encoder.embedding_size) == sizes
    assert recipe.method.predictor_hidden_size == sizes[1]


def test_own_features_stand_beside_where_nodes_have_some() -> None:
    graph = with_columns(5)
    assert choose_recipe(graph)[0].encoder.own_features == OWN_COLUMNS
    assert choose_recipe(graph.with_features(None))[0].encoder.own_features == 0
    assert choose_recipe(make_hetero_graph(seed=0))[0].encoder.own_features == 0


@pytest.mark.parametrize(("num_nodes", "weight"), [(499, 2.0), (500, 1.0)])
def test_in_small_graphs_own_features_count_twice(num_nodes: int, weight: float) -> None:
    graph = make_random_graph(num_nodes=num_nodes, num_edges=900, seed=0)
    recipe, reasons = choose_recipe(graph)
    assert recipe.encoder.own_weight == weight
    assert any("2 times as long" in reason for reason in reasons) == (weight == 2.0)
    assert choose_recipe(graph.with_features(None))[0].encoder.own_weight == 1.0
    assert resolve_recipe("default", graph, {"encoder.own_features": 0})[0].encoder.own_weight == 1.0


def test_graphs_without_features_have_a_default_too() -> None:
    recipe, reasons = choose_recipe(make_communities(num_nodes=60, num_classes=3, seed=0).with_features(None))
    assert any("structural" in reason for reason in reasons)
    assert recipe.views.feature_mask_probs[0] < 0.5


@pytest.mark.realdata
@pytest.mark.slow
def test_default_beats_raw_features_and_random_init_on_cora(data_folder: object) -> None:
    import graphstrap as gs
    from graphstrap.api.estimator import random_init

    graph = gs.load("cora")
    model = gs.Embedder(seed=0, device="cpu", settings={"train.steps": 150}).fit(graph)
    assert graph.x is not None
    baselines = [graph.x, random_init(graph, model.recipe_, seed=0, device="cpu")]
    trained = gs.evaluate(model.embed(graph), graph, num_runs=3).mean
    assert trained > max(gs.evaluate(h, graph, num_runs=3).mean for h in baselines) + 1
