"""Frozen encoder to array: embeddings of the graph it was trained on, or of one it never saw.

    full       one pass over the whole graph
    layers     each layer once for all nodes, a block of rows at a time: the same numbers, in the memory of one block
    sampled    a sampled batch around each node, averaged over passes: for encoders whose layers are not known

`auto` is `full` where that fits into memory, else `layers` for the encoders that have them, else `sampled`. It is
always `sampled` for an encoder to which a whole graph would look different from what it was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from graphstrap.api.layerwise import embed_layers, full_pass_fits, has_layers, most
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.graph import check_is_graph
from graphstrap.graph.keep import child_seed
from graphstrap.io.parts import Part
from graphstrap.nn.methods.semi_supervised import training_labels
from graphstrap.nn.model import Model
from graphstrap.train.batches import Prefetcher, make_sampler, place_graph, sampler_flags
from graphstrap.train.parallel.exchange import Exchange, PartGatherer
from graphstrap.train.parallel.part_batches import PartSampler
from graphstrap.train.parallel.workers import Workers
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


@torch.no_grad()
def embed_part(model: Model, part: Part, *, workers: Workers, how: str = "auto") -> Array:
    """(n, D) embeddings of the own nodes of a prepared part of a graph. Every worker calls this."""
    encoder = model.method.frozen
    if how == "auto":
        how = "layers" if has_layers(encoder) and not must_sample(model) else "sampled"
    if how == "sampled":
        return _sampled_inference_of_part(model, part, workers)
    if how != "layers" or not has_layers(encoder):
        raise InputError(f"a graph in parts cannot be embedded {how} with this encoder: give --how auto")
    return embed_layers(encoder, part, workers=workers)


def prepare(model: Model, graph: Graph) -> Graph:
    """The graph as the encoder was trained on: its features prepared, its labels only those that may be seen."""
    return with_labels_to_learn(model.prepare(graph), model)


def with_labels_to_learn(prepared: Graph, model: Model) -> Graph:
    """The graph with training labels for a method that learns from labels, with none for any other. The own features
    of a part are prepared here, to be scaled when they are read."""
    if isinstance(prepared, Part):
        prepared = replace(prepared, own=with_labels_to_learn(model.transform.when_read(prepared.own), model))
    learns = model.method.learns_labels and prepared.labels is not None
    return replace(prepared, labels=training_labels(prepared) if learns else None, splits=None)


def choose_way(model: Model, prepared: Graph, *, device: torch.device) -> str:
    """`full` where a full pass fits into memory, or where nothing else can be done."""
    if must_sample(model):
        return "sampled"
    if full_pass_fits(model.method.frozen, prepared, device):
        return "full"
    if has_layers(model.method.frozen):
        return "layers"
    return "sampled" if model.recipe.sampling.fan_outs else "full"


def must_sample(model: Model) -> bool:
    """Whether a whole graph would look different to the encoder from what it was trained on."""
    method, recipe = model.method, model.recipe
    if method.label_inputs:
        return True  # a whole graph hides every label, a batch only those of its roots
    if recipe.sampling.by_time:
        return True  # a whole graph shows a node what is newer than itself
    if not recipe.sampling.fan_outs:
        return False
    if getattr(recipe.encoder, "aggregation", "mean") == "sum":
        return True  # a whole graph adds up more neighbours
    # A whole graph has the relations that were left out.
    return any(0 in (hop.values() if isinstance(hop, dict) else (hop,)) for hop in recipe.sampling.by_hop())


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
    chunks = torch.split(nodes, recipe.sampling.batch_size)
    seeds = [child_seed(model.seed, INFERENCE_BRANCH, number) for number in range(num_passes)]

    def make(step: int) -> Graph:
        roots = chunks[step % len(chunks)]
        return gatherer.fill(sampler.sample(roots, seed=seeds[step // len(chunks)]))

    total: list[Tensor] = []
    last = num_passes * len(chunks) - 1
    with closing(Prefetcher(make, last_step=last, device=device, depth=recipe.sampling.prefetch)) as batches:
        for step in range(last + 1):
            batch = batches(step)
            rows = _roots_only(batch, call(batch)).float().cpu() / num_passes
            if step < len(chunks):
                total.append(rows)
            else:
                total[step % len(chunks)] += rows
    return torch.cat(total)


def _sampled_inference_of_part(model: Model, part: Part, workers: Workers) -> Array:
    """All workers make the same number of batches, some of them empty, because each is an exchange."""
    recipe, exchange = model.recipe, Exchange(workers)
    device, nodes = next(model.module.parameters()).device, part.own.node_ids
    assert nodes is not None
    sampler = PartSampler(part, recipe.sampling.by_hop(), exchange, **sampler_flags(recipe))
    gatherer = PartGatherer(part, exchange, device=device, num_hot=recipe.sampling.hot_nodes)
    chunks, seed = torch.split(nodes, recipe.sampling.batch_size), child_seed(model.seed, INFERENCE_BRANCH, 0)
    rows = []
    for number in range(most(len(chunks), workers)):
        roots = chunks[number] if number < len(chunks) else nodes[:0]
        batch = gatherer.fill(sampler.sample(roots, seed=seed))
        if len(roots):
            rows.append(_roots_only(batch, model.method.embed(batch)).float().cpu())
    return torch.cat(rows).numpy()


def _roots_only(batch: Graph, rows: Tensor) -> Tensor:
    num_roots = cast(int, batch.num_roots)
    return rows if len(rows) == num_roots else batch.roots_of(rows)
