"""GRACE: tell each node's own embedding in the other view from all other nodes' embeddings in both views.

Zhu et al., Deep Graph Contrastive Representation Learning, ICML workshop 2020. GCA (Zhu et al., Graph Contrastive
Learning with Adaptive Augmentation, WWW 2021) is the same loss, at the same cost, on views that drop what matters
little more often; its equations and where those depart stand in `views.py`. By PageRank, unless the recipe's views have
another `centrality`.

    u, v    = p(online(view_1)), p(online(view_2))      p: linear, ELU, linear; then rows scaled to length 1
    l(u_i)  = -log e^(u_i.v_i/t) / (e^(u_i.v_i/t) + sum over j != i of e^(u_i.v_j/t) + e^(u_i.u_j/t))
            : the cross-entropy of choosing v_i among all rows of u and v but u_i itself
            = log (sum over all other rows k of u and v of e^(u_i.k/t))  -  u_i.v_i/t
    loss    = mean over i of (l(u_i) + l(v_i)) / 2

With `num_negatives` k, the sum runs over k random nodes j != i (Thakoor et al., ICLR 2022, GRACE-SUBSAMPLING). A block
of k nodes shares a draw: k + 1 successive ones in a random order of all nodes, of which each node leaves out itself or,
if it is not among them, the last. So each node's negatives are a uniform sample of k of the N - 1 others, without
replacement, and (N - 1) / k times their sum is an unbiased estimate of the sum over all. The loss itself is not
rescaled, as in the paper; at k = N - 1 it is the full one. Draws of successive blocks follow each other in that order,
so every node is a negative, and the gathered ones are at most twice as many as there are nodes.

Departs from the original code:
  * The encoder is the recipe's (its `norm`, PReLU); theirs is a GCN without normalisation, under ReLU, RReLU or PReLU.
  * AdamW and Glorot weights throughout; theirs is Adam with the weight decay in its gradient, and PyTorch's usual
    weights in the projector.
  * A projection of length 0 is similar to nothing and gets no gradient: that of its direction has no bound. Pinned by
    test_grace.py::test_a_node_without_a_direction_gets_no_gradient.
  * The original keeps all similarities for its backward pass, four N x N matrices of them, and six more arise in it:
    40 N^2 bytes at the peak. `keep_similarities` does so, too; without it they are recomputed there a tile at a time,
    which gives the same loss and gradient.
Cost of a step: time O(E D + N^2 D), memory O(E + N D), and O(N^2) with `keep_similarities`.
With k negatives: time O(E D + N k D), memory O(N k + N D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.graph import Graph, View
from graphstrap.graph.views import child_seed, hash32
from graphstrap.nn.encoders.gcn import glorot
from graphstrap.nn.methods import Blueprint, Method, MethodSettings, Stats
from graphstrap.ops import linear, log_total_others
from graphstrap.run.recipe import METHODS
from graphstrap.run.settings import setting

# Negatives draw from their own hash of the first view's seed, apart from the edges that the view drops.
_NEGATIVE_STREAM = child_seed(0, 5)


@dataclass(frozen=True)
class GRACESettings(MethodSettings):
    """`projector_size`: width of the projector's hidden layer; 0 for the embedding's.
    `temperature`: what similarities are divided by.
    `num_negatives`: how many nodes each is told apart from; 0 for all.
    `keep_similarities`: for the backward pass, as the original does; else they are computed twice.
    """

    name: str = "grace"
    projector_size: int = setting(0, low=0, high=65536)
    temperature: float = setting(0.5, low=1e-3, high=100.0)
    num_negatives: int = setting(0, low=0)
    keep_similarities: bool = setting(False)


@METHODS.register("grace")
class GRACE(Method):
    """The method: an encoder, a projector, and the loss between two views."""

    Settings = GRACESettings
    num_views = 2

    def __init__(self, settings: GRACESettings, blueprint: Blueprint) -> None:
        super().__init__()
        generator = blueprint.generator(0)
        encoder = blueprint.make_encoder(generator)
        self.settings, self.online, size = settings, encoder, encoder.embedding_size
        self.projector = Projector(size, settings.projector_size or size, generator=generator)

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        view_1, view_2 = views
        h_1, h_2 = self.online(batch, view_1), self.online(batch, view_2)  # (N, D) each
        z_1, z_2 = self.projector(batch.roots_of(h_1)), self.projector(batch.roots_of(h_2))
        drawn, temperature, keep = None, self.settings.temperature, self.settings.keep_similarities
        if self.settings.num_negatives:
            drawn = draw_negatives(len(z_1), self.settings.num_negatives, seed=view_1.seed, device=z_1.device)
        loss = info_nce(z_1, z_2, temperature=temperature, drawn=drawn, keep_similarities=keep)
        return loss, {"embedding": h_1.detach()}


@dataclass(frozen=True)
class GCASettings(GRACESettings):
    name: str = "gca"


@METHODS.register("gca")
class GCA(GRACE):
    """GRACE on views that drop edges and columns of less central nodes more often."""

    Settings = GCASettings
    view_defaults: ClassVar[dict[str, str]] = {"centrality": "pagerank"}  # without any, it would be GRACE


class Projector(nn.Module):
    """Linear, ELU, Linear, back to the embedding's size."""

    def __init__(self, size: int, size_hidden: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.weight_1, self.bias_1 = glorot(size, size_hidden, generator), nn.Parameter(torch.zeros(size_hidden))
        self.weight_2, self.bias_2 = glorot(size_hidden, size, generator), nn.Parameter(torch.zeros(size))

    def forward(self, h: Tensor) -> Tensor:
        return linear(F.elu(linear(h, self.weight_1, self.bias_1)), self.weight_2, self.bias_2)


def info_nce(
    z_1: Tensor, z_2: Tensor, *, temperature: float, drawn: Tensor | None = None, keep_similarities: bool = False
) -> Tensor:
    """The loss between two views' projections; `drawn` comes from `draw_negatives`, None is for all negatives."""
    u, v = unit_rows(z_1), unit_rows(z_2)
    if drawn is None or len(u) == 1:  # one node has nothing to be told from
        keys = torch.cat([u, v]) / temperature**0.5
        total = log_total_others(keys, bound=1.0 / temperature, keep=keep_similarities)  # (2 N,)
        return total.mean() - (u * v).sum(1).mean() / temperature
    keys = torch.cat([u[drawn], v[drawn]], dim=1)  # (blocks, 2 (k + 1), D)
    left_out = left_out_of(drawn, len(u))
    loss_1 = choose_among_drawn(u / temperature, v, keys, left_out)
    loss_2 = choose_among_drawn(v / temperature, u, keys, left_out)
    return (loss_1 + loss_2) / 2


def unit_rows(z: Tensor) -> Tensor:
    """Rows scaled to length 1, in float32; a row of zeros stays one."""
    z = z.float()
    length = z.norm(dim=1, keepdim=True)
    return torch.where(length > 1e-8, z / length.clamp(min=1e-8), 0.0)


def choose_among_drawn(rows: Tensor, partners: Tensor, keys: Tensor, left_out: Tensor) -> Tensor:
    """The mean cross-entropy of choosing each row's partner before the keys that were drawn for its block."""
    num_blocks, size = left_out.shape
    blocks = F.pad(rows, (0, 0, 0, num_blocks * size - len(rows))).view(num_blocks, size, -1)
    similarity = (blocks @ keys.transpose(1, 2)).float()  # (blocks, k, 2 (k + 1))
    columns = torch.stack([left_out, left_out + size + 1], dim=2)  # of both views
    similarity.detach().scatter_(2, columns, -torch.inf)  # e^ of which is 0, and so is its gradient
    negative = torch.logsumexp(similarity, dim=2).flatten()[: len(rows)]
    positive = (rows * partners).sum(1)
    return F.softplus(negative - positive).mean()  # log (e^positive + e^negative) - positive


def left_out_of(drawn: Tensor, num_nodes: int) -> Tensor:
    """(blocks, k) the column of a block's draw that each of its nodes leaves out: itself or, if it is not among them,
    the last."""
    num_blocks, size = drawn.shape[0], drawn.shape[1] - 1
    nodes = torch.arange(num_blocks * size, device=drawn.device).view(num_blocks, size)
    order = drawn[:, :-1].flatten()[:num_nodes]  # draws follow each other in one order of all nodes
    place = torch.empty_like(order).scatter_(0, order, torch.arange(num_nodes, device=drawn.device))
    first = torch.arange(num_blocks, device=drawn.device)[:, None] * size
    offset = (place[nodes.clamp(max=num_nodes - 1)] - first) % num_nodes
    return offset.clamp(max=size)


def draw_negatives(num_nodes: int, num_negatives: int, *, seed: int | Tensor, device: torch.device) -> Tensor:
    """(blocks, k + 1) the nodes drawn for each block of k: windows of one random order, each a node into the next."""
    size = max(1, min(num_negatives, num_nodes - 1))
    nodes = torch.arange(num_nodes, device=device)
    order = torch.argsort(hash32(hash32(nodes, seed), _NEGATIVE_STREAM))
    first = torch.arange(0, num_nodes, size, device=device)
    return order[(first[:, None] + torch.arange(size + 1, device=device)) % num_nodes]
