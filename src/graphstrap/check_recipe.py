"""Settings that training must not begin with: they do nothing, or harm. `recipe.py` refuses what could not be read back
at all; this is asked of new runs alone, so that models and runs from before still open.
"""

from __future__ import annotations

from graphstrap.errors import InputError
from graphstrap.recipe import VIEWED_METHODS, WALKING_METHODS, Recipe, num_labelled_roots


def check_new(recipe: Recipe) -> None:
    """Refuse them, each with a sentence."""
    sampling, method, name = recipe.sampling, recipe.method, recipe.encoder.name
    if method.embed_with == "target" and method.name != "bgrl":
        raise InputError(f"method.embed_with=target is for bgrl, whose target it is: leave it for {method.name}")
    if method.target_hops and method.name != "bgrl":
        raise InputError(f"method.target_hops is for bgrl, whose targets it averages: leave it for {method.name}")
    if name != "gcn" and method.name in WALKING_METHODS:
        raise InputError(f"{method.name} has a table of rows and no encoder: leave encoder.name out")
    if (method.return_weight, method.outward_weight) != (1.0, 1.0) and method.name != "node2vec":
        raise InputError(f"method.return_weight and outward_weight are for node2vec: leave them for {method.name}")
    if recipe.views.centrality != "none" and method.name not in VIEWED_METHODS:
        raise InputError(f"views.centrality is for methods with two views, and {method.name} has none: leave it out")
    if not recipe.encoder.bias and name in ("gat", "mpnn", "mlp"):
        raise InputError(f"encoder.bias=false is for gcn and mean-pooling: leave it true for {name}")
    ignored = [name for name in ("by_time", "root_types", "disjoint") if getattr(sampling, name)]
    if ignored and not sampling.fan_outs:
        raise InputError(
            f"sampling.{ignored[0]} is for sampled batches: set sampling.fan_outs with it, or leave it out"
        )
    if sampling.root_types and recipe.method.name == "semi-supervised":
        raise InputError(
            "semi-supervised takes its roots from the node types that have labels: leave sampling.root_types out"
        )
    if not sampling.fan_outs:
        return
    is_mixed = recipe.method.name == "semi-supervised" and sampling.disjoint  # what learns from labels sees these alone
    num_roots = num_labelled_roots(recipe) if is_mixed else sampling.batch_size
    if num_roots == 1 and (recipe.encoder.norm == "batch" or recipe.method.name == "barlow-twins"):
        raise InputError(
            f"a batch of {sampling.batch_size} roots has one {'with a label' if is_mixed else 'alone'}, and nothing can"
            " be normalised over it: give a larger sampling.batch_size"
        )
