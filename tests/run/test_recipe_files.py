"""Recipes as TOML: every shipped one parses, round trips, and matches the paper."""

from __future__ import annotations

import pytest

from graphstrap.errors import InputError
from graphstrap.run.recipe import load_recipe, parse_recipe, shipped_recipes

PAPER = {  # p_f1, p_f2, p_e1, p_e2, learning rate, embedding, hidden sizes, predictor
    "wikics": (0.2, 0.1, 0.2, 0.3, 5e-4, 256, (512,), 512),
    "amazon-computers": (0.2, 0.1, 0.5, 0.4, 5e-4, 128, (256,), 512),
    "amazon-photo": (0.1, 0.2, 0.4, 0.1, 1e-4, 256, (512,), 512),
    "coauthor-cs": (0.3, 0.4, 0.3, 0.2, 1e-5, 256, (512,), 512),
    "coauthor-physics": (0.1, 0.4, 0.4, 0.1, 1e-5, 128, (256,), 512),
    "ogbn-arxiv": (0.0, 0.0, 0.6, 0.6, 1e-2, 256, (256, 256), 256),
    "ppi": (0.25, 0.0, 0.3, 0.25, 5e-3, 512, (512, 512), 512),
}


@pytest.mark.parametrize("name", PAPER)
def test_shipped_recipes_are_the_papers(name: str) -> None:
    recipe = load_recipe(name)
    mask_1, mask_2, drop_1, drop_2, rate, embedding, hidden, predictor = PAPER[name]
    assert recipe.views.feature_mask_probs == (mask_1, mask_2)
    assert recipe.views.edge_drop_probs == (drop_1, drop_2)
    assert recipe.train.learning_rate == rate
    assert (recipe.encoder.hidden_sizes, recipe.encoder.embedding_size) == (hidden, embedding)
    assert recipe.method.predictor_hidden_size == predictor
    assert (recipe.train.steps, recipe.train.warmup_steps, recipe.train.weight_decay) == (10_000, 1_000, 1e-5)
    assert recipe.encoder.norm == {"ogbn-arxiv": "layer", "ppi": "graph"}.get(name, "batch")
    assert recipe.encoder.weight_standardization == (name == "ogbn-arxiv")
    assert recipe.encoder.batch_norm_decay == 0.99


@pytest.mark.parametrize(
    ("name", "encoder", "steps", "graphs_per_step"),
    [
        ("ppi", "mean-pooling", 10_000, 0),
        ("ppi-grace", "mean-pooling", 10_000, 0),
        ("ppi-gat", "gat", 20_000, 1),
        ("ppi-gat-grace", "gat", 20_000, 1),
    ],
)
def test_ppi_is_trained_as_in_the_paper(name: str, encoder: str, steps: int, graphs_per_step: int) -> None:
    recipe = load_recipe(name)
    assert recipe.encoder.name == encoder
    assert (recipe.train.steps, recipe.train.warmup_steps) == (steps, steps // 10)
    assert recipe.train.graphs_per_step == graphs_per_step
    assert recipe.data.training_graphs == "train-val"
    assert recipe.views == load_recipe("ppi").views
    assert recipe.method.name == ("grace" if name.endswith("grace") else "bgrl")


@pytest.mark.parametrize(
    ("name", "encoder", "sizes"), [("mag240m", "mpnn", (512, 512, 256)), ("mag240m-gcn", "gcn", (256, 128))]
)
def test_mag240m_is_trained_as_in_the_paper(name: str, encoder: str, sizes: tuple[int, ...]) -> None:
    recipe = load_recipe(name)
    settings, sampling, train = recipe.encoder, recipe.sampling, recipe.train
    assert (settings.name, (*settings.hidden_sizes, settings.embedding_size)) == (encoder, sizes)
    assert recipe.views.edge_drop_probs == (0.2, 0.2)
    assert recipe.views.feature_mask_probs == (0.4, 0.4)
    assert recipe.method.target_decay == 0.999
    assert (train.learning_rate, train.weight_decay, train.warmup_steps) == (1e-2, 1e-5, train.steps // 10)
    assert (sampling.batch_size, sampling.disjoint, sampling.by_time) == (1024, True, True)
    assert len(sampling.fan_outs) == 2
    hop = sampling.by_hop()[1]
    assert isinstance(hop, dict)
    assert hop["cites"] + hop["reverse_cites"] == 80  # papers of a paper; 20 authors
    assert (hop["writes"], hop["reverse_writes"], hop["reverse_affiliated_with"], hop["*"]) == (20, 40, 10, 0)


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_recipe_round_trips(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert parse_recipe(recipe.to_toml(), origin="again") == recipe


def test_all_eleven_datasets_of_the_paper_have_one() -> None:
    assert {*PAPER, "cora", "citeseer", "pubmed", "dblp"} <= set(shipped_recipes())


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(InputError, match="amazon-photo"):
        load_recipe("amazon-foto")
    with pytest.raises(InputError, match="cannot read nowhere"):
        load_recipe("nowhere/mine.toml")
