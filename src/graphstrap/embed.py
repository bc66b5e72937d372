"""Frozen encoder to array: embeddings of the graph it was trained on, or of one it never saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.model import Model


def embed(model: Model, graph: Graph, *, device: torch.device) -> np.ndarray[Any, Any]:
    """(N, D) float32, in the order of the graph's nodes. Nothing is trained."""
    return embed_seeds([model], graph, device=device)[0].cpu().numpy()


def embed_seeds(models: Sequence[Model], graph: Graph, *, device: torch.device) -> list[Tensor]:
    """The embeddings of models that differ in their seed alone, on the device; the graph is prepared once for all."""
    prepared = models[0].transform(graph)
    on_device = prepared.to(device)
    found = []
    for model in models:
        model.module.to(device)
        h = model.method.embed(on_device)
        if model.own_features is not None:
            h = model.own_features.append_to(h, prepared)
        found.append(h.float().to(device))
    return found
