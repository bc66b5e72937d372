"""Graphs to measure on, each with the recipe that it is trained by: datasets by name, and made ones with hubs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.graph.blocks import row_starts
from graphstrap.io.datasets import DATASETS, load
from graphstrap.nn.features import FeatureTransform
from graphstrap.run.defaults import choose_recipe
from graphstrap.run.recipe import ENCODERS, METHODS, DataRecipe, Recipe, load_recipe, shipped_recipes

# Ends of edges are drawn as the rank u ** HUB_POWER of a node, u uniform: the node of rank r has a degree in proportion
# to r ** -0.6, which makes the number of nodes of degree k fall as k ** -2.67.
HUB_POWER = 2.5
EDGES_PER_NODE = 16

# On graphs without a recipe of their own: the widths that are compared.
WIDTHS = {
    "stdlib": {"encoder.hidden_sizes": (256,), "encoder.embedding_size": 128, "method.predictor_hidden_size": 512}
}
LIKE_WIKICS = "wikics-like"


def power_law_graph(num_nodes: int, *, num_features: int, seed: int, device: torch.device) -> Graph:
    """16 directed edges a node, every edge with its reverse, hubs at both ends, dense normal features.

    8 N pairs are drawn, one end uniform and the other by a power law, and both directions sorted into CSR on the
    device: linear but for the sort. A pair that is drawn twice stays twice; there are no self-loops.
    """
    generator = torch.Generator(device).manual_seed(seed)
    num_pairs = num_nodes * EDGES_PER_NODE // 2
    hub = _power_law_nodes(num_pairs, num_nodes=num_nodes, generator=generator)
    other = torch.randint(num_nodes - 1, (num_pairs,), generator=generator, device=device)
    other += other >= hub  # any node but the hub itself
    keys = torch.cat([hub * num_nodes + other, other * num_nodes + hub])  # (E,) target * N + source
    del hub, other
    keys = keys.sort().values
    indices = (keys % num_nodes).to(torch.int32 if num_nodes < 2**31 else torch.int64)
    indptr = row_starts(torch.bincount(keys // num_nodes, minlength=num_nodes))
    x = torch.randn(num_nodes, num_features, generator=generator, device=device)
    return Graph(indptr=indptr, indices=indices, features=(x,), name=f"power-law-{num_nodes}")


def tiny_graph_like(graph: Graph) -> Graph:
    """Of 64 nodes with as many features: a step on it loads the libraries."""
    return power_law_graph(64, num_features=graph.num_features[0], seed=0, device=torch.device("cpu"))


def wikics_like(*, seed: int = 0) -> Graph:
    """A random graph of WikiCS's shape: 11,701 nodes, 431,726 directed edges, hubs, 300 dense columns."""
    num_nodes, num_pairs = 11_701, 431_726 // 2
    generator = torch.Generator().manual_seed(seed)
    hub = _power_law_nodes(2 * num_pairs, num_nodes=num_nodes, generator=generator)
    other = _power_law_nodes(2 * num_pairs, num_nodes=num_nodes, generator=generator)
    low, high = torch.minimum(hub, other), torch.maximum(hub, other)
    pairs = torch.unique((low * num_nodes + high)[low != high])
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[:num_pairs]]
    x = torch.randn(num_nodes, 300, generator=generator)
    return Graph.from_edges(pairs // num_nodes, pairs % num_nodes, x=x, num_nodes=num_nodes, name=LIKE_WIKICS)


def load_with_recipe(name: str, *, precision: str | None = None) -> tuple[Graph, Recipe]:
    """A graph ready for its encoder, and its recipe: the one of its name, or else `default`."""
    graph = wikics_like() if name == LIKE_WIKICS else load(name)
    known = "wikics" if name == LIKE_WIKICS else graph.name
    recipe = load_recipe(known) if known in shipped_recipes() else choose_recipe(graph)[0]
    recipe = recipe.with_settings({**WIDTHS.get(name, {}), **precision_settings(precision)})
    return prepare_for(graph, recipe), recipe


def recipe_of_sizes(hidden_size: int, embedding_size: int, predictor_hidden_size: int) -> Recipe:
    """Of BGRL on made graphs, whose features need no scaling."""
    return Recipe(
        name="made",
        data=DataRecipe(feature_scaling="none"),
        encoder=ENCODERS.get("gcn").Settings(hidden_sizes=(hidden_size,), embedding_size=embedding_size),
        method=METHODS.get("bgrl").Settings(predictor_hidden_size=predictor_hidden_size),
    )


def prepare_for(graph: Graph, recipe: Recipe) -> Graph:
    """The graph with features as the recipe's encoder takes them."""
    data = recipe.data
    transform = FeatureTransform.fit(graph, scaling=data.feature_scaling, structural_size=data.structural_size)
    return transform(graph).with_readable_features()


def precision_settings(precision: str | None) -> dict[str, Any]:
    """None is what the recipe says."""
    return {} if precision is None else {"train.precision": precision}


def default_names(device: torch.device) -> list[str]:
    """The paper's graphs that are on this disk, a made one in the place of WikiCS; on a CPU those that take seconds."""
    wikics = "wikics" if is_on_disk("wikics") else LIKE_WIKICS
    if device.type == "cpu":
        return [name for name in ("stdlib", "amazon-computers") if is_on_disk(name)]
    names = ("amazon-photo", wikics, "amazon-computers", "coauthor-cs", "coauthor-physics")
    return [name for name in names if name == LIKE_WIKICS or is_on_disk(name)]


def is_on_disk(name: str) -> bool:
    return DATASETS[name].describe(name).on_disk


def _power_law_nodes(count: int, *, num_nodes: int, generator: torch.Generator) -> Tensor:
    """(count,) nodes; which node has which rank is drawn too, so that hubs lie anywhere."""
    device = generator.device
    uniform = torch.rand(count, generator=generator, device=device)
    rank = (uniform.pow_(HUB_POWER) * num_nodes).long().clamp_(max=num_nodes - 1)
    return torch.randperm(num_nodes, generator=generator, device=device)[rank]
