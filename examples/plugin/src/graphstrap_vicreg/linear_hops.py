"""Linear hops: features averaged over several hops, each hop with a weight of its own.

    H = sum over k of A_hat^k X W_k            A_hat: the normalised adjacency of the view

Abu-El-Haija et al., MixHop, ICML 2019, without nonlinearities. Cost of a pass: time O(K E D + K N F D), memory O(N D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphstrap.graph import CLEAN, Graph, View
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.encoders.gcn import glorot
from graphstrap.ops import project, propagate
from graphstrap.run.recipe import ENCODERS, EncoderSettings
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class LinearHopsSettings(EncoderSettings):
    """What `[encoder]` of a recipe may say besides what every encoder has."""

    name: str = "linear-hops"
    num_hops: int = setting(2, low=0, high=16)


@ENCODERS.register("linear-hops")
class LinearHops(Encoder):
    """The encoder; `layer_sizes` counts by its last number alone."""

    Settings = LinearHopsSettings

    def __init__(
        self,
        input_sizes: Sequence[int],
        layer_sizes: Sequence[int],
        *,
        num_hops: int = 2,
        generator: torch.Generator | None = None,
        **unused: Any,
    ) -> None:
        super().__init__()
        (size_in,) = input_sizes  # one node type
        self.embedding_size = int(layer_sizes[-1])
        self.weights = nn.ParameterList(glorot(size_in, self.embedding_size, generator) for _ in range(num_hops + 1))

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        h = project(graph, view.masks, self.weights[-1])  # (N, D)
        for weight in reversed(list(self.weights)[:-1]):
            h = propagate(graph, view.masks, h) + project(graph, view.masks, weight)
        return h
