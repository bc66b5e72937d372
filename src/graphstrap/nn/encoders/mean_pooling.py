"""Mean pooling with skips: each node takes the mean over its neighbours and itself.

Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017; as in DGI and BGRL on PPI, with three
layers of 512:

    MP_i(Z)  = D^-1 (A + I) Z W_i                             D: in-degree of the view plus the self-loop
    H_1      = prelu(norm(MP_1(X)))
    H_2      = prelu(norm(MP_2(H_1 + X W_skip)))
    H_3      = prelu(norm(MP_3(H_2 + H_1 + X W_skip')))       every further layer: the sum of all before, and X W_skip

The paper writes the nonlinearity inside MP and around it; it is applied once. Options of the authors' code: a weight
for the node itself, MP_i(Z) + Z W_root (their mean is then over the neighbours alone, ours still counts the node), and
layer norm over all nodes and columns of a graph.
Cost of a pass: time O(E D + N F D), or O(E D + nnz(X) D) with sparse features; memory O(N D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.encoders.gcn import Epilogue, glorot, project_features, standardize
from graphstrap.ops import propagate
from graphstrap.run.recipe import ENCODERS, EncoderSettings, Recipe
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class MeanPoolingSettings(EncoderSettings):
    """What `MeanPooling` takes, below."""

    name: str = "mean-pooling"
    norm: str = setting("batch", choices=("batch", "layer", "graph", "none"))
    weight_standardization: bool = setting(False)
    bias: bool = setting(True)
    root_weight: bool = setting(False)

    def check(self, recipe: Recipe) -> None:
        if len(set(self.hidden_sizes)) > 1:
            raise InputError("encoder.hidden_sizes must all be the same for mean-pooling, which adds them up")


@ENCODERS.register("mean-pooling")
class MeanPooling(Encoder):
    """A stack of mean-pooling layers, each with the features as a second input; the arguments are those of `GCN`, and
    one more.

    Args:
        layer_sizes: output width of every layer; all but the last must be the same.
        root_weight: give every layer a weight for the node itself.
    """

    Settings = MeanPoolingSettings

    def __init__(
        self,
        input_sizes: Sequence[int],
        layer_sizes: Sequence[int],
        *,
        norm: str = "layer",
        root_weight: bool = False,
        weight_standardization: bool = False,
        bias: bool = True,
        batch_norm_decay: float = 0.99,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        hidden = layer_sizes[0]
        if any(size != hidden for size in layer_sizes[:-1]):
            raise InputError(f"the hidden layers of mean pooling are added up: make {list(layer_sizes[:-1])} all alike")
        self.input_sizes = tuple(input_sizes)
        self.embedding_size = int(layer_sizes[-1])
        self.weight_standardization = weight_standardization
        sizes = [max(1, size) for size in input_sizes]

        def blocks(size: int) -> nn.ParameterList:
            return nn.ParameterList(glorot(size_in, size, generator) for size_in in sizes)

        rest = layer_sizes[1:]
        self.input_weights = blocks(hidden)
        self.input_roots = blocks(hidden) if root_weight else None
        self.weights = nn.ParameterList(glorot(hidden, size, generator) for size in rest)
        self.roots = nn.ParameterList(glorot(hidden, size, generator) for size in rest) if root_weight else None
        self.skips = nn.ModuleList(blocks(hidden) for _ in rest)
        self.layers = nn.ModuleList(Epilogue(size, norm, batch_norm_decay, bias) for size in layer_sizes)

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        z = propagate(graph, view.masks, project_features(graph, self.input_weights, view), norm="mean")
        if self.input_roots is not None:
            z = z + project_features(graph, self.input_roots, view)
        h: Tensor = self.layers[0](z, graph)
        total = h
        for index, skip in enumerate(self.skips):
            assert isinstance(skip, nn.ParameterList)
            z = total + project_features(graph, skip, view)  # (N, D)
            pooled = propagate(graph, view.masks, z @ self._standard(self.weights[index]), norm="mean")
            if self.roots is not None:
                pooled = pooled + z @ self._standard(self.roots[index])
            h = self.layers[index + 1](pooled, graph)
            if index + 1 < len(self.skips):
                total = total + h
        return h

    def _standard(self, weight: Tensor) -> Tensor:
        return standardize(weight) if self.weight_standardization else weight
