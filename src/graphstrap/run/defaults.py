"""The recipe for an unknown graph: sizes, rates and probabilities from its statistics, each with its reason.

Strong masking is what makes short training pay, as long as there are enough columns and edges left to predict from. A
node's own features beside its embedding help on most graphs; below 500 nodes, where a probe has few labels and training
adds little, they count twice: a guard, not a gain on every graph. How the numbers were found: docs/LOG.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.graph.blocks import dense, is_bag, is_large, sample_rows, take_rows
from graphstrap.graph.many import training_graphs
from graphstrap.io.parts import Part
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
FEW_COLUMNS, LITTLE_LIKENESS = 4, 0.005

_EDGES_COMPARED, _EDGES_AT_ONCE, _VALUES_COMPARED = 50_000, 1_024, 1 << 26  # fewer edges where rows are long


@dataclass(frozen=True)
class Statistics:
    """What the choices depend on."""

    num_nodes: int
    mean_degree: float
    num_columns: int
    is_bag: bool  # non-negative and mostly zero, as counts of words are
    has_own: bool  # features of one kind: all nodes can be given their own beside the embedding
    likeness: float | None  # of neighbours' features; None where structural columns cannot stand beside them

    @classmethod
    def of(cls, graph: Graph) -> Statistics:
        blocks = [block for block in graph.features if block is not None]
        return cls(
            num_nodes=graph.num_nodes,
            mean_degree=graph.num_edges / max(1, graph.num_nodes),
            num_columns=max((int(block.shape[1]) for block in blocks), default=0),
            is_bag=bool(blocks) and all(map(is_bag, blocks)),
            has_own=len(blocks) == len(graph.features) == 1,
            likeness=likeness(graph) if _has_room(graph) else None,
        )

    @property
    def says_little(self) -> bool:
        """Whether features tell next to nothing of where in the graph a node is."""
        return self.likeness is not None and (self.num_columns < FEW_COLUMNS or self.likeness < LITTLE_LIKENESS)


def likeness(graph: Graph) -> float:
    """How much more alike two neighbours are than two nodes with as many neighbours: the mean cosine of their features
    over edges, less that over all pairs of an edge's start and another's end. About 0 for noise."""
    x = graph.x
    assert x is not None
    num_compared = min(graph.num_edges, _EDGES_COMPARED, max(_EDGES_AT_ONCE, _VALUES_COMPARED // max(1, x.shape[1])))
    edges = torch.linspace(0, graph.num_edges - 1, num_compared, dtype=torch.float64).long().to(graph.device)
    targets = torch.searchsorted(graph.indptr.long(), edges, right=True) - 1
    ends = torch.stack([graph.indices[edges].long(), targets])
    ends = ends[:, ends[0] != ends[1]]
    mean, spread = torch.zeros(()), torch.ones(())
    if not is_bag(x):
        rows = dense(sample_rows(x)).float()
        mean, spread = rows.mean(0), rows.std(0, correction=0)
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))

    def unit(nodes: Tensor) -> Tensor:
        return F.normalize((dense(take_rows(x, nodes)).float() - mean.to(x.device)) / spread.to(x.device), dim=1)

    of_edges, sums = 0.0, torch.zeros(2, x.shape[1], device=x.device)
    for source, target in zip(*(nodes.split(_EDGES_AT_ONCE) for nodes in ends), strict=True):
        a, b = unit(source), unit(target)
        of_edges += float((a * b).sum())
        sums += torch.stack([a.sum(0), b.sum(0)])
    count = max(1, ends.shape[1])
    return of_edges / count - float((sums[0] / count) @ (sums[1] / count))


def _has_room(graph: Graph) -> bool:
    """Whether structural columns could stand beside this graph's features, and would tell its nodes apart."""
    is_one = graph.num_graphs == len(graph.features) == 1 and not isinstance(graph, Part)
    block = graph.features[0]
    return is_one and graph.num_edges > 0 and block is not None and not is_large(block)


def choose_recipe(graph: Graph) -> tuple[Recipe, list[str]]:
    """A recipe for this graph, and one sentence for each choice."""
    return resolve_recipe("default", graph, {})


def _recipe_for(
    s: Statistics, *, norm: str = "batch", encoder: str = "gcn", num_own: int = OWN_COLUMNS, has_times: bool = False
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
        data=DataRecipe(
            feature_scaling=scaling, structural_columns="always" if s.says_little and not has_times else "missing"
        ),
        views=ViewsRecipe(edge_drop_probs=(drop, drop), feature_mask_probs=(mask, mask)),
        encoder=ENCODERS.get("gcn").Settings(
            hidden_sizes=(hidden,),
            embedding_size=embedding,
            batch_norm_statistics="recalibrated",
            own_features=own_features,
            own_hops=OWN_HOPS if own_features and not has_times else 0,
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
        has_times = bool(settings.get("sampling.by_time"))  # averages would be over newer edges, too
        recipe = _recipe_for(statistics, norm=norm, encoder=encoder, num_own=num_own, has_times=has_times)
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
    has_beside = recipe.data.structural_columns == "always" and s.num_columns > 0
    beside = f", and {num_made} structural ones" if has_beside else ""
    num_read = s.num_columns + num_made if has_beside else s.num_columns or num_made
    steps = f"{train.steps} steps at learning rate {train.learning_rate}: change with --set train.steps=N"
    reads_features = method.has_encoder or encoder.own_features
    reasons = [f"features scaled by {recipe.data.feature_scaling}: {kind}"] if reads_features else []
    if has_beside and s.says_little:
        told = f"neighbours' are no more alike than strangers' (cosine {s.likeness:+.3f})"
        why = f"there are {s.num_columns}" if s.num_columns < FEW_COLUMNS else told
        reasons.append(
            f"{num_made} structural columns beside the features, which say little of where a node is, as {why}: change "
            "with --set data.structural_columns=missing"
        )
    if not method.is_trained:
        return [*reasons, "nothing is trained: the columns are averages of features over neighbours"]
    if method.reads_views:
        reasons += [
            f"feature columns masked with probability {_of_both(views.feature_mask_probs)}: there are "
            f"{s.num_columns or num_made}{beside}",
            f"edges dropped with probability {_of_both(views.edge_drop_probs)}: {s.mean_degree:.1f} edges a node",
        ]
    if encoder.own_features:
        num_own = min(encoder.own_features, num_read)
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
