"""How strongly a view perturbs each edge and each feature, where that depends on how central nodes are.

The probabilities are those of GCA (Zhu et al., Graph Contrastive Learning with Adaptive Augmentation, WWW 2021):
what matters less by a centrality c of nodes is dropped more often.

    edge u -> v:     s = log c(v)                        feature i:     s = log sum_u |x_ui| c(u)
    probability:     min((s_max - s) / (s_max - s_mean) * p, max_drop_prob)

Of bags of words it is counted whether a word is there: 1 for |x_ui|, as in the authors' code. Departs from that code:
its PageRank is ten steps of a walk that may stay where it is; ours is the chance to be at a node on a long walk. Where
both directions of an edge are dropped together, c(v) is the mean of both ends, as in the paper for undirected graphs.

The mean of the fraction is 1, so p is still the mean probability as long as nothing is cut. Cost: linear in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, ViewSpec
from graphstrap.graph.blocks import SparseMatrix, is_bag
from graphstrap.ops import propagate

_TINY = 1e-8


def adaptive_specs(
    graph: Graph, specs: Sequence[ViewSpec], *, centrality: str, max_drop_prob: float = 0.7
) -> list[ViewSpec]:
    """The specs with a probability for every edge and feature column; their own ones become the means."""
    if len(graph.features) != 1:
        raise InputError(f"views.centrality={centrality} takes graphs of one node type, this one has several: use none")
    score = CENTRALITIES[centrality](graph)  # (N,)
    edges = {together: _drop_weights(_edge_scores(graph, score, together)) for together in (False, True)}
    columns = None if graph.x is None else _drop_weights(_column_scores(graph.x, score))
    adapted = []
    for spec in specs:
        drop_prob = (edges[spec.drop_directions_together] * spec.edge_drop_prob).clamp(max=max_drop_prob)
        mask_prob = spec.feature_mask_prob
        if columns is not None:
            mask_prob = (columns * mask_prob).clamp(max=max_drop_prob)
        adapted.append(replace(spec, edge_drop_prob=drop_prob, feature_mask_prob=mask_prob))
    return adapted


def pagerank(graph: Graph, *, damping: float = 0.85, num_iterations: int = 50) -> Tensor:
    """(N,) the chance to be at a node on a long walk along edges that begins anew with probability 1 - damping."""
    num_nodes = graph.num_nodes
    out_degree = graph.transpose.indptr.diff().float()
    rank = torch.full((num_nodes, 1), 1.0 / num_nodes, device=graph.device)
    for _ in range(num_iterations):
        sent = rank / out_degree.clamp(min=1.0)[:, None]
        lost = rank[out_degree == 0].sum()  # walks that cannot go on begin anew
        arrived = _sum_of_neighbors(graph, sent)
        rank = (1.0 - damping) / num_nodes + damping * (arrived + lost / num_nodes)
    return rank.squeeze(1)


def eigenvector_centrality(graph: Graph, *, num_iterations: int = 200) -> Tensor:
    """(N,) the leading eigenvector of the adjacency matrix, of length 1, by power iteration."""
    vector = torch.ones(graph.num_nodes, 1, device=graph.device)
    for _ in range(num_iterations):
        vector = vector + _sum_of_neighbors(graph, vector)  # A + I: the same vector, and no oscillation
        vector = vector / vector.norm()
    return vector.squeeze(1)


CENTRALITIES: dict[str, Callable[[Graph], Tensor]] = {  # (N,) for a graph
    "degree": lambda graph: graph.in_degrees.float(),
    "pagerank": pagerank,
    "eigenvector": eigenvector_centrality,
}


def _sum_of_neighbors(graph: Graph, h: Tensor) -> Tensor:
    unweighted = graph if graph.edge_weights is None else replace(graph, edge_weights=None)
    return propagate(unweighted, CLEAN, h, norm="sum") - h


def _edge_scores(graph: Graph, score: Tensor, directions_together: bool) -> Tensor:
    """(E,) c(v), or the mean of both ends where both directions are to have one fate."""
    into = score[graph.targets]
    return (into + score[graph.indices.long()]) / 2.0 if directions_together else into


def _column_scores(features: Tensor | SparseMatrix, score: Tensor) -> Tensor:
    """(F,) sum_u |x_ui| c(u), with 1 for every entry of a bag of words."""
    counts_presence = is_bag(features)
    if isinstance(features, Tensor):
        return (features != 0 if counts_presence else features.abs()).to(score.dtype).T @ score
    by_column = features.transpose
    amounts = (by_column.values != 0).to(score.dtype) if counts_presence else by_column.values.abs()
    of_entries = amounts * score[by_column.indices.long()]
    return torch.segment_reduce(of_entries, "sum", offsets=by_column.indptr, unsafe=True)  # in order: no atomics


def _drop_weights(importance: Tensor) -> Tensor:
    """(s_max - s) / (s_max - s_mean) for s = log importance; 1 where all matter alike."""
    s = importance.clamp(min=_TINY).log()
    distance = s.max() - s if len(s) else s
    mean = distance.mean() if len(s) else distance.sum()
    return torch.where(mean > _TINY, distance / mean.clamp(min=_TINY), torch.ones_like(distance))
