"""The recipe for an unknown graph: sizes, rates and probabilities from its statistics, each with its reason."""

from __future__ import annotations

from graphstrap.graph import Graph
from graphstrap.recipe import DataRecipe, EncoderRecipe, MethodRecipe, Recipe, TrainRecipe, ViewsRecipe


def choose_recipe(graph: Graph) -> tuple[Recipe, list[str]]:
    """A recipe for this graph, and one sentence for each choice."""
    reasons: list[str] = []
    recipe = Recipe(
        name="default",
        data=DataRecipe(feature_scaling="row"),
        views=ViewsRecipe(edge_drop_probs=(0.4, 0.4), feature_mask_probs=(0.2, 0.3)),
        encoder=EncoderRecipe(hidden_sizes=(256,), embedding_size=128, batch_norm_statistics="recalibrated"),
        method=MethodRecipe(predictor_hidden_size=128),
        train=TrainRecipe(steps=400, warmup_steps=40, learning_rate=5e-3),
    )
    return recipe, reasons
