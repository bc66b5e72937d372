"""The recipe for an unknown graph: sizes, rates and probabilities from its statistics, each with its reason.

Strong masking is what makes short training pay, as long as there are enough columns and edges left to predict from. A
node's own features beside its embedding help on most graphs; below 500 nodes, where a probe has few labels and training
adds little, they count twice: a guard, not a gain on every graph. How the numbers were found: docs/LOG.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphstrap.graph import Graph
from graphstrap.graph.blocks import is_bag
from graphstrap.graph.many import training_graphs
from graphstrap.run.recipe import (
    ENCODERS,
    METHODS,
    DataRecipe,
    Recipe,
    TrainRecipe,
    ViewsRecipe,
    check_new,
    load_recipe,
)

OWN_COLUMNS, OWN_HOPS = 64, 3
FEW_NODES, OWN_WEIGHT_OF_FEW = 500, 2.0


@dataclass(frozen=True)
class Statistics:
    """What the choices depend on."""

    num_nodes: int
    mean_degree: float
    num_columns: int
    is_bag: bool  # non-negative and mostly zero, as counts of words are
    has_own: bool  # features of one kind: all nodes can be given their own beside the embedding

    @classmethod
    def of(cls, graph: Graph) -> Statistics:
        blocks = [block for block in graph.features if block is not None]
        return cls(
            num_nodes=graph.num_nodes,
            mean_degree=graph.num_edges / max(1, graph.num_nodes),
            num_columns=max((int(block.shape[1]) for block in blocks), default=0),
            is_bag=bool(blocks) and all(map(is_bag, blocks)),
            has_own=len(blocks) == len(graph.features) == 1,
        )


def choose_recipe(graph: Graph) -> tuple[Recipe, list[str]]:
    """A recipe for this graph, and one sentence for each choice."""
    return resolve_recipe("default", graph, {})


def _recipe_for(
    s: Statistics, *, norm: str = "batch", encoder: str = "gcn", num_own: int = OWN_COLUMNS, own_hops: int = OWN_HOPS
) -> Recipe:
    """What was asked for of these four has a say in the rest."""
    scaling = "row" if s.is_bag else "column"
    mask = 0.5 if s.num_columns >= 200 else 0.3 if s.num_columns >= 30 else 0.1
    drop = 0.5 if s.mean_degree >= 2 else 0.3
    hidden, embedding, steps = (512, 256, 300) if s.num_nodes < 5_000 else (256, 128, 1000)
    hidden, embedding = ENCODERS.get(encoder).default_sizes(hidden, embedding)
    own_features = num_own if s.has_own else 0
    own_weight = OWN_WEIGHT_OF_FEW if own_features and s.num_nodes < FEW_NODES else 1.0
    rate = 1e-3 if norm in ("layer", "none") else 1e-2  # which would let these two collapse
    return Recipe(
        name="default",
        data=DataRecipe(feature_scaling=scaling),
        views=ViewsRecipe(edge_drop_probs=(drop, drop), feature_mask_probs=(mask, mask)),
        encoder=ENCODERS.get("gcn").Settings(
            hidden_sizes=(hidden,),
            embedding_size=embedding,
            batch_norm_statistics="recalibrated",
            own_features=own_features,
            own_hops=own_hops if own_features else 0,
            own_weight=own_weight,
        ),
        method=METHODS.get("bgrl-cca").Settings(predictor_hidden_size=embedding),
        train=TrainRecipe(steps=steps, warmup_steps=steps // 10, learning_rate=rate, log_every=steps // 30),
    )


def resolve_recipe(recipe: str | Recipe, graph: Graph, settings: Mapping[str, Any]) -> tuple[Recipe, list[str]]:
    """The recipe to run and, where it was made from the graph, what was chosen and why."""
    statistics = None
    if recipe == "default":
        statistics = Statistics.of(training_graphs(graph, settings.get("data.training_graphs", "all")))
        norm, encoder = settings.get("encoder.norm", "batch"), settings.get("encoder.name", "gcn")
        is_trained = METHODS.get(settings.get("method.name", "bgrl-cca")).is_trained
        num_own = settings.get("encoder.own_features", OWN_COLUMNS if is_trained else 0)
        own_hops = 0 if settings.get("sampling.by_time") else OWN_HOPS  # an average would be over newer nodes too
        recipe = _recipe_for(statistics, norm=norm, encoder=encoder, num_own=num_own, own_hops=own_hops)
    elif isinstance(recipe, str):
        recipe = load_recipe(recipe)
    resolved = recipe.with_settings(settings)
    check_new(resolved)
    return resolved, [] if statistics is None else _reasons(statistics, resolved)


def _reasons(s: Statistics, recipe: Recipe) -> list[str]:
    """What a recipe made from these statistics, perhaps with settings of the user's, has, and why; no word of what its
    method does not read."""
    kind = (
        "counts, mostly zero" if s.is_bag else "measurements" if s.num_columns else "none given, structural ones made"
    )
    encoder, views, train, method = recipe.encoder, recipe.views, recipe.train, recipe.method_class
    num_made = recipe.data.structural_size + 2
    beside = f", and {num_made} structural ones" if recipe.data.structural_columns == "always" and s.num_columns else ""
    steps = f"{train.steps} steps at learning rate {train.learning_rate}: change with --set train.steps=N"
    reads_features = method.has_encoder or encoder.own_features
    reasons = [f"features scaled by {recipe.data.feature_scaling}: {kind}"] if reads_features else []
    if not method.is_trained:
        return [*reasons, "nothing is trained: the columns are averages of features over neighbours"]
    if method.reads_views:
        reasons += [
            f"feature columns masked with probability {_of_both(views.feature_mask_probs)}: there are "
            f"{s.num_columns or num_made}{beside}",
            f"edges dropped with probability {_of_both(views.edge_drop_probs)}: {s.mean_degree:.1f} edges a node",
        ]
    if encoder.own_features:
        num_own = min(encoder.own_features, s.num_columns or num_made)
        twice = f", {encoder.own_weight:g} times as long as the embedding" if encoder.own_weight != 1.0 else ""
        hops = f", and averaged over 1 to {encoder.own_hops} hops," if encoder.own_hops else ""
        reasons.append(f"{num_own} columns of own features{hops} appended{twice}: what need not be learned")
    elif not s.has_own:
        reasons.append("no own features appended: nodes have none, or of several kinds")
    layers = " and ".join(map(str, (*encoder.hidden_sizes, encoder.embedding_size)))
    shape = f"layers of {layers}" if method.has_encoder else f"a row of {encoder.embedding_size} columns for each node"
    return [*reasons, f"{shape}: {s.num_nodes:,} nodes", steps]


def _of_both(probabilities: tuple[float, float]) -> str:
    """That of the two views, or of each."""
    return " and ".join(map(str, dict.fromkeys(probabilities)))
