"""GAT: each node weighs its neighbours and itself by attention, for several heads at once.

Veličković et al., Graph Attention Networks, ICLR 2018; in BGRL's paper, on PPI, with 4 heads of 256, 4 heads of 256 and
6 heads of 512:

    H_0      = X                                                       one feature block per node type
    out_i    = [ sum_j a_ij,k (W_k h_j)  for every head k ]            concatenated; averaged in the last layer
    a_i,k    = softmax over j in N(i) and i of leaky_relu(b_k . W_k h_j + c_k . W_k h_i + d_k . x_ij)
    H_l      = elu(norm(out + bias + H_{l-1} W_skip))                  the last layer has no skip

x_ij is the edge's type, and asinh of its weight and columns, where the graph has any; that of a self-loop is the mean
of its node's incoming edges, as in PyTorch Geometric. b_k . W_k h is computed as h (W_k^T b_k): N H products instead of
a pass over W h.
Departs from the paper: which layers have a skip, it says only as "intermediate"; ours are all but the last.
Cost of a pass: time O(E H C + N D H C), memory O(N H C + E H): no row for an edge is ever made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.graph import CLEAN, Graph, View
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.encoders.edges import edge_inputs
from graphstrap.nn.encoders.gcn import glorot, make_norm, project_features, standardize
from graphstrap.ops import Scores, attend, attend_features, attention_weights, edge_means
from graphstrap.run.recipe import ENCODERS, EncoderSettings
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class GATSettings(EncoderSettings):
    name: str = "gat"
    weight_standardization: bool = setting(False)
    num_heads: int = setting(4, low=1, high=1024)
    num_output_heads: int = setting(6, low=1, high=1024)


@ENCODERS.register("gat")
class GAT(Encoder):
    """A stack of attention layers; the arguments that are not named here are those of `GCN`.

    Args:
        layer_sizes: width of one head of every layer; the last one is the embedding's.
        num_heads: heads of every layer but the last, whose outputs are concatenated.
        num_output_heads: heads of the last layer, which are averaged.
        norm: "batch", "layer" or "none", in front of the ELU.
        edge_size: how many numbers each edge has; 0 for none.
    """

    Settings = GATSettings
    reads_edges = True

    def __init__(
        self,
        input_sizes: Sequence[int],
        layer_sizes: Sequence[int],
        *,
        num_heads: int = 4,
        num_output_heads: int = 6,
        norm: str = "none",
        weight_standardization: bool = False,
        batch_norm_decay: float = 0.99,
        edge_size: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_sizes, self.edge_size = tuple(input_sizes), edge_size
        self.embedding_size = int(layer_sizes[-1])
        self.layers = nn.ModuleList()
        blocks = [max(1, size) for size in input_sizes]
        for index, size in enumerate(layer_sizes):
            is_last = index == len(layer_sizes) - 1
            heads = num_output_heads if is_last else num_heads
            layer = _Layer(blocks, size, heads, is_last, edge_size, norm, batch_norm_decay, generator)
            layer.weight_standardization = weight_standardization and index > 0
            self.layers.append(layer)
            blocks = [heads * size]

    @classmethod
    def default_sizes(cls, hidden_size: int, embedding_size: int) -> tuple[int, int]:
        return hidden_size // 4, embedding_size  # a head's: four stand side by side

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        h: Tensor | None = None
        edges = self._edges(graph, view)
        for layer in self.layers:
            h = layer(graph, view, h, edges)
        assert h is not None
        return h

    @torch.no_grad()
    def attention(self, graph: Graph, view: View = CLEAN) -> list[tuple[Tensor, Tensor]]:
        """For every layer, what each head gives to every edge, (E, H), and to every self-loop, (N, H)."""
        h: Tensor | None = None
        edges, found = self._edges(graph, view), []
        for layer in self.layers:
            assert isinstance(layer, _Layer)
            found.append(attention_weights(graph, view.masks, layer.scores(graph, view, h, edges)))
            h = layer(graph, view, h, edges)
        return found

    def _edges(self, graph: Graph, view: View) -> Tensor | None:
        """(E + N, K) the numbers of the edges, then of the self-loops."""
        columns = edge_inputs(graph, self.edge_size)
        return None if columns is None else torch.cat([columns, edge_means(graph, view.masks, columns)])


class _Layer(nn.Module):
    """One layer; the first takes the graph's feature blocks, a later one what the layer before it gives."""

    def __init__(
        self,
        sizes_in: Sequence[int],
        size: int,
        num_heads: int,
        is_last: bool,
        edge_size: int,
        norm: str,
        batch_norm_decay: float,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.num_heads, self.is_last, self.weight_standardization = num_heads, is_last, False
        size_out = size if is_last else num_heads * size
        self.weights = nn.ParameterList(glorot(size_in, num_heads * size, generator) for size_in in sizes_in)
        self.source, self.target = glorot(num_heads, size, generator), glorot(num_heads, size, generator)
        self.edge = glorot(edge_size, num_heads, generator) if edge_size else None
        self.skips = nn.ParameterList(() if is_last else (glorot(s, size_out, generator) for s in sizes_in))
        self.bias = nn.Parameter(torch.zeros(size_out))
        self.norm = make_norm(norm, size_out, batch_norm_decay)

    def forward(self, graph: Graph, view: View, h: Tensor | None, edges: Tensor | None) -> Tensor:
        scores, weights = self.scores(graph, view, h, edges), self._standard_weights()
        has_one_block = len(graph.features) == 1 and graph.features[0] is not None
        if h is None and not self.is_last and has_one_block and not view.spec.shuffle_nodes:
            z = attend_features(graph, view.masks, weights[0], scores)
        else:
            z = attend(graph, view.masks, self._times(graph, view, h, weights), scores, average=self.is_last)
        z = z + self.bias.to(z.dtype)
        if len(self.skips):
            z = z + self._times(graph, view, h, list(self.skips))
        return F.elu(self.norm(z).to(z.dtype), inplace=True)

    def scores(self, graph: Graph, view: View, h: Tensor | None, edges: Tensor | None) -> Scores:
        """What the layer attends by."""
        both = torch.stack([self.source, self.target])  # (2, H, C)
        weights = [
            torch.einsum("dhc,shc->dsh", weight.view(len(weight), self.num_heads, -1), both).flatten(1)
            for weight in self._standard_weights()
        ]
        source, target = self._times(graph, view, h, weights).chunk(2, dim=1)  # (N, H) each
        edge = None if edges is None or self.edge is None else edges @ self.edge
        return Scores(source, target, edge)

    def _times(self, graph: Graph, view: View, h: Tensor | None, weights: Sequence[Tensor]) -> Tensor:
        """The layer's input times its weight; the graph's features times theirs in the first layer."""
        return project_features(graph, weights, view) if h is None else h @ weights[0]

    def _standard_weights(self) -> list[Tensor]:
        return [standardize(w) if self.weight_standardization else w for w in self.weights]
