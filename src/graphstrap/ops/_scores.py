"""What attention is computed from: a few numbers for each node and edge."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Scores(NamedTuple):
    """How much node i attends to node j over the edge e, for each of H heads, before the softmax over all j:

    score  =  leaky_relu(source_j + target_i + edge_e)
    """

    source: Tensor  # (N, H)
    target: Tensor  # (N, H)
    edge: Tensor | None = None  # (E + N, H): edges in the order of `graph.indices`, then self-loops
    slope: float = 0.2  # of the leaky ReLU below 0

    @property
    def num_heads(self) -> int:
        return int(self.source.shape[1])
