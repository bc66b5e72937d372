"""A GCN taken apart, for methods that look inside it: its first projection, and its layers over any propagation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from graphstrap.encoders.gcn import GCN, _join, _project
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.view import CLEAN, View


def project_features(graph: Graph, weights: Iterable[Tensor], view: View = CLEAN) -> Tensor:
    """(N, D) the features of all nodes, in the order that the view gives them, times a weight for each node type."""
    return _join([_project(graph, view, weight, block) for block, weight in enumerate(weights)])


def convolve(encoder: GCN, graph: Graph, tables: Sequence[Tensor], spread: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The encoder's embeddings from projected features, for several tables of them at once.

    `spread` takes the place of A_hat: h (N, K D) -> (N, K D), with all K tables side by side.
    """
    for index, finish in enumerate(encoder.layers):
        if index:
            tables = [h @ encoder.weight(index) for h in tables]
        wide = spread(torch.cat(list(tables), dim=1))
        tables = [finish(h.contiguous(), graph) for h in wide.chunk(len(tables), dim=1)]
    return list(tables)


def bilinear_weight(size_1: int, size_2: int, generator: torch.Generator | None) -> nn.Parameter:
    """The weight of x_1^T W x_2, uniform within the bound of a Glorot-initialised `torch.nn.Bilinear` of one output."""
    bound = (6.0 / (size_2 * (size_1 + 1))) ** 0.5
    return nn.Parameter(torch.empty(size_1, size_2).uniform_(-bound, bound, generator=generator))


def only_gcn(encoder: nn.Module) -> GCN:
    """The encoder, if it can be taken apart."""
    if not isinstance(encoder, GCN):
        raise InputError(
            f"this method looks inside its encoder and knows only GCN, got {type(encoder).__name__}: "
            "take encoder.name=gcn, or another method"
        )
    return encoder
