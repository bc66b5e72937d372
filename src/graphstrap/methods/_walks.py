"""Random walks, all of a step's at once: where they start, where they go, and which nodes are drawn as negatives.

Every draw is a hash of (what it is for, its number) with the step's seed: nothing depends on order, shapes are static,
and nothing is read back from the device, so a step with walks can be captured as a CUDA graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.keep import hash32

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
    def of(cls, graph: Graph) -> Roads:
        """Made once for each graph, so that a captured step finds it ready."""
        if graph not in _roads:
            _roads[graph] = cls._make(graph)
        return _roads[graph]

    @classmethod
    def _make(cls, graph: Graph) -> Roads:
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


_roads: WeakKeyDictionary[Graph, Roads] = WeakKeyDictionary()


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
