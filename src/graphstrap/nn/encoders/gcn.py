"""GCN: graph convolution, then normalisation, then PReLU, at every layer including the last, unless it ends linearly.

Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017; as used by BGRL:

    H_0     = X                                               one feature block per node type
    H_i     = prelu(norm(A_hat H_{i-1} W_i))
    A_hat   = D^-1/2 (A + I) D^-1/2                           D: in-degree of the view plus the self-loop

Every layer uses up one hop of a sampled batch: the nodes of the last hop, of whose neighbours the batch has none, are
left out of what follows it, and of its normalisation. With as many hops as layers the roots remain.

A view that shuffles nodes permutes the rows of X W, which is permuting those of X.
Cost of a pass: time O(E D + N F D), or O(E D + nnz(X) D) with sparse features; memory O(N D).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.graph.views import child_seed, hash32
from graphstrap.nn.encoders import Encoder
from graphstrap.ops import batch_norm_prelu, bias_prelu, graph_norm_prelu, layer_norm_prelu, project_all, propagate_all
from graphstrap.run.recipe import ENCODERS, EncoderSettings
from graphstrap.run.settings import setting

# Who gets features and whose they are: two hashes of a view's seed, apart from those of its edges and columns.
_RECEIVER_STREAM, _GIVER_STREAM = child_seed(0, 3), child_seed(0, 4)


@dataclass(frozen=True)
class GCNSettings(EncoderSettings):
    """What `GCN` takes, below."""

    name: str = "gcn"
    norm: str = setting("batch", choices=("batch", "layer", "graph", "none"))
    weight_standardization: bool = setting(False)
    bias: bool = setting(True)
    linear_end: bool = setting(False)


@ENCODERS.register("gcn")
class GCN(Encoder):
    """A stack of graph convolutions.

    Args:
        input_sizes: width of each node type's feature block; 0 for a type without features, which gets a learned
            vector.
        layer_sizes: output width of every layer; the last one is the embedding's.
        norm: "batch", "layer", "graph" (layer norm over all nodes and columns of each graph) or "none".
        weight_standardization: centre and scale each column of every weight but the first (Qiao et al., 2019).
        bias: add one in front of a norm that is not batch norm, as the authors' code does; the paper's equation, above,
            has none, and a high rate makes it outgrow small features, alike for all nodes.
        linear_end: no norm and no PReLU after the last layer, only a bias.
        batch_norm_decay: how much of the old running statistics a step keeps, as in the paper (PyTorch's `momentum`
            is 1 - decay).
        generator: source of the initial weights.
    """

    Settings: ClassVar[type[EncoderSettings]] = GCNSettings
    is_layered = uses_up_hops = True

    def __init__(
        self,
        input_sizes: Sequence[int],
        layer_sizes: Sequence[int],
        *,
        norm: str = "batch",
        weight_standardization: bool = False,
        bias: bool = True,
        linear_end: bool = False,
        batch_norm_decay: float = 0.99,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_sizes = tuple(input_sizes)
        self.embedding_size = int(layer_sizes[-1])
        first, rest = layer_sizes[0], pairwise(layer_sizes)
        self.input_weights = nn.ParameterList(glorot(max(1, size), first, generator) for size in input_sizes)
        self.weights = nn.ParameterList(glorot(size_in, size_out, generator) for size_in, size_out in rest)
        self.layers = nn.ModuleList(Epilogue(size, norm, batch_norm_decay, bias) for size in layer_sizes)
        if linear_end:
            self.layers[-1] = Epilogue(self.embedding_size, "none", batch_norm_decay, is_linear=True)
        self.weight_standardization = weight_standardization

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        return self.encode_all([], graph, view)[0]

    def encode_all(self, others: Sequence[nn.Module], graph: Graph, view: View) -> list[Tensor]:
        """GCNs of the same sizes share each pass over edges and features."""
        encoders: list[Any] = [self, *others]
        of_blocks = enumerate(zip(*(encoder.input_weights for encoder in encoders), strict=True))
        blocks = [project_block(graph, view, weights, block) for block, weights in of_blocks]
        tables = [join_blocks(of_encoder) for of_encoder in zip(*blocks, strict=True)]  # (N, D_1) each
        for index in range(len(self.layers)):
            if index:
                tables = [h @ encoder.weight(index) for encoder, h in zip(encoders, tables, strict=True)]
            if self.follows_edges:
                tables = propagate_all(graph, view.masks, tables)
                graph = graph.inner
            inner = [_first_rows(h, graph.num_nodes) for h in tables]
            tables = [encoder.layers[index](h, graph) for encoder, h in zip(encoders, inner, strict=True)]
        return [tables[0], *(h.detach() for h in tables[1:])]

    def weight(self, index: int) -> Tensor:
        """The weight of a layer after the first, standardised where that is asked for."""
        weight = self.weights[index - 1]
        return standardize(weight) if self.weight_standardization else weight


def _first_rows(h: Tensor, number: int) -> Tensor:
    """All of them as they are: the gradient of a slice is a copy."""
    return h if len(h) == number else h[:number]


def project_features(graph: Graph, weights: Iterable[Tensor], view: View = CLEAN) -> Tensor:
    """(N, D) the features of all nodes, in the order that the view gives them, times a weight for each node type."""
    return join_blocks([project_block(graph, view, [weight], block)[0] for block, weight in enumerate(weights)])


def join_blocks(blocks: Sequence[Tensor]) -> Tensor:
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks))


def project_block(graph: Graph, view: View, weights: Sequence[Tensor], block: int) -> list[Tensor]:
    """A node type's features times each weight; a type without features gets the same learned vector everywhere."""
    if graph.features[block] is None:
        num_nodes = graph.type_offsets[block + 1] - graph.type_offsets[block]
        return [weight.expand(num_nodes, -1) for weight in weights]
    tables = project_all(graph, view.masks, weights, block=block)
    if not view.spec.shuffle_nodes:
        return tables
    rows = shuffled_rows(graph, view, block)
    return [h.index_select(0, rows) for h in tables]


def shuffled_rows(graph: Graph, view: View, block: int) -> Tensor:
    """(N_t,) whose features each node of a type gets: the node that is at its place in another random order.

    Both orders are by a hash of global ids, so who gets whose does not depend on places in a batch.
    """
    first, last = graph.type_offsets[block], graph.type_offsets[block + 1]
    ids = torch.arange(first, last, device=graph.device) if graph.node_ids is None else graph.node_ids[first:last]
    words = hash32(ids, view.seed)
    receivers, givers = (
        torch.argsort(hash32(words, stream), stable=True) for stream in (_RECEIVER_STREAM, _GIVER_STREAM)
    )
    return torch.empty_like(givers).scatter_(0, receivers, givers)


class Epilogue(nn.Module):
    """Bias, normalisation and PReLU with one shared slope. Batch norm removes any bias, so it gets none; where none is
    wanted it stays 0. The norm over each graph needs to know the graph, the others do not. `is_linear`: no PReLU."""

    bias: Tensor | None

    def __init__(
        self, size: int, norm: str, batch_norm_decay: float, has_bias: bool = True, *, is_linear: bool = False
    ) -> None:
        super().__init__()
        if norm not in ("batch", "layer", "graph", "none"):
            raise ValueError(f"norm must be batch, layer, graph or none, got {norm!r}")
        if norm == "batch":
            self.bias = None
        elif has_bias:
            self.bias = nn.Parameter(torch.zeros(size))
        else:
            self.register_buffer("bias", torch.zeros(size), persistent=False)
        self.is_per_graph = norm == "graph"
        self.norm = make_norm("layer" if self.is_per_graph else norm, size, batch_norm_decay)
        self.slope = None if is_linear else nn.Parameter(torch.tensor([0.25]))

    def forward(self, h: Tensor, graph: Graph | None = None) -> Tensor:
        if self.slope is None:
            return h if self.bias is None else h + self.bias
        if isinstance(self.norm, nn.BatchNorm1d):
            return batch_norm_prelu(h, self.norm, self.slope)
        assert self.bias is not None
        if isinstance(self.norm, nn.LayerNorm) and self.is_per_graph:
            assert graph is not None
            return graph_norm_prelu(h, graph, self.norm, self.slope, shift=self.bias)
        if isinstance(self.norm, nn.LayerNorm):
            return layer_norm_prelu(h, self.norm, self.slope, shift=self.bias)
        return bias_prelu(h, self.bias, self.slope)


def make_norm(name: str, size: int, batch_norm_decay: float) -> nn.Module:
    """The norm of this name over rows or columns."""
    if name == "batch":
        return nn.BatchNorm1d(size, momentum=1.0 - batch_norm_decay)
    if name == "layer":
        return nn.LayerNorm(size)
    if name == "none":
        return nn.Identity()
    raise ValueError(f"norm must be batch, layer or none, got {name!r}")


def glorot(size_in: int, size_out: int, generator: torch.Generator | None) -> nn.Parameter:
    """A (size_in, size_out) weight, uniform within sqrt(6 / (size_in + size_out))."""
    bound = (6.0 / (size_in + size_out)) ** 0.5
    return nn.Parameter(torch.empty(size_in, size_out).uniform_(-bound, bound, generator=generator))


def standardize(weight: Tensor) -> Tensor:
    """Columns of mean 0 and variance 1 / size_in."""
    variance, mean = torch.var_mean(weight, dim=0, keepdim=True, correction=0)
    return (weight - mean) * torch.rsqrt(variance * weight.shape[0] + 1e-5)


# A GCN taken apart, for methods that look inside it.


def convolve(encoder: GCN, graph: Graph, tables: Sequence[Tensor], spread: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The encoder's embeddings from projected features, for several tables of them at once.

    `spread` takes the place of A_hat: h (N, K D) -> (N, K D), with all K tables side by side.
    """
    for index, epilogue in enumerate(encoder.layers):
        if index:
            tables = [h @ encoder.weight(index) for h in tables]
        wide = spread(torch.cat(list(tables), dim=1))
        tables = [epilogue(h.contiguous(), graph) for h in wide.chunk(len(tables), dim=1)]
    return list(tables)


def bilinear_weight(size_1: int, size_2: int, generator: torch.Generator | None) -> nn.Parameter:
    """The weight of x_1^T W x_2, uniform within the bound of a Glorot-initialised `torch.nn.Bilinear` of one output."""
    bound = (6.0 / (size_2 * (size_1 + 1))) ** 0.5
    return nn.Parameter(torch.empty(size_1, size_2).uniform_(-bound, bound, generator=generator))


def only_gcn(encoder: nn.Module) -> GCN:
    """The encoder, if it can be taken apart."""
    if not isinstance(encoder, GCN) or not encoder.follows_edges:
        raise InputError(
            f"this method looks inside its encoder and knows only GCN, got {type(encoder).__name__}: "
            "take encoder.name=gcn, or another method"
        )
    return encoder
