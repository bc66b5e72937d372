"""DeepWalk and node2vec: nodes that random walks visit close to each other get embeddings that predict each other.

Perozzi et al., DeepWalk: Online Learning of Social Representations, KDD 2014. Grover and Leskovec, node2vec: Scalable
Feature Learning for Networks, KDD 2016. Skip-gram with negative sampling (Mikolov et al., NIPS 2013, eq. 4):

    walk   =  v_1 .. v_L,   P(v_{i+1} = x | v_i, v_{i-1})  ~  weight(v_i -> x) * bias(v_{i-1}, x)
    bias   =  1 / p where x = v_{i-1},   1 where v_{i-1} -> x is an edge,   1 / q elsewhere        DeepWalk: p = q = 1
    loss   =  mean over pairs with 0 < |i - j| <= window of
              -log sigma(h_i . c_j) - K E_n log sigma(-h_i . c_n)            n ~ degree^0.75

h is a row of the (N, D) table, the embedding; c one of the context table, which serves training alone. Transductive:
a node that was not there in training has no row, so a graph with another number of nodes is refused.

'DeepWalk + features' is [unit(h) | unit(x)], as in Velickovic et al., DGI, ICLR 2019, who do not say how they put the
two together: here rows of length 1 each (`with_features`). It costs no more training.

Departs from the papers:
  * DeepWalk too is trained by negative sampling; its paper has a hierarchical softmax. One loss for both.
  * The negatives of a walk are shared by its pairs: as many as it has positions, each weighted such that a pair has K
    of them. The expected loss is the same, and all scores are two dense products.
  * node2vec's steps are drawn by rejection, T proposals for each, instead of from alias tables of size O(E degree).
    Where none is accepted (fewer than 2 in 100 steps for p, q from 1/4 to 4) one of them is taken in proportion to its
    bias, which is the law itself for many. T is 17 for p = 4, at most 64.
  * Walks start evenly spread over the nodes in every step, not in passes over a shuffled list. AdamW with dense
    gradients and the loop's schedule, not SGD. Always the whole window, as in DeepWalk's Algorithm 2; word2vec's code
    shrinks it at random. The recipe's window is 5.
  * A walk ends where no edge leads on, as in the authors' code: the node repeats, but takes no part in the loss.
Cost of a step of W walks: time O(W L (L D + T log E) + N D), memory O(W L (D + L + T) + N D + E).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.methods._walks import Roads, draw_negatives, draw_starts, draw_walks
from graphstrap.sparse import SparseMatrix
from graphstrap.view import CLEAN, View

Stats = dict[str, Tensor]


class SkipGram(nn.Module):
    """The method: the table, the context table, and the walks that train them.

    Args:
        num_walks: walks of a step. `build_skip_gram` takes walks_per_node * N / train.steps, rounded up: training makes
            the same number of walks however many steps it has, but at least one in each.
        walk_length: nodes of a walk (node2vec: 80; DeepWalk: 40).
        window_size: how far apart in a walk the nodes of a pair may be (10 in both papers).
        num_negatives: K (5 in Mikolov et al. for small data).
        return_weight, outward_weight: node2vec's p and q; 1 and 1 make it DeepWalk.
    """

    num_views = 1

    def __init__(
        self,
        num_nodes: int,
        embedding_size: int,
        *,
        num_walks: int,
        walk_length: int,
        window_size: int,
        num_negatives: int,
        generator: torch.Generator,
        return_weight: float = 1.0,
        outward_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.online = Table(num_nodes, embedding_size, generator=generator)
        self.context = nn.Parameter(torch.zeros(num_nodes, embedding_size))
        self.num_walks, self.walk_length = num_walks, walk_length
        self.window_size, self.num_negatives = window_size, num_negatives
        self.return_weight, self.outward_weight = return_weight, outward_weight

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        table, roads, seed = self.online(batch), Roads.of(batch), views[0].seed
        walks = draw_walks(
            roads,
            draw_starts(roads, self.num_walks, seed=seed),
            length=self.walk_length,
            seed=seed,
            return_weight=self.return_weight,
            outward_weight=self.outward_weight,
        )  # (W, L)
        negatives = draw_negatives(roads, walks.shape, seed=seed)  # (W, L)
        h, c = take_rows(table, walks), take_rows(self.context, walks)  # (W, L, D) each
        n = take_rows(self.context, negatives)
        is_pair = find_pairs(roads.reached(walks), window_size=self.window_size)  # (W, L, L)
        return skip_gram_loss(h, c, n, is_pair, num_negatives=self.num_negatives), {"embedding": table.detach()}

    def after_step(self, step: int | Tensor) -> None:
        """Nothing moves but by gradient."""

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        h: Tensor = self.online(graph)
        return h.clone()


class Table(nn.Module):
    """A learned row for each node, called as an encoder is. Starts as in word2vec: uniform within 1 / (2 D)."""

    def __init__(self, num_nodes: int, embedding_size: int, *, generator: torch.Generator) -> None:
        super().__init__()
        rows, bound = torch.empty(num_nodes, embedding_size), 0.5 / embedding_size
        self.weight = nn.Parameter(rows.uniform_(-bound, bound, generator=generator))
        self.embedding_size = embedding_size

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        if graph.num_nodes != len(self.weight):
            raise InputError(
                f"the model has an embedding for each of the {len(self.weight)} nodes it was trained on and for no "
                f"others, the graph has {graph.num_nodes} nodes: fit it anew, or take a method with an encoder"
            )
        return self.weight


def take_rows(table: Tensor, numbers: Tensor) -> Tensor:
    """The rows of these numbers, with the same gradient every time. PyTorch has two ways to add up what comes back to a
    row: on CUDA only that of an index does so in order, on a CPU only that of an embedding."""
    return table[numbers] if table.is_cuda else F.embedding(numbers, table)


def skip_gram_loss(h: Tensor, c: Tensor, n: Tensor, is_pair: Tensor, *, num_negatives: int) -> Tensor:
    """The mean over pairs.

    Args:
        h, c: (W, L, D) rows of table and context table at every position of every walk.
        n: (W, M, D) context rows of the negatives of each walk.
        is_pair: (W, L, L) whether position i is to predict position j.
    """
    positive = F.softplus(-(h @ c.mT).float())  # (W, L, L); softplus(-x) = -log sigma(x)
    negative = F.softplus((h @ n.mT).float()).mean(2)  # (W, L)
    total = (positive * is_pair).sum() + num_negatives * (negative * is_pair.sum(2)).sum()
    return total / is_pair.sum().clamp(min=1)


def find_pairs(reached: Tensor, *, window_size: int) -> Tensor:
    """(W, L, L) whether two positions are at most a window apart and the walk reached both."""
    position = torch.arange(reached.shape[1], device=reached.device)
    distance = (position[:, None] - position[None, :]).abs()
    in_window = (distance > 0) & (distance <= window_size)
    return in_window & reached[:, :, None] & reached[:, None, :]


def with_features(h: Tensor, graph: Graph) -> Tensor | SparseMatrix:
    """'DeepWalk + features': [unit(h) | unit(x)], of shape (N, D + F), sparse where the features are.

    Rows of length 1 each: the linear probe scales whole rows, and the longer part would drown the other.
    """
    if len(graph.features) != 1 or graph.x is None:
        raise InputError(f"graph {graph.name!r} has no features to put beside embeddings: evaluate these alone")
    h, x = F.normalize(h, dim=1), graph.x
    if isinstance(x, Tensor):
        return torch.cat([h, F.normalize(x.to(h.device), dim=1)], dim=1)
    x, size = x.map(lambda tensor: tensor.to(h.device)), h.shape[1]
    lengths = torch.segment_reduce(x.values.square(), "sum", offsets=x.indptr).sqrt()
    rows, columns = torch.arange(len(h), device=h.device), torch.arange(size, device=h.device, dtype=torch.int32)
    order = torch.argsort(torch.cat([rows.repeat_interleave(size), x.rows]), stable=True)
    return SparseMatrix(
        indptr=x.indptr + size * torch.arange(len(h) + 1, device=h.device),
        indices=torch.cat([columns.repeat(len(h)), x.indices + size])[order],
        values=torch.cat([h.reshape(-1), x.values / lengths.clamp(min=1e-12)[x.rows]])[order],
        num_columns=size + x.num_columns,
    )
