"""MPNN: messages along edges and against them, node states that add up what they hear.

Gilmer et al., Neural Message Passing for Quantum Chemistry, ICML 2017, both ways at once; as for MAG240M, with 4 steps,
states of 256 and MLPs of two hidden layers of 512:

    h_v   = norm(x_v W_type(v) + b_type(v))                             one feature block per node type
    m_uv  = mlp_edge([h_u, h_v, x_uv])                                  x_uv: edge type, asinh of weight and columns
    h_v  <- norm(h_v + mlp_node([h_v, mean_u m_uv, mean_w m_vw]))       what it receives and what it sends; every step

Departs from the MAG240M entry, which adds messages up: that serves where a sampler bounds their number. In a whole
graph with hubs the sums drown the node's own state (docs/LOG.md): the mean is the default, `aggregation="sum"` theirs.
A sampled batch follows edges against their direction: it gives its roots what the whole graph gives with every
neighbour, one hop more than steps, and edges that all have their reverse.
A linear layer on a concatenation is a sum of products: those with h_u and h_v are made for nodes, then gathered; and
the last layer of mlp_edge, being linear, comes after the sums, in one product with the first of mlp_node. So per edge
only what lies between them is computed.
Cost of a step: time O(E M^2 + N M D) for hidden layers of M (O(E M) with one hidden layer), memory O(E M): a row for
every edge. Where those of all steps would take much of the free memory, the steps are made again in the backward pass,
which costs a fifth of the time and keeps the rows of one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.encoders.edges import edge_inputs
from graphstrap.nn.encoders.gcn import glorot, join_blocks, make_norm, project_block
from graphstrap.ops import bias_prelu, edges_from_nodes, linear, linear_prelu, nodes_from_edges, product_dtype
from graphstrap.ops.memory import free_memory
from graphstrap.run.recipe import ENCODERS, EncoderSettings, Recipe
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class MPNNSettings(EncoderSettings):
    """What `MPNN` takes, below."""

    name: str = "mpnn"
    num_steps: int = setting(4, low=1, high=1024)
    aggregation: str = setting("mean", choices=("mean", "sum"))

    def check(self, recipe: Recipe) -> None:
        if not self.hidden_sizes:
            raise InputError("encoder.hidden_sizes are the hidden layers of the mpnn's MLPs: give at least one")


@ENCODERS.register("mpnn")
class MPNN(Encoder):
    """Steps of message passing, each with weights of its own; the arguments that are not named here are those of `GCN`.

    Args:
        layer_sizes: the hidden layers of every MLP, one or more, then the width of the states, which is the
            embedding's.
        num_steps: how often messages are passed.
        aggregation: "mean" or "sum" of a node's messages.
        norm: "layer", "batch" or "none", after every step.
        edge_size: how many numbers each edge has; 0 for none.
    """

    Settings = MPNNSettings
    reads_edges = True

    def __init__(
        self,
        input_sizes: Sequence[int],
        layer_sizes: Sequence[int],
        *,
        num_steps: int = 4,
        aggregation: str = "mean",
        norm: str = "layer",
        batch_norm_decay: float = 0.99,
        edge_size: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        *hidden, size = layer_sizes
        self.input_sizes, self.edge_size, self.aggregation = tuple(input_sizes), edge_size, aggregation
        self.embedding_size, self.hidden_sizes = int(size), tuple(hidden)
        self.input_weights = nn.ParameterList(glorot(max(1, size_in), size, generator) for size_in in input_sizes)
        self.type_biases = nn.ParameterList(nn.Parameter(torch.zeros(size)) for _ in input_sizes)
        self.steps = nn.ModuleList(_Step(size, hidden, edge_size, generator) for _ in range(num_steps))
        self.norms = nn.ModuleList(make_norm(norm, size, batch_norm_decay) for _ in range(num_steps + 1))

    @classmethod
    def default_sizes(cls, hidden_size: int, embedding_size: int) -> tuple[int, int]:
        return 128, 64  # wider ones are no better, and every edge has to be computed

    @classmethod
    def fewest_tensors(cls, settings: MPNNSettings) -> int:
        return settings.num_steps * len(settings.hidden_sizes)

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        inputs = enumerate(zip(self.input_weights, self.type_biases, strict=True))
        blocks = [project_block(graph, view, [weight], block)[0] + bias for block, (weight, bias) in inputs]
        h: Tensor = self.norms[0](join_blocks(blocks))  # (N, D)
        edges, scales = edge_inputs(graph, self.edge_size), self._scales(graph, view)
        is_made_again = torch.is_grad_enabled() and not self._fits(graph)
        for step, norm in zip(self.steps, self.norms[1:], strict=True):
            take = partial(checkpoint, step, use_reentrant=False, preserve_rng_state=False) if is_made_again else step
            h = norm(h + take(graph, view.masks, h, edges, scales))
        return h

    def _fits(self, graph: Graph) -> bool:
        """Whether what the backward pass needs of all steps takes less than a third of the free memory: there are two
        views. While a program is captured nobody may ask."""
        weight = self.input_weights[0]
        if weight.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
        num_hidden = len(self.hidden_sizes)
        num_rows = (2 * num_hidden - 1) * graph.num_edges + (2 * num_hidden + 2) * graph.num_nodes
        needed = len(self.steps) * num_rows * max(self.hidden_sizes) * product_dtype(weight).itemsize
        return needed < free_memory(weight.device) // 3

    @torch.no_grad()
    def _scales(self, graph: Graph, view: View) -> tuple[Tensor, Tensor] | None:
        """(N, 1) one over the number of edges into each node that the view keeps, and of those out of it."""
        if self.aggregation == "sum":
            return None
        numbers = nodes_from_edges(graph, view.masks, torch.ones(graph.num_edges, 1, device=graph.device))
        return numbers[0].clamp(min=1.0).reciprocal(), numbers[1].clamp(min=1.0).reciprocal()


class _Step(nn.Module):
    """The change of every node's state by one step; see the module's first lines."""

    def __init__(self, size: int, hidden: Sequence[int], edge_size: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.source, self.target = glorot(size, hidden[0], generator), glorot(size, hidden[0], generator)
        self.edge = glorot(edge_size, hidden[0], generator) if edge_size else None
        self.edge_mlp = _Hidden(hidden, generator)
        self.message = glorot(hidden[-1], size, generator)
        self.own, self.received, self.sent = (glorot(size, hidden[0], generator) for _ in range(3))
        self.node_mlp = _Hidden(hidden, generator)
        self.out, self.out_bias = glorot(hidden[-1], size, generator), nn.Parameter(torch.zeros(size))

    def forward(
        self, graph: Graph, view: View, h: Tensor, edges: Tensor | None, scales: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        h = h.to(product_dtype(self.source))  # once, not for each of three products
        z = edges_from_nodes(graph, h @ self.source, h @ self.target)  # (E, M)
        if self.edge is not None:
            assert edges is not None
            z = z + (edges @ self.edge).to(z.dtype)
        received, sent = nodes_from_edges(graph, view, self.edge_mlp(z))  # (N, M) each
        if scales is not None:
            received, sent = (part * scale.to(part.dtype) for part, scale in zip((received, sent), scales, strict=True))
        z = h @ self.own + received @ (self.message @ self.received) + sent @ (self.message @ self.sent)
        return linear(self.node_mlp(z), self.out, self.out_bias)


class _Hidden(nn.Module):
    """The hidden layers of an MLP, the first one's product already made: PReLU, then Linear and PReLU for the rest."""

    def __init__(self, sizes: Sequence[int], generator: torch.Generator | None) -> None:
        super().__init__()
        self.weights = nn.ParameterList(glorot(size_in, size_out, generator) for size_in, size_out in pairwise(sizes))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)
        self.slopes = nn.ParameterList(nn.Parameter(torch.tensor([0.25])) for _ in sizes)

    def forward(self, z: Tensor) -> Tensor:
        z = bias_prelu(z, self.biases[0], self.slopes[0])
        for index, weight in enumerate(self.weights, start=1):
            z = linear_prelu(z, weight, self.biases[index], self.slopes[index])
        return z
