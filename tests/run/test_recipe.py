"""Recipes: every mistake is named, and settings replace what they name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from graphstrap.errors import InputError
from graphstrap.run.recipe import ENCODERS, Recipe, TrainRecipe, check_new, parse_recipe
from graphstrap.run.settings import parse_settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[train]\nstepz = 5", "'train.stepz'; did you mean 'train.steps'"),
        ("[trian]\nsteps = 5", "'trian'; did you mean 'train'"),
        ("[train]\nsteps = 'many'", "train.steps takes a whole number"),
        ("[train]\nsteps = true", "train.steps takes a whole number"),
        ("[train]\nsteps = 0", "train.steps must be at least 1"),
        ("[train]\nlearning_rate = nan", "between 0.0 and 10.0"),
        ("[encoder]\nnorm = 'group'", "one of batch, layer, graph, none"),
        ("[encoder]\nhidden_sizes = 256", "takes a list"),
        ("[views]\nedge_drop_probs = [0.1]", "takes 2 values, got 1"),
        ("[views]\nedge_drop_probs = [0.1, 1.5]", "between 0.0 and 1.0"),
        ("train = 5", r"\[train\]"),
        ("[train", "not valid TOML"),
        ("[train]\nsteps = 5\nwarmup_steps = 6", "must not exceed"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_recipe(text, origin="mine.toml")


def test_settings_are_typed_and_fewer_steps_shorten_the_warmup() -> None:
    settings = parse_settings(
        ["train.steps=2000", "encoder.norm=layer", "encoder.hidden_sizes=[64, 32]", "train.learning_rate=1"]
    )
    recipe = Recipe().with_settings(settings)
    assert (recipe.train.steps, recipe.train.warmup_steps) == (2000, 200)
    assert recipe.encoder.norm == "layer"
    assert recipe.encoder.hidden_sizes == (64, 32)
    assert recipe.train.learning_rate == 1.0


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("train.steps", "KEY=VALUE"),
        ("train.steps=abc", "whole number"),
        ("encoder.nrom=layer", "did you mean 'encoder.norm'"),
        ("steps=5", "did you mean 'train.steps'"),
        ("method.dropout_prob=0.5", "no setting 'method.dropout_prob'"),
    ],
)
def test_wrong_settings_are_named(assignment: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Recipe().with_settings(parse_settings([assignment]))


def test_settings_that_there_are_no_more_are_read_where_they_changed_nothing() -> None:
    assert parse_recipe("[method]\ndropout_prob = 0.3", origin="old.toml").method == Recipe().method


def test_a_method_keeps_what_it_shares_with_the_one_before() -> None:
    recipe = Recipe().with_settings({"method.projector_size": 32, "method.target_decay": 0.9, "encoder.bias": False})
    other = recipe.with_settings({"method.name": "grace", "encoder.name": "mean-pooling"})
    assert (other.method.projector_size, other.encoder.bias) == (32, False)
    assert not hasattr(other.method, "target_decay")
    assert other.with_settings({"method.name": "bgrl"}).method.target_decay == 0.99


def test_files_of_before_hold_the_settings_of_all_methods() -> None:
    text = '[method]\nname = "grace"\ntarget_decay = 0.99\ntemperature = 0.2\n[encoder]\nnum_heads = 4\n'
    assert parse_recipe(text, origin="old.toml").method.temperature == 0.2
    with pytest.raises(InputError, match=r"no setting 'method\.temperatur'; did you mean 'method\.temperature'"):
        parse_recipe(text.replace("temperature", "temperatur"), origin="old.toml")
    with pytest.raises(InputError, match="target_decay is a setting of bgrl, bgrl-cca, semi-supervised, not of grace"):
        parse_recipe(text, origin="old.toml").with_settings({"method.target_decay": 0.5})


def test_gca_has_a_centrality_unless_it_is_said_to_have_none() -> None:
    assert Recipe().with_settings({"method.name": "gca"}).views.centrality == "pagerank"
    by_degree = Recipe().with_settings({"views.centrality": "degree"})
    assert by_degree.with_settings({"method.name": "gca"}).views.centrality == "degree"
    for chosen in ("none", "degree"):
        settings = {"method.name": "gca", "views.centrality": chosen}
        recipe = Recipe().with_settings(settings)
        assert recipe.views.centrality == recipe.with_settings({"train.steps": 5}).views.centrality == chosen
        assert parse_recipe(recipe.to_toml(), origin="run").views.centrality == chosen


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"encoder.name": "gat", "encoder.bias": False}, "encoder.bias is a setting of gcn, mean-pooling, not of gat"),
        (
            {"method.name": "grace", "method.embed_with": "target"},
            "method.embed_with is a setting of bgrl, bgrl-cca, semi-supervised, not of grace",
        ),
        (
            {"method.name": "grace", "method.target_hops": 1},
            "method.target_hops is a setting of bgrl, bgrl-cca, semi-supervised, not of grace",
        ),
        ({"method.name": "deepwalk", "encoder.name": "gat"}, "no encoder"),
        (
            {"method.name": "deepwalk", "method.return_weight": 2.0},
            "return_weight is a setting of node2vec, not of deepwalk",
        ),
        ({"method.name": "dgi", "views.centrality": "degree"}, "dgi has none"),
        ({"sampling.fan_outs": [3, 3], "sampling.batch_size": 1}, "larger sampling.batch_size"),
        (
            {
                "method.name": "semi-supervised",
                "sampling.fan_outs": [3, 3],
                "sampling.disjoint": True,
                "sampling.batch_size": 16,
            },
            "16 roots has one with a label",
        ),
        ({"sampling.disjoint": True}, "sampling.disjoint is for sampled batches"),
        ({"sampling.disjoint": True, "sampling.by_time": True}, "sampling.by_time is for sampled batches"),
        ({"sampling.root_types": ["paper"]}, "sampling.root_types is for sampled batches"),
        (
            {"sampling.fan_outs": [5, 5], "sampling.root_types": ["paper"], "method.name": "semi-supervised"},
            "node types that have labels",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_new(Recipe().with_settings(settings))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Recipe(train=TrainRecipe(steps=0, warmup_steps=0)), "train.steps must be at least 1"),
        (lambda: Recipe(train=TrainRecipe(learning_rate=-0.1)), "between 0.0 and 10.0"),
        (
            lambda: replace(Recipe(), encoder=ENCODERS.get("gcn").Settings(norm="group")),
            "one of batch, layer, graph, none",
        ),
        (lambda: Recipe(name=5), "name takes text"),  # type: ignore[arg-type]
        (lambda: Recipe(train={"steps": 5}), "train takes a TrainRecipe"),  # type: ignore[arg-type]
    ],
)
def test_constructors_are_checked_too(make: Callable[[], Recipe], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()
