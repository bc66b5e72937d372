"""GMI: an embedding should tell its own node's features, its neighbours' features and its edges from random ones.

Peng et al., Graph Representation Learning via Graphical Mutual Information Maximization, WWW 2020; GMI-mean, as the
authors' code trains it:

    h          = encoder(X, A)                                       its first layer projects X to X W_1
    u_i        = prelu(mean of (X W_1)_j over the neighbours j of i)
    JS(s, s')  = mean softplus(-sigmoid(s)) + mean softplus(sigmoid(s'))        Jensen-Shannon, matched and mismatched
    loss       = alpha JS(x_i^T Q h_i + b, x_j^T Q h_i + b)          I(h_i; x_i)                    j: K random others
               + beta  JS(h_i^T R u_i + c, h_j^T R u_i + c)          I(h_i; x_j), j a neighbour     j: K random others
               + gamma (2 mean softplus(-h_i . h_j) over edges and self-loops + mean softplus(h_i . h_j) over non-edges)

Nothing is dropped or masked: of a view only the seed is used. The authors' encoders have layers of 512 without
normalisation: two on Cora, one on CiteSeer and PubMed.

Departs from the authors' code:
  * Its last term is a cross-entropy over all N^2 pairs, whose weights come to 2 for the mean over edges and self-loops
    and nearly 1 for the mean over the rest. Here the means are over K N drawn edges and at most K N drawn non-edges,
    with 2 and 1. Pinned by test_gmi.py::test_topology_term_is_the_dense_one.
  * A fixed number of steps; the code goes back to the step of the lowest loss.
  * AdamW with the recipe's weight decay; theirs is Adam without any.
Like the code it squashes scores by a sigmoid before the softplus.
Cost of a step: time O(E D + N D^2 + K N D), memory O(K N D): the paper's table calls the dense code OOM on CS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.graph import CLEAN, Graph, View
from graphstrap.graph.views import hash32
from graphstrap.nn.encoders.gcn import GCN, bilinear_weight, convolve, only_gcn, project_features
from graphstrap.nn.methods import Blueprint, Method, MethodSettings, Stats
from graphstrap.ops import bias_prelu, propagate
from graphstrap.ops.once import once
from graphstrap.run.recipe import METHODS
from graphstrap.run.settings import setting

ALPHA, BETA, GAMMA = 0.8, 1.0, 1.0  # the authors' code


@dataclass(frozen=True)
class GMISettings(MethodSettings):
    """`num_negatives`: K, how many random nodes, edges and non-edges each node draws; 0 means the authors' 5."""

    name: str = "gmi"
    num_negatives: int = setting(0, low=0)


@METHODS.register("gmi")
class GMI(Method):
    """The method: an encoder, two discriminators and the loss."""

    Settings = GMISettings
    num_views, takes_samples, reads_views, looks_inside_encoder = 1, False, False, True
    online: GCN

    def __init__(self, settings: GMISettings, blueprint: Blueprint) -> None:
        super().__init__()
        generator = blueprint.generator(0)
        self.online = only_gcn(blueprint.make_encoder(generator))
        size, first_size = self.online.embedding_size, self.online.input_weights[0].shape[1]
        widths = [max(1, width) for width in self.online.input_sizes]
        self.feature_weights = nn.ParameterList(bilinear_weight(width, size, generator) for width in widths)
        self.neighbor_weight = bilinear_weight(size, first_size, generator)
        self.feature_bias, self.neighbor_bias = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.slope = nn.Parameter(torch.tensor([0.25]))
        self.num_negatives = settings.num_negatives or 5

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        projected = project_features(batch, self.online.input_weights)  # (N, D_1)
        h = convolve(self.online, batch, [projected], lambda h: propagate(batch, CLEAN, h))[0]  # (N, D)
        roots = batch.roots_of(h)
        words = random_words(4 * self.num_negatives, len(roots), views[0].seed, batch.device).chunk(4)
        own = batch.roots_of(project_features(batch, self.feature_weights))  # (N, D) x Q
        neighbors = neighbor_means(batch, projected)
        around = batch.roots_of(bias_prelu(neighbors, torch.zeros_like(neighbors[0]), self.slope))  # (N, D_1) u
        hidden = roots @ self.neighbor_weight  # (N, D_1) h R
        loss = (
            ALPHA * jensen_shannon_loss(own, roots, self.feature_bias, other_nodes(words[0]))
            + BETA * jensen_shannon_loss(hidden, around, self.neighbor_bias, other_nodes(words[1]))
            + GAMMA * topology_loss(h, drawn_edges(batch, words[2]), drawn_non_edges(batch, words[3]))
        )
        return loss, {"embedding": h.detach()}


def neighbor_means(graph: Graph, h: Tensor) -> Tensor:
    """(N, D) the mean of each node's neighbours, without itself; 0 for a node that has none."""
    return (propagate(_with_shares(graph), CLEAN, h.float(), norm="sum") - h.float()).to(h.dtype)


@once
def _with_shares(graph: Graph) -> Graph:
    """The graph whose edge weights are each one's share of its node's, 1 in all."""
    given = graph.edge_weights
    weights = torch.ones(graph.num_edges, device=graph.device) if given is None else given.float()
    totals = torch.segment_reduce(weights, "sum", offsets=graph.indptr, unsafe=True)
    return replace(graph, edge_weights=weights / totals.clamp(min=torch.finfo(torch.float32).tiny)[graph.targets])


def jensen_shannon_loss(a: Tensor, b: Tensor, bias: Tensor, others: Tensor) -> Tensor:
    """sigmoid(a_i . b_i + bias) should be high, and sigmoid(a_j . b_i + bias) low for `others` j, of shape (K, N)."""
    matched = torch.sigmoid(_row_products(a, b) + bias)
    mismatched = torch.stack([torch.sigmoid(_row_products(a[j], b) + bias) for j in others])
    return F.softplus(-matched).mean() + F.softplus(mismatched).mean()


def topology_loss(h: Tensor, linked: tuple[Tensor, Tensor], unlinked: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """2 mean softplus(-h_i . h_j) over linked pairs + mean softplus(h_i . h_j) over unlinked ones, those that count."""
    first, second, counts = unlinked
    apart = F.softplus(_row_products(h[first], h[second])) * counts
    together = F.softplus(-_row_products(h[linked[0]], h[linked[1]]))
    return 2.0 * together.mean() + apart.sum() / counts.sum().clamp(min=1)


def drawn_edges(graph: Graph, words: Tensor) -> tuple[Tensor, Tensor]:
    """Both ends of edges and self-loops, each equally likely, one for each of the random words."""
    nodes = torch.arange(graph.num_nodes, device=words.device)
    chosen = words.reshape(-1) % (graph.num_edges + graph.num_nodes)
    return torch.cat([graph.targets, nodes])[chosen], torch.cat([graph.indices.long(), nodes])[chosen]


def drawn_non_edges(graph: Graph, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both ends of random pairs of different nodes, and whether each pair counts: 0 where it is an edge after all."""
    second = other_nodes(words)  # (K, N)
    first = torch.arange(second.shape[1], device=words.device).expand_as(second)
    first, second = first.reshape(-1), second.reshape(-1)
    if not graph.num_edges:
        return first, second, torch.ones_like(first)
    edges = graph.targets * graph.num_nodes + graph.indices.long()  # sorted: by target, then by source
    pairs = first * graph.num_nodes + second
    place = torch.searchsorted(edges, pairs).clamp(max=graph.num_edges - 1)
    return first, second, (edges[place] != pairs).long()


def other_nodes(words: Tensor) -> Tensor:
    """(K, N) for each node, and each of K rows of random words, one of the other nodes; all are equally likely."""
    num_nodes = words.shape[1]
    nodes = torch.arange(num_nodes, device=words.device)
    return (nodes + 1 + words % max(1, num_nodes - 1)) % num_nodes


def random_words(num_draws: int, num_nodes: int, seed: int | Tensor, device: torch.device) -> Tensor:
    """(K, N) numbers from 0 to 2**32 - 1; no two of a row are equal."""
    ids = torch.arange(num_draws * num_nodes, device=device)
    return torch.as_tensor(hash32(ids, seed)).view(num_draws, num_nodes)


def _row_products(a: Tensor, b: Tensor) -> Tensor:
    """(N,) a_i . b_i, added up in float32."""
    return (a.float() * b.float()).sum(1)
