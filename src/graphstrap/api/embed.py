"""Frozen encoder to array: embeddings of the graph it was trained on, or of one it never saw.

    full       one pass over the whole graph
    layers     each layer once for all nodes, a block of rows at a time: the same numbers, in the memory of one block
    sampled    a sampled batch around each node, averaged over passes: for encoders that layers are not known of

`auto` is `full` where that fits into memory, else `layers` for the encoders that have them, else `sampled`; always
`sampled` for an encoder to which a whole graph would look different from what it was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from graphstrap.api.layerwise import embed_layers, full_pass_fits, has_layers
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.graph import check_is_graph
from graphstrap.graph.keep import child_seed
from graphstrap.nn.methods.semi_supervised import training_labels
from graphstrap.nn.model import Model
from graphstrap.run.recipe import Recipe
from graphstrap.train.batches import Prefetcher, make_sampler, place_graph
from graphstrap.train.sampling.subgraph import Gatherer

INFERENCE_BRANCH = 1_000_039
WAYS = ("auto", "full", "layers", "sampled")

Array = np.ndarray[Any, Any]


def embed(model: Model, graph: Graph, *, device: torch.device, how: str = "auto") -> Array:
    """(N, D) float32, in the order of the graph's nodes. Nothing is trained."""
    if how not in WAYS:
        raise InputError(f"embeddings are made by one of {', '.join(WAYS)}, got {how!r}")
    return embed_seeds([model], graph, device=device, how=how)[0].cpu().numpy()


def embed_seeds(models: Sequence[Model], graph: Graph, *, device: torch.device, how: str = "auto") -> list[Tensor]:
    """The embeddings of models that differ in their seed alone, on the device; the graph is prepared once for all."""
    check_is_graph(graph)
    prepared = prepare(models[0], graph)
    how = choose_way(models[0], prepared, device=device) if how == "auto" else how
    placed = prepared.to(device).with_readable_features() if how == "full" else prepared
    found = []
    for model in models:
        model.module.to(device)
        if how == "sampled":
            h = sampled_inference(model, prepared, model.method.embed, device=device)
        elif how == "layers":
            h = torch.from_numpy(embed_layers(model.method.frozen, prepared, device=device))
        else:
            h = model.method.embed(placed)
        if model.own_features is not None:
            h = model.own_features.append_to(h, prepared)
        found.append(h.float().to(device))
    return found


def class_probabilities(model: Model, graph: Graph, *, nodes: Tensor, device: torch.device) -> Array:
    """(M, C) of a method with a head: by sampled passes where it was trained on samples, else by one full pass."""
    method = model.method
    model.module.to(device)
    prepared = prepare(model, graph)
    if model.recipe.sampling.fan_outs:
        passes = model.recipe.method.inference_passes
        p = sampled_inference(model, prepared, method.probabilities, nodes=nodes, device=device, num_passes=passes)
    else:
        p = method.probabilities(prepared.to(device).with_readable_features())[nodes.to(device)]
    return p.float().cpu().numpy()


def prepare(model: Model, graph: Graph) -> Graph:
    """The graph as the encoder was trained on: its features prepared, its labels only those that may be seen."""
    return with_labels_to_learn(model.prepare(graph), model)


def with_labels_to_learn(prepared: Graph, model: Model) -> Graph:
    """The graph with training labels for a method that learns from labels, with none for any other."""
    learns = model.method.learns_labels and prepared.labels is not None
    return replace(prepared, labels=training_labels(prepared) if learns else None, splits=None)


def sampled_inference(
    model: Model,
    prepared: Graph,
    call: Callable[[Graph], Tensor],
    *,
    device: torch.device,
    nodes: Tensor | None = None,
    num_passes: int = 1,
) -> Tensor:
    """The mean over passes of what `call` gives for the roots of sampled batches, one row for each node."""
    recipe = model.recipe
    if not recipe.sampling.fan_outs:
        raise InputError("sampled inference needs to know how many neighbours to take: set sampling.fan_outs")
    nodes = torch.arange(prepared.num_nodes) if nodes is None else nodes.cpu()
    placed = place_graph(prepared, recipe, device)
    sampler, gatherer = make_sampler(placed, recipe), Gatherer(placed, device=device)
    parts = torch.split(nodes, recipe.sampling.batch_size)
    seeds = [child_seed(model.seed, INFERENCE_BRANCH, number) for number in range(num_passes)]

    def make(step: int) -> Graph:
        roots = parts[step % len(parts)]
        return gatherer.fill(sampler.sample(roots, seed=seeds[step // len(parts)]))

    total: list[Tensor] = []
    last = num_passes * len(parts) - 1
    batches = Prefetcher(make, last_step=last, device=device, depth=recipe.sampling.prefetch)
    try:
        for step in range(last + 1):
            batch = batches(step)
            rows = _roots_only(batch, call(batch)).float().cpu() / num_passes
            if step < len(parts):
                total.append(rows)
            else:
                total[step % len(parts)] += rows
    finally:
        batches.close()
    return torch.cat(total)


def choose_way(model: Model, prepared: Graph, *, device: torch.device) -> str:
    """`full` where a full pass fits into memory, or where nothing else can be done."""
    encoder = model.method.frozen
    if must_sample(model):
        return "sampled"
    if full_pass_fits(encoder, prepared, device):
        return "full"
    if has_layers(encoder):
        return "layers"
    return "sampled" if model.recipe.sampling.fan_outs else "full"


def must_sample(model: Model) -> bool:
    """Whether a whole graph would look different to the encoder from what it was trained on."""
    method, recipe = model.method, model.recipe
    if method.label_inputs:
        return True  # a whole graph hides every label: a batch only its roots'
    if recipe.sampling.by_time:
        return True  # a whole graph shows a node what is newer than itself
    # A whole graph has what the encoder never saw: relations that were left out, sums over all neighbours.
    return bool(recipe.sampling.fan_outs) and (_leaves_relations_out(recipe) or _adds_up(recipe))


def _leaves_relations_out(recipe: Recipe) -> bool:
    return any(0 in (hop.values() if isinstance(hop, dict) else (hop,)) for hop in recipe.sampling.by_hop())


def _adds_up(recipe: Recipe) -> bool:
    return getattr(recipe.encoder, "aggregation", "mean") == "sum"


def _roots_only(batch: Graph, rows: Tensor) -> Tensor:
    num_roots = cast(int, batch.num_roots)
    return rows if len(rows) == num_roots else batch.roots_of(rows)
