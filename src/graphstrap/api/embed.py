"""Frozen encoder to array: embeddings of the graph it was trained on, or of one it never saw; and to labels.

    full       one pass over the whole graph
    layers     each layer once for all nodes, a block of rows at a time: the same numbers, in the memory of one block
    sampled    a sampled batch around each node, averaged over passes: for encoders whose layers are not known

`auto` is `full` where that fits into memory, else `layers` for the encoders that have them, else `sampled`. It is
always `sampled` for an encoder to which a whole graph would look different from what it was trained on.

Nodes without a label get one by the head that was trained with the encoder (semi-supervised), or by a linear probe,
fitted on the embeddings of the labelled nodes (any other method).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphstrap.api.layerwise import embed_layers, has_layers, most
from graphstrap.errors import InputError
from graphstrap.evaluation.probe import fit_probe
from graphstrap.graph import Graph
from graphstrap.graph.graph import check_is_graph
from graphstrap.graph.views import child_seed
from graphstrap.io.parts import Part
from graphstrap.nn.methods.instant import append_columns
from graphstrap.nn.model import Model, class_names
from graphstrap.ops.memory import free_memory
from graphstrap.train.batches import Prefetcher, make_sampler, sampler_flags
from graphstrap.train.parallel.exchange import Exchange, PartGatherer
from graphstrap.train.parallel.part_batches import PartSampler
from graphstrap.train.parallel.workers import ALONE, Workers
from graphstrap.train.sampling.sampler import Sampler
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
    found, columns = [], None
    if (own := models[0].own_features) is not None:  # the same for all seeds, and never sampled
        columns = own.to(device)(placed) if how == "full" else torch.from_numpy(embed_layers(own, prepared))
    for model in models:
        model.module.to(device)
        if how == "sampled":
            h = sampled_inference(model, prepared, model.method.embed, device=device)
        elif how == "layers":
            h = torch.from_numpy(embed_layers(model.method.frozen, prepared, device=device))
        else:
            h = model.method.embed(placed)
        if columns is not None:
            h = append_columns(h.to(device), columns, weight=model.recipe.encoder.own_weight)
        found.append(h.float().to(device))
    return found


@torch.no_grad()
def embed_part(model: Model, part: Part, *, workers: Workers, how: str = "auto") -> Array:
    """(n, D) embeddings of the own nodes of a prepared part of a graph. Every worker calls this."""
    encoder = model.method.frozen
    if how == "auto":
        how = "layers" if has_layers(encoder) and not must_sample(model) else "sampled"
    if how == "sampled":
        device = next(model.module.parameters()).device
        h = sampled_inference(model, part, model.method.embed, device=device, workers=workers).numpy()
    elif how != "layers" or not has_layers(encoder):
        raise InputError(f"a graph in parts cannot be embedded {how} with this encoder: give --how auto")
    else:
        h = embed_layers(encoder, part, workers=workers)
    if model.own_features is None:
        return h
    columns = torch.from_numpy(embed_layers(model.own_features, part, workers=workers))
    return append_columns(torch.from_numpy(h), columns, weight=model.recipe.encoder.own_weight).numpy()


def prepare(model: Model, graph: Graph) -> Graph:
    """The graph as the encoder was trained on: its features prepared, its labels only those that may be seen."""
    return with_labels_to_learn(model.prepare(graph), model)


def with_labels_to_learn(prepared: Graph, model: Model) -> Graph:
    """The graph with training labels for a method that learns from labels, with none for any other. The own features
    of a part are prepared here, to be scaled when they are read."""
    if isinstance(prepared, Part):
        prepared = replace(prepared, own=with_labels_to_learn(model.transform.when_read(prepared.own), model))
    learns = model.method.learns_labels and prepared.labels is not None
    return replace(prepared, labels=prepared.training_labels if learns else None, splits=None)


def choose_way(model: Model, prepared: Graph, *, device: torch.device) -> str:
    """`full` where a full pass fits into memory, or where nothing else can be done."""
    if must_sample(model):
        return "sampled"
    if full_pass_fits(model.method.frozen, prepared, device):
        return "full"
    if has_layers(model.method.frozen):
        return "layers"
    return "sampled" if model.recipe.sampling.fan_outs else "full"


def full_pass_fits(encoder: nn.Module, graph: Graph, device: torch.device) -> bool:
    """Whether a pass over the whole graph at once would take at most half of the memory that is free."""
    width = max(parameter.shape[-1] for parameter in encoder.parameters() if parameter.dim() > 0)
    needed = 4 * 4 * graph.num_nodes * width
    if graph.device.type != device.type:
        needed += graph.num_bytes
    return needed < free_memory(device) // 2


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
    workers: Workers = ALONE,
) -> Tensor:
    """The mean over passes of what `call` gives for the roots of sampled batches, one row for each node. Of a part, for
    its own nodes: all workers make the same number of batches, some of them empty, because each is an exchange."""
    settings, depth = model.recipe.sampling, model.recipe.sampling.prefetch
    if not settings.fan_outs:
        raise InputError("sampled inference needs to know how many neighbours to take: set sampling.fan_outs")
    fill: Callable[[Graph], Graph]
    if isinstance(prepared, Part):
        exchange, nodes, depth = Exchange(workers), prepared.own.node_ids, 0
        sampler: Sampler = PartSampler(prepared, settings.by_hop(), exchange, **sampler_flags(model.recipe))
        fill = PartGatherer(prepared, exchange, device=device, num_hot=settings.hot_nodes).fill
    else:
        placed = model.place(prepared, device)
        sampler, fill = make_sampler(placed, model.recipe), Gatherer(placed, device=device).fill
    nodes = torch.arange(prepared.num_nodes) if nodes is None else nodes.cpu()
    chunks = list(torch.split(nodes, settings.batch_size))
    num_own, num_chunks = len(chunks), most(len(chunks), workers)
    chunks += [nodes[:0]] * (num_chunks - num_own)
    seeds = [child_seed(model.seed, INFERENCE_BRANCH, number) for number in range(num_passes)]

    def make(step: int) -> Graph:
        return fill(sampler.sample(chunks[step % num_chunks], seed=seeds[step // num_chunks]))

    total: list[Tensor] = []
    last = num_passes * num_chunks - 1
    with closing(Prefetcher(make, last_step=last, device=device, depth=depth)) as batches:
        for step in range(last + 1):
            batch, place = batches(step), step % num_chunks
            if place >= num_own:
                continue
            rows = call(batch)
            if len(rows) != batch.num_roots:
                rows = batch.roots_of(rows)
            if step < num_chunks:
                total.append(rows.float().cpu() / num_passes)
            else:
                total[place] += rows.float().cpu() / num_passes
    return torch.cat(total)


@dataclass(frozen=True, eq=False)
class Predictions:
    """What `Embedder.predict` returns: one row for each node without a label.

    Args:
        nodes: (M,) their numbers.
        labels: (M,) the number of the most probable class.
        probabilities: (M, C) of every class.
        class_names: of the C columns.

    Example:
        >>> predictions = gs.BGRL().fit(graph).predict(graph)
        >>> dict(zip(graph.external_ids[predictions.nodes], predictions.labels))
    """

    nodes: Array
    labels: Array
    probabilities: Array
    class_names: tuple[str, ...]


def classify(model: Model, graph: Graph, nodes: Any, *, device: torch.device) -> Array:
    """(M, C) class probabilities of these nodes, by the head of a semi-supervised model: by sampled passes where it was
    trained on samples, else by one full pass. The columns are its `class_names`, whatever labels the graph has now."""
    method = model.method
    if not method.learns_labels:
        raise InputError(f"{model.recipe.method.name} learns no classes: take method semi-supervised, or predict")
    nodes = torch.as_tensor(nodes, dtype=torch.int64)
    model.module.to(device)
    prepared = prepare(model, graph)
    if model.recipe.sampling.fan_outs:
        passes = model.recipe.method.inference_passes
        p = sampled_inference(model, prepared, method.probabilities, nodes=nodes, device=device, num_passes=passes)
    else:
        p = method.probabilities(prepared.to(device).with_readable_features())[nodes.to(device)]
    return p.float().cpu().numpy()


def predict_unlabelled(
    model: Model, graph: Graph, *, device: torch.device, seed: int, h: Array | None = None
) -> Predictions:
    """For every node without a label; `h` are the graph's embeddings, if they are at hand."""
    check_is_graph(graph)
    if graph.labels is None or graph.labels.dim() != 1:
        raise InputError("predict needs one label column in which some nodes have a label and others do not")
    labels = graph.labels.cpu().numpy()
    known, unknown = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    if len(np.unique(labels[known])) < 2:
        got = f"{len(known)} labelled node{'s' if len(known) > 1 else ''} of one" if len(known) else "no labelled node"
        raise InputError(f"predict needs labelled nodes of at least two classes, got {got}")
    if len(unknown) == 0:
        raise InputError("every node has a label already: leave the label empty where it is to be predicted")
    has_labelled_type = np.zeros(graph.num_nodes, dtype=bool)
    for first, last in pairwise(graph.type_offsets):
        has_labelled_type[first:last] = (labels[first:last] >= 0).any()
    unknown, names = unknown[has_labelled_type[unknown]], class_names(graph)
    if model.method.learns_labels:
        probabilities = classify(model, graph, unknown, device=device)
        names = model.class_names or names
    else:
        h = embed(model, graph, device=device) if h is None else h
        probe = fit_probe(h, labels, train=known, seed=seed, num_classes=graph.num_classes, by_likelihood=True)
        probabilities = probe.probabilities(h[unknown])
    return Predictions(unknown, probabilities.argmax(1), probabilities, names)
