"""MVGRL: tell a node in one structural view from an impostor, by the summary of the other view.

Hassani and Khasahmadi, Contrastive Multi-View Representation Learning on Graphs, ICML 2020; as used for nodes:

    S          = alpha (I - (1 - alpha) A_hat)^-1              personalised PageRank; A_hat = D^-1/2 (A + I) D^-1/2
    h_1, h_2   = f(X, A_hat), g(X, S)                          two encoders of one shape
    n_1, n_2   = f(P X, A_hat), g(P X, S)                      P: rows of the features shuffled, a new order every step
    c_1, c_2   = sigmoid(mean h_1), sigmoid(mean h_2)          summaries, (D,)
    score(h,c) = h^T W c + b
    loss       = 1/4 (mean softplus(-score(h_1, c_2)) + mean softplus(-score(h_2, c_1))
                    + mean softplus( score(n_1, c_2)) + mean softplus( score(n_2, c_1)))
    embedding  = h_1 + h_2

Nothing is dropped or masked: of a view only the seed is used. The authors' encoders are one layer of 512 without
normalisation (`hidden_sizes = []`, `norm = "none"`); with batch norm the running statistics mix real and shuffled
features, as in DGI.

Departs from the authors' code; test_mvgrl.py::test_loss_equals_an_independent_numpy_version pins the first two:
  * A step sees the whole graph; the code cuts 4 windows of 2,000 consecutive nodes out of A_hat and S. On Cora that is
    nearly the whole, elsewhere it drops most edges, and which ones depends on how the nodes happen to be numbered.
  * One self-loop a node in both views; the code has one in S and two in A_hat.
  * S is used as it is; the code cuts off small entries and rescales its columns on CiteSeer.
  * A fixed number of steps; the code goes back to the step of the lowest loss.
  * AdamW with the recipe's weight decay; theirs is Adam without any.
Like the code, and unlike Algorithm 1 of the paper, it has no heads between the encoders and the discriminator.
Cost of a step: time O(N^2 D + E D), memory O(N^2). Once for each graph: S by a dense inverse, O(N^3) and O(N^2); what
would not fit is refused before it is made (`mvgrl_bytes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.nn.encoders.gcn import GCN, bilinear_weight, convolve, only_gcn, project_features
from graphstrap.nn.methods import Blueprint, Method, MethodSettings, Stats
from graphstrap.nn.methods.dgi import SHUFFLED
from graphstrap.ops import propagate
from graphstrap.ops.memory import free_memory
from graphstrap.ops.once import once
from graphstrap.run.recipe import METHODS
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class MVGRLSettings(MethodSettings):
    """`teleport_prob`: alpha, the share of the walk that starts anew at each hop (0.2 in the authors' code)."""

    name: str = "mvgrl"
    teleport_prob: float = setting(0.2, low=1e-3, high=1.0)


@METHODS.register("mvgrl")
class MVGRL(Method):
    """The method: two encoders, whose weights come from different children of the seed, and the discriminator between
    them."""

    Settings = MVGRLSettings
    num_views, takes_samples, reads_views, looks_inside_encoder = 1, False, False, True
    online: TwoEncoders

    def __init__(self, settings: MVGRLSettings, blueprint: Blueprint) -> None:
        super().__init__()
        generators = blueprint.generator(0), blueprint.generator(1)
        encoders = (only_gcn(blueprint.make_encoder(generator)) for generator in generators)
        self.online = TwoEncoders(*encoders, teleport_prob=settings.teleport_prob)
        size = self.online.embedding_size
        self.weight = bilinear_weight(size, size, generators[0])
        self.bias = nn.Parameter(torch.zeros(1))

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        tables = self.online.encode(batch, [CLEAN, View(SHUFFLED, views[0].seed)])
        h_1, n_1, h_2, n_2 = (batch.roots_of(h).float() for h in tables)  # (N, D) each
        loss = discrimination_loss((h_1, h_2), (n_1, n_2), self.weight, self.bias)
        return loss, {"embedding": (h_1 + h_2).detach()}


class TwoEncoders(nn.Module):
    """One GCN over the adjacency, one over the diffusion."""

    def __init__(self, adjacency: GCN, diffusion: GCN, *, teleport_prob: float) -> None:
        super().__init__()
        self.adjacency, self.diffusion, self.teleport_prob = adjacency, diffusion, teleport_prob
        self.embedding_size = adjacency.embedding_size

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        h_1, h_2 = self.encode(graph, [view])
        return h_1 + h_2

    def encode(self, graph: Graph, views: Sequence[View]) -> list[Tensor]:
        """Embeddings over the adjacency, one for each view, then those over the diffusion.

        Views differ in the order of the feature rows alone, and share each pass over the edges and over S.
        """
        sizes = [weight.shape[1] for weight in (self.adjacency.input_weights[0], *self.adjacency.weights)]
        s = diffusion(graph, self.teleport_prob, layer_sizes=sizes)  # (N, N)
        tables_1 = [project_features(graph, self.adjacency.input_weights, view) for view in views]  # (N, D_1) each
        tables_2 = [project_features(graph, self.diffusion.input_weights, view) for view in views]
        return [
            *convolve(self.adjacency, graph, tables_1, lambda h: propagate(graph, views[0].masks, h)),
            *convolve(self.diffusion, graph, tables_2, lambda h: s @ h),
        ]


def discrimination_loss(
    real: tuple[Tensor, Tensor], shuffled: tuple[Tensor, Tensor], weight: Tensor, bias: Tensor
) -> Tensor:
    """The mean cross-entropy of 4 N decisions: does this node belong to the graph that the other view summarises?"""
    losses = []
    for node_view, summary_view in ((0, 1), (1, 0)):
        summary = torch.sigmoid(real[summary_view].mean(0))  # (D,)
        direction = (weight * summary).sum(1)  # W c as a sum: a product would be rounded under autocast
        for h, sign in ((real[node_view], -1.0), (shuffled[node_view], 1.0)):
            losses.append(F.softplus(sign * ((h * direction).sum(1) + bias)).mean())
    return torch.stack(losses).mean()


@once
def diffusion(graph: Graph, teleport_prob: float, /, *, layer_sizes: Sequence[int] = ()) -> Tensor:
    """(N, N) alpha (I - (1 - alpha) D^-1/2 (A + I) D^-1/2)^-1 in float32, made once for a graph and alpha.

    Raises InputError, before anything is allocated, where this and a training step of such layers would not fit.
    """
    needed, free = mvgrl_bytes(graph.num_nodes, layer_sizes=layer_sizes), free_memory(graph.device)
    if needed > free:
        raise InputError(
            f"OOM: needs about {_gigabytes(needed)} of {_gigabytes(free)}: mvgrl keeps a number for every "
            f"pair of the {graph.num_nodes:,} nodes; bgrl's memory grows with the nodes"
        )
    return _diffuse(graph, teleport_prob)


@torch.no_grad()
def _diffuse(graph: Graph, teleport_prob: float) -> Tensor:
    source, target, size = graph.indices.long(), graph.targets, graph.num_nodes
    weight = graph.indptr.new_ones(graph.num_edges, dtype=torch.float32)
    if graph.edge_weights is not None:
        weight = graph.edge_weights.float()
    scale = weight.new_ones(size).index_add(0, target, weight).rsqrt()  # (N,)
    walk = weight.new_zeros(size, size)
    walk.index_put_((target, source), weight * scale[target] * scale[source], accumulate=True)
    walk.diagonal().add_(scale.square())
    walk.mul_(teleport_prob - 1.0).diagonal().add_(1.0)
    inverse: Tensor = torch.linalg.inv(walk)
    return inverse.mul_(teleport_prob)


def mvgrl_bytes(num_nodes: int, *, layer_sizes: Sequence[int] = (512,)) -> int:
    """About the most memory that training takes at one time, beyond the graph and its features.

    While S is made: its inverse, a factorisation and the result, 3 N^2 floats. While training: S and its copy in
    bfloat16, 1.5 N^2 floats, and some 32 tables of N rows for each layer.
    """
    return max(12 * num_nodes**2, 6 * num_nodes**2 + 4 * 32 * num_nodes * sum(layer_sizes))


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.0f} GB" if num_bytes >= 1e10 else f"{num_bytes / 1e9:.2g} GB"
