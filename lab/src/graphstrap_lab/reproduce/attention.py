"""How sharply a GAT looks: the entropy of every node's attention, less that of attention to all alike.

    entropy_i    = mean over layers and heads of ( - sum_j a_ij log a_ij )  -  log (number of j)

j runs over node i's neighbours and itself. 0 means that all are attended to alike; the least, - log (number of j), that
one of them alone is. Thakoor et al. show it for BGRL, GRACE and GRACE with few negatives: the fewer, the lower
(`graphstrap reproduce attention-entropy`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Layer = tuple[
    Tensor, Tensor
]  # (M, H) weights by row, and (N + 1,) where each row begins: neighbours and the node itself


def attention_entropy(layers: Sequence[Layer]) -> Tensor:
    """(N,) float64, at most 0. The weights of a row add up to 1 for every head; 0 is a neighbour not looked at."""
    if not layers:
        raise ValueError("layers must hold the attention weights of at least one layer, got none")
    return torch.stack([_layer_entropy(weights, indptr) for weights, indptr in layers]).mean(0)


def with_self_loops(edges: Tensor, loops: Tensor, indptr: Tensor) -> Layer:
    """Weights of edges (E, H) and of self-loops (N, H) as rows: each node's own stands in front of its neighbours'."""
    num_nodes = len(loops)
    nodes = torch.arange(num_nodes, device=indptr.device)
    rows = torch.repeat_interleave(nodes, indptr.diff())
    weights = edges.new_empty(len(edges) + num_nodes, edges.shape[1])
    weights[torch.arange(len(edges), device=indptr.device) + rows + 1] = edges
    weights[indptr[:-1] + nodes] = loops
    return weights, indptr + torch.arange(num_nodes + 1, device=indptr.device)


def _layer_entropy(weights: Tensor, indptr: Tensor) -> Tensor:
    """(N,) mean over heads."""
    lengths = indptr.diff()
    if len(weights) != int(indptr[-1]) or int(lengths.min()) < 1:
        raise ValueError(
            f"indptr must give every node at least one of the {len(weights)} rows of weights and end with them, "
            f"it ends at {int(indptr[-1])}"
        )
    weights = weights.detach().double()
    terms = -torch.special.xlogy(weights, weights).mean(1)  # (M,)
    sums = torch.segment_reduce(terms, "sum", offsets=indptr)
    return sums - lengths.double().log()
