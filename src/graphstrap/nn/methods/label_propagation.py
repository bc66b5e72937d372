"""Label propagation: labels flow along edges, and known ones never change. No features, no weights, no training.

Zhu and Ghahramani, Learning from Labeled and Unlabeled Data with Label Propagation, 2002:

    Y         =  one-hot labels of the training nodes, 0 elsewhere
    F_0       =  Y
    F_{k+1}   =  (1 - restart) A_hat F_k,   then   F_{k+1}[train] = Y[train]
    A_hat     =  D^-1/2 (A + I) D^-1/2

Departs from the paper:
  * The symmetric A_hat with self-loops, as in Zhou et al., Learning with Local and Global Consistency, 2004, and in our
    GCN; the paper divides by the degree of one end. The self-loop spares isolated nodes a division by 0.
  * `restart` above 0 is Zhou et al.'s 1 - alpha: it damps what comes from far away. 0 is the paper's.
  * A fixed number of steps, not until nothing moves: where to stop is chosen on validation nodes.
Cost: time O(num_steps E C), memory O(N C).
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.graph import CLEAN, Graph
from graphstrap.ops import propagate


@torch.no_grad()
def propagate_labels(graph: Graph, labels: Tensor, train: Tensor, *, num_steps: int, restart: float) -> Tensor:
    """(N, C) scores; a row of zeros where no label arrived.

    Args:
        labels: (N,) class numbers; only those of `train` are looked at.
        train: (M,) node numbers.
        num_steps: how many edges a label may travel.
        restart: from 0 up to, not including, 1.
    """
    if num_steps < 0 or not 0.0 <= restart < 1.0:
        raise ValueError(f"num_steps must be at least 0 and restart in [0, 1), got {num_steps} and {restart}")
    train, labels = train.to(graph.device), labels.to(graph.device)
    known = torch.nn.functional.one_hot(labels[train], int(labels.max()) + 1).float()  # (M, C)
    scores = known.new_zeros(graph.num_nodes, known.shape[1]).index_copy(0, train, known)  # (N, C)
    for _ in range(num_steps):
        scores = (1.0 - restart) * propagate(graph, CLEAN, scores)
        scores = scores.index_copy(0, train, known)
    return scores
