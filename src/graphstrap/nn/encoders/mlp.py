"""MLP: a GCN that looks at no edge. What it reaches says how much features tell without the graph.

    H_0  = X                                                  one feature block per node type
    H_i  = prelu(norm(dropout(H_{i-1}) W_i))                  the features themselves are masked by the view alone

Cost of a pass: time O(N F D), or O(nnz(X) D) with sparse features; memory O(N D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphstrap.graph import CLEAN, Graph, View
from graphstrap.graph.keep import drop_threshold, keep
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.encoders.gcn import Epilogue, glorot, project_features, standardize
from graphstrap.run.recipe import ENCODERS, EncoderSettings
from graphstrap.run.settings import setting

_DROPOUT_BRANCH = 1 << 62  # ids that no edge, column or element of a view has


@dataclass(frozen=True)
class MLPSettings(EncoderSettings):
    name: str = "mlp"
    weight_standardization: bool = setting(False)


@ENCODERS.register("mlp")
class MLP(Encoder):
    """A stack of dense layers; the arguments are those of `GCN`, and one more.

    Args:
        dropout_prob: probability that an element of a hidden layer is dropped in training; which ones, the view's seed
            says.
    """

    Settings = MLPSettings
    is_layered, follows_edges = True, False

    def __init__(
        self,
        input_sizes: Sequence[int],
        layer_sizes: Sequence[int],
        *,
        norm: str = "batch",
        weight_standardization: bool = False,
        batch_norm_decay: float = 0.99,
        dropout_prob: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_sizes = tuple(input_sizes)
        self.embedding_size = int(layer_sizes[-1])
        first, rest = layer_sizes[0], pairwise(layer_sizes)
        self.input_weights = nn.ParameterList(glorot(max(1, size), first, generator) for size in input_sizes)
        self.weights = nn.ParameterList(glorot(size_in, size_out, generator) for size_in, size_out in rest)
        self.layers = nn.ModuleList(Epilogue(size, norm, batch_norm_decay) for size in layer_sizes)
        self.weight_standardization, self.dropout_prob = weight_standardization, dropout_prob

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        h = project_features(graph, self.input_weights, view)  # (N, D_1)
        for index, epilogue in enumerate(self.layers):
            if index:
                weight = self.weights[index - 1]
                prob = self.dropout_prob if self.training else 0.0
                h = dropout(h, prob, seed=view.seed, layer=index)
                h = h @ (standardize(weight) if self.weight_standardization else weight)
            h = epilogue(h, graph)
        return h


def dropout(h: Tensor, prob: float, *, seed: int | Tensor, layer: int = 0) -> Tensor:
    """h with each element set to 0 with this probability, and the others divided by 1 - prob."""
    if prob == 0.0:
        return h
    ids = torch.arange(h.numel(), device=h.device).view(h.shape) + (_DROPOUT_BRANCH + (layer << 48))
    kept: Tensor = keep(ids, seed, drop_threshold(prob))
    return h * kept / (1.0 - prob)
