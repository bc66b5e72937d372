"""Whether a model has learned from the labels that it is tested on."""

from __future__ import annotations

from graphstrap.evaluate.protocols import BY_PUBLISHED_SPLITS
from graphstrap.graph import Graph
from graphstrap.recipe import Recipe

SAW_LABELS = (
    "note: this model has learned from labels that this protocol tests on: trust `predict` on held-out nodes, or give "
    "the node table a split column and take the protocol public"
)


def has_seen_test_labels(recipe: Recipe, graph: Graph, *, protocol: str) -> bool:
    """A semi-supervised model has, unless it is tested on the published split whose training nodes it learned from."""
    if recipe.method.name != "semi-supervised" or protocol == "links":
        return False
    has_one_split = graph.splits is not None and graph.splits.num_splits == 1
    return not (protocol in BY_PUBLISHED_SPLITS and has_one_split)
