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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.graph.views import hash32
from graphstrap.nn.methods import Blueprint, Method, MethodSettings, Stats
from graphstrap.ops.once import once
from graphstrap.run.recipe import METHODS
from graphstrap.run.settings import setting

# Random walks, all of a step's at once: where they start, where they go, and which nodes are drawn as negatives.
#
# Every draw is a hash of (what it is for, its number) with the step's seed: nothing depends on order, shapes are
# static, and nothing is read back from the device, so a step with walks can be captured as a CUDA graph.

_STARTS, _NEGATIVES, _PROPOSALS, _CHANCES, _REFUSED = (branch << 48 for branch in range(5))  # what random words are for
_NEGATIVE_POWER = 0.75  # Mikolov et al., section 2.2
_MAX_TRIALS = 64


@dataclass(frozen=True, eq=False)
class Roads:
    """What walking needs of a graph: its outgoing edges in CSR. A node without any has one road, to itself."""

    indptr: Tensor  # (N + 1,) of outgoing edges
    neighbours: Tensor  # (E + N,) destinations, then every node itself
    first: Tensor  # (N,) where each node's roads begin in `neighbours`
    degrees: Tensor  # (N,) how many there are, at least 1
    has_way: Tensor  # (N,) whether an edge leads on
    negative_cdf: Tensor  # (N,) float64
    weight_sums: Tensor | None  # (E + N + 1,) float64 running sum of edge weights, from 0

    @classmethod
    @once
    def of(cls, graph: Graph) -> Roads:
        """Made once for each graph, so that a captured step finds it ready."""
        if graph.num_edges == 0:
            raise InputError(f"graph {graph.name!r} has no edges: there is nowhere to walk")
        out, nodes = graph.transpose, torch.arange(graph.num_nodes, device=graph.device)
        has_way, weight_sums = out.indptr.diff() > 0, None
        if graph.edge_weights is not None:
            weights = graph.edge_weights[out.edge_positions].double()
            weight_sums = F.pad(weights, (1, graph.num_nodes)).cumsum(0)
            has_way = weight_sums[out.indptr[1:]] > weight_sums[out.indptr[:-1]]
        return cls(
            indptr=out.indptr,
            neighbours=torch.cat([out.indices, nodes.to(out.indices.dtype)]),
            first=torch.where(has_way, out.indptr[:-1], graph.num_edges + nodes),
            degrees=torch.where(has_way, out.indptr.diff(), 1),
            has_way=has_way,
            negative_cdf=graph.in_degrees.double().pow(_NEGATIVE_POWER).cumsum(0),
            weight_sums=weight_sums,
        )

    def follow(self, nodes: Tensor, words: Tensor) -> Tensor:
        """The neighbour of each node that a random word picks, in proportion to the weights of the edges."""
        first, degrees = self.first[nodes], self.degrees[nodes]
        if self.weight_sums is None:
            return self.neighbours[first + ((words * degrees) >> 32)].long()
        low, high = self.weight_sums[first], self.weight_sums[first + degrees]
        picked = torch.searchsorted(self.weight_sums[1:], low + (high - low) * _unit(words), right=True)
        return self.neighbours[torch.minimum(torch.maximum(picked, first), first + degrees - 1)].long()

    def are_linked(self, source: Tensor, target: Tensor) -> Tensor:
        """Whether there is an edge from each source to its target."""
        wanted = source * len(self.first) + target
        return self._keys[torch.searchsorted(self._keys, wanted).clamp(max=len(self._keys) - 1)] == wanted

    def reached(self, walks: Tensor) -> Tensor:
        """(W, L) whether a walk came to each of its positions along edges: false where it had to stay."""
        leads_on = F.pad(self.has_way[walks[:, :-1]], (1, 0), value=True)
        return leads_on.cumprod(1).bool()

    @cached_property
    def _keys(self) -> Tensor:
        """(E,) source * N + target of every edge, ascending."""
        num_nodes, num_edges = len(self.first), len(self.neighbours) - len(self.first)
        source = torch.repeat_interleave(torch.arange(num_nodes, device=self.first.device), self.indptr.diff())
        return source * num_nodes + self.neighbours[:num_edges]


def draw_starts(roads: Roads, num_walks: int, *, seed: int | Tensor) -> Tensor:
    """(W,) nodes: one from each of W equal parts of them, so that every node has the same chance."""
    num_nodes = len(roads.first)
    words = _draw_words(_STARTS, (num_walks,), seed=seed, device=roads.first.device)
    part = torch.arange(num_walks, device=words.device)
    return (part * num_nodes + ((words * num_nodes) >> 32)) // num_walks


def draw_negatives(roads: Roads, shape: torch.Size | tuple[int, ...], *, seed: int | Tensor) -> Tensor:
    """Nodes with probability proportional to their degree^0.75."""
    words = _draw_words(_NEGATIVES, tuple(shape), seed=seed, device=roads.first.device)
    cdf = roads.negative_cdf
    return torch.searchsorted(cdf, _unit(words) * cdf[-1], right=True).clamp(max=len(cdf) - 1)


def draw_walks(
    roads: Roads,
    starts: Tensor,
    *,
    length: int,
    seed: int | Tensor,
    return_weight: float = 1.0,
    outward_weight: float = 1.0,
) -> Tensor:
    """(W, L) nodes; each follows the one before it along an edge, or is the same where no edge leads on."""
    biases = 1.0 / return_weight, 1.0, 1.0 / outward_weight
    shape = length, num_trials(*biases), len(starts)
    words = _draw_words(_PROPOSALS, shape, seed=seed, device=starts.device)
    chances = _draw_words(_CHANCES, shape, seed=seed, device=starts.device) if shape[1] > 1 else words
    refused = _draw_words(_REFUSED, (length, len(starts)), seed=seed, device=starts.device) if shape[1] > 1 else words
    walk = [starts]
    for position in range(1, length):
        proposals = roads.follow(walk[-1].expand(shape[1:]), words[position])  # (T, W)
        if shape[1] == 1 or position == 1:
            walk.append(proposals[0])
        else:
            drawn = chances[position], refused[position]
            walk.append(_first_accepted(roads, proposals, walk[-2], *drawn, biases))
    return torch.stack(walk, dim=1)


def num_trials(*biases: float) -> int:
    """How many proposals a step gets: so many that fewer than 1 % of steps refuse all, up to a limit."""
    refused = 1.0 - min(biases) / max(biases)
    return 1 if refused == 0.0 else min(_MAX_TRIALS, math.ceil(math.log(0.01) / math.log(refused)))


def _first_accepted(
    roads: Roads,
    proposals: Tensor,
    previous: Tensor,
    chances: Tensor,
    refused: Tensor,
    biases: tuple[float, float, float],
) -> Tensor:
    """(W,) of (T, W) proposals the first that its bias accepts; where all are refused, one by its bias."""
    back, common, outward = (round(bias / max(biases) * 2**32) for bias in biases)
    away = outward if outward == common else torch.where(roads.are_linked(previous, proposals), common, outward)
    threshold = torch.where(proposals == previous, back, away)
    is_accepted = chances < threshold
    first = is_accepted.int().argmax(0)  # argmax gives the first of several
    sums = threshold.double().cumsum(0)
    by_bias = (sums <= _unit(refused) * sums[-1]).sum(0).clamp(max=len(sums) - 1)
    chosen = torch.where(is_accepted.any(0), first, by_bias)
    return proposals.gather(0, chosen[None])[0]


def _draw_words(branch: int, shape: tuple[int, ...], *, seed: int | Tensor, device: torch.device) -> Tensor:
    """Random words in [0, 2**32)."""
    numbers = torch.arange(math.prod(shape), device=device).view(shape)
    return torch.as_tensor(hash32(numbers + branch, seed))


def _unit(words: Tensor) -> Tensor:
    """Words as float64 in [0, 1)."""
    return words.double() * 2.0**-32


@dataclass(frozen=True)
class DeepWalkSettings(MethodSettings):
    """`walk_length`: nodes of a walk (node2vec: 80; DeepWalk: 40).
    `walks_per_node`: in the whole training; so many a step that `train.steps` of them make that many, at least one.
    `window_size`: how far apart in a walk the nodes of a pair may be (10 in both papers).
    `num_negatives`: K; 0 means 5, as in Mikolov et al. for small data.
    """

    name: str = "deepwalk"
    walk_length: int = setting(80, low=2, high=10_000)
    walks_per_node: int = setting(10, low=1, high=10_000)
    window_size: int = setting(5, low=1, high=1000)
    num_negatives: int = setting(0, low=0)


@dataclass(frozen=True)
class Node2VecSettings(DeepWalkSettings):
    """`return_weight` and `outward_weight`: p and q; 1 and 1 make it DeepWalk."""

    name: str = "node2vec"
    return_weight: float = setting(1.0, low=1e-3, high=1000.0)
    outward_weight: float = setting(1.0, low=1e-3, high=1000.0)


@METHODS.register("deepwalk")
class DeepWalk(Method):
    """The method: the table, the context table, and the walks that train them, whose steps go to any neighbour alike.
    Features are not looked at."""

    Settings = DeepWalkSettings
    num_views, takes_samples, reads_views, has_encoder = 1, False, False, False
    online: Table

    def __init__(self, settings: DeepWalkSettings, blueprint: Blueprint) -> None:
        super().__init__()
        recipe, num_nodes = blueprint.recipe, blueprint.num_nodes
        self.online = Table(num_nodes, recipe.encoder.embedding_size, generator=blueprint.generator(0))
        self.context = nn.Parameter(torch.zeros(num_nodes, recipe.encoder.embedding_size))
        self.num_walks = math.ceil(settings.walks_per_node * num_nodes / recipe.train.steps)
        self.walk_length, self.window_size = settings.walk_length, settings.window_size
        self.num_negatives = settings.num_negatives or 5
        self.return_weight = getattr(settings, "return_weight", 1.0)
        self.outward_weight = getattr(settings, "outward_weight", 1.0)

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        table, roads, seed = self.online(batch), Roads.of(batch), views[0].seed
        starts = draw_starts(roads, self.num_walks, seed=seed)
        weights = {"return_weight": self.return_weight, "outward_weight": self.outward_weight}
        walks = draw_walks(roads, starts, length=self.walk_length, seed=seed, **weights)  # (W, L)
        negatives = draw_negatives(roads, walks.shape, seed=seed)  # (W, L)
        h, c = take_rows(table, walks), take_rows(self.context, walks)  # (W, L, D) each
        n = take_rows(self.context, negatives)
        is_pair = find_pairs(roads.reached(walks), window_size=self.window_size)  # (W, L, L)
        return skip_gram_loss(h, c, n, is_pair, num_negatives=self.num_negatives), {"embedding": table.detach()}

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        h: Tensor = self.online(graph)
        return h.clone()


@METHODS.register("node2vec")
class Node2Vec(DeepWalk):
    """Steps that depend on the one before."""

    Settings = Node2VecSettings


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
    from scipy.sparse import csr_matrix, hstack

    lengths = torch.segment_reduce(x.values.square(), "sum", offsets=x.indptr).sqrt()
    unit = x.with_values(x.values / lengths.clamp(min=1e-12)[x.rows])
    joined = SparseMatrix.from_scipy(hstack([csr_matrix(h.cpu().numpy()), unit.to_scipy()], format="csr"))
    return joined.map(lambda tensor: tensor.to(h.device))
