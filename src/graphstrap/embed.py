"""Frozen encoder to array: embeddings of the graph it was trained on, or of one it never saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from graphstrap.graph import Graph
from graphstrap.model import Model


def embed(model: Model, graph: Graph, *, device: torch.device) -> np.ndarray[Any, Any]:
    """(N, D) float32, in the order of the graph's nodes. Nothing is trained."""
    model.module.to(device)
    prepared = model.transform(graph)
    h = model.method.embed(prepared.to(device))
    if model.own_features is not None:
        h = model.own_features.append_to(h, prepared)
    return h.float().cpu().numpy()
