"""Frozen encoder to labels: for the nodes of a graph that have none.

semi-supervised    by the head that was trained with the encoder
any other method   by a linear probe, fitted on the embeddings of the labelled nodes
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from graphstrap.api.embed import embed, prepare, sampled_inference
from graphstrap.errors import InputError
from graphstrap.evaluation.probe import fit_probe
from graphstrap.graph import Graph
from graphstrap.graph.graph import check_is_graph
from graphstrap.nn.model import Model, class_names

Array = np.ndarray[Any, Any]


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
