"""GCN: graph convolution, then normalisation, then PReLU, at every layer including the last.

Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017; as used by BGRL:

    H_0     = X                                               one feature block per node type
    H_i     = prelu(norm(A_hat H_{i-1} W_i))
    A_hat   = D^-1/2 (A + I) D^-1/2                           D: in-degree of the view plus the self-loop

Cost of a pass: time O(E D + N F D), or O(E D + nnz(X) D) with sparse features; memory O(N D).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphstrap.graph import Graph
from graphstrap.ops import prelu, project, propagate
from graphstrap.view import CLEAN, View


class GCN(nn.Module):
    """A stack of graph convolutions.

    Args:
        input_sizes: width of each node type's feature block; 0 for a type without features, which gets a learned
            vector.
        layer_sizes: output width of every layer; the last one is the embedding's.
        norm: "batch", "layer" or "none".
        weight_standardization: centre and scale each column of every weight but the first (Qiao et al., 2019).
        batch_norm_decay: how much of the old running statistics a step keeps, as in the paper (PyTorch's `momentum`
            is 1 - decay).
        generator: source of the initial weights.
    """

    def __init__(
        self,
        input_sizes: Sequence[int],
        layer_sizes: Sequence[int],
        *,
        norm: str = "batch",
        weight_standardization: bool = False,
        batch_norm_decay: float = 0.99,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_sizes = tuple(input_sizes)
        self.embedding_size = int(layer_sizes[-1])
        first, rest = layer_sizes[0], pairwise(layer_sizes)
        self.input_weights = nn.ParameterList(glorot(max(1, size), first, generator) for size in input_sizes)
        self.weights = nn.ParameterList(glorot(size_in, size_out, generator) for size_in, size_out in rest)
        self.layers = nn.ModuleList(_Finish(size, norm, batch_norm_decay) for size in layer_sizes)
        self.weight_standardization = weight_standardization

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        h: Tensor = self.layers[0](propagate(graph, view, self._project_features(graph, view)))  # (N, D_1)
        for weight, finish in zip(self.weights, self.layers[1:], strict=True):
            if self.weight_standardization:
                weight = standardize(weight)
            h = finish(propagate(graph, view, h @ weight))
        return h

    def _project_features(self, graph: Graph, view: View) -> Tensor:
        blocks = []
        for block, weight in enumerate(self.input_weights):
            if graph.features[block] is None:
                num_nodes = graph.type_offsets[block + 1] - graph.type_offsets[block]
                blocks.append(weight.expand(num_nodes, -1))
            else:
                blocks.append(project(graph, view, weight, block=block))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)


class _Finish(nn.Module):
    """Bias, normalisation and PReLU with one shared slope. Batch norm removes any bias, so it gets none."""

    def __init__(self, size: int, norm: str, batch_norm_decay: float) -> None:
        super().__init__()
        if norm not in ("batch", "layer", "none"):
            raise ValueError(f"norm must be batch, layer or none, got {norm!r}")
        self.bias = None if norm == "batch" else nn.Parameter(torch.zeros(size))
        self.norm: nn.Module = nn.Identity()
        if norm == "batch":
            self.norm = nn.BatchNorm1d(size, momentum=1.0 - batch_norm_decay)
        if norm == "layer":
            self.norm = nn.LayerNorm(size)
        self.slope = nn.Parameter(torch.tensor([0.25]))

    def forward(self, h: Tensor) -> Tensor:
        if self.bias is not None:
            h = h + self.bias
        return prelu(self.norm(h), self.slope)


def glorot(size_in: int, size_out: int, generator: torch.Generator | None) -> nn.Parameter:
    """A (size_in, size_out) weight, uniform within sqrt(6 / (size_in + size_out))."""
    bound = (6.0 / (size_in + size_out)) ** 0.5
    return nn.Parameter(torch.empty(size_in, size_out).uniform_(-bound, bound, generator=generator))


def standardize(weight: Tensor) -> Tensor:
    """Columns of mean 0 and variance 1 / size_in."""
    variance, mean = torch.var_mean(weight, dim=0, keepdim=True, correction=0)
    return (weight - mean) * torch.rsqrt(variance * weight.shape[0] + 1e-5)
