"""Instant: a node's own columns and the same averaged over its neighbourhood. Nothing is trained.

    z_0        = unit(unit(X) V - m)        V: leading right singular vectors of unit(X); m: the mean of unit(X) V
    z_k        = A_hat z_{k-1}              A_hat = D^-1/2 (A + I) D^-1/2, as in a GCN
    embedding  = [unit(z_0) | ... | unit(z_K)] / sqrt(K + 1)

V and m are fitted on the training graph, so new nodes and other graphs get columns of the same meaning. Each node type
has a V and an m of its own. Rows are centred before they are averaged: what all nodes share would otherwise be most of
every average. Every part has length 1, so that none drowns the others in a cosine, in k-means or in a probe.

It is what a trained embedding must beat, and, beside one, what training need not learn: `encoder.own_features` columns
averaged over `encoder.own_hops` hops are appended to any method's embedding. Without hops m is 0, as in version 0.1.

In the line of: Wu et al., Simplifying Graph Convolutional Networks, ICML 2019 (propagation without weights).
Cost: time O(nnz(X) C + K E C) for C columns, memory O(K N C); one pass over features, K over edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.graph.blocks import Block, SparseMatrix, sample_rows, take_rows
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.methods import Blueprint, Method, MethodSettings
from graphstrap.ops import propagate
from graphstrap.run.recipe import METHODS, Recipe
from graphstrap.run.settings import setting

_ROWS_AT_ONCE = 1 << 16
_ROWS_FITTED = 1 << 17  # at most, evenly spaced: more take long and change next to nothing


class HopColumns(Encoder):
    """The columns above, as an encoder with nothing to learn: every way of embedding knows it.

    Args:
        input_sizes: width of each node type's features, as they are prepared.
        num_columns: C, of each part.
        num_hops: K.
    """

    is_layered = uses_up_hops = True

    def __init__(self, input_sizes: Sequence[int], *, num_columns: int, num_hops: int) -> None:
        super().__init__()
        self.num_columns, self.num_hops = num_columns, num_hops
        self.embedding_size = (num_hops + 1) * num_columns
        self.bases = nn.ParameterList(torch.zeros(size, num_columns) for size in input_sizes)
        self.means = nn.ParameterList(torch.zeros(num_columns) for _ in input_sizes)
        self.requires_grad_(False)

    def fit(self, prepared: Graph) -> HopColumns:
        """V and m of a graph whose features are prepared already; of a large one from a sample of its rows."""
        from sklearn.utils.extmath import randomized_svd

        for number, block in enumerate(prepared.features):
            assert block is not None
            rows = _unit_rows(_evenly_spaced(sample_rows(block)))
            basis, mean = self.bases[number], self.means[number]
            matrix = rows.to_scipy() if isinstance(rows, SparseMatrix) else rows.cpu().numpy()
            if not all(matrix.shape):
                continue
            _, _, found = randomized_svd(matrix, n_components=min(basis.shape[1], *matrix.shape), random_state=0)
            basis[:, : len(found)] = torch.from_numpy(np.ascontiguousarray(found.T, dtype=np.float32))
            if self.num_hops:
                mean.copy_(_times(rows, basis.to(rows.device)).mean(0))
        return self

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        parts = [self.own(graph)]  # (N, C)
        for _ in range(self.num_hops):
            z = propagate(graph, view.masks, parts[-1])
            graph = graph.inner
            parts.append(z[: graph.num_nodes])
        return self.join([z[: graph.num_nodes] for z in parts])

    def own(self, graph: Graph) -> Tensor:
        """z_0 of all nodes."""
        return torch.cat([self.own_rows(number, block) for number, block in enumerate(graph.features)])

    def own_rows(self, number: int, block: Block | None) -> Tensor:
        """z_0 of rows of a node type's features, where those lie."""
        assert block is not None
        basis, mean = self.bases[number], self.means[number]
        found = []
        for first in range(0, block.shape[0], _ROWS_AT_ONCE):
            rows = _unit_rows(take_rows(block, slice(first, first + _ROWS_AT_ONCE)))
            found.append(F.normalize(_times(rows, basis.to(rows.device)) - mean.to(rows.device), dim=1))
        return torch.cat(found) if found else torch.empty(0, self.num_columns, device=basis.device)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Side by side, all rows of one length."""
        joined: Tensor = torch.cat([F.normalize(z, dim=1) for z in parts], dim=1) / len(parts) ** 0.5
        return joined


def append_columns(h: Tensor, columns: Tensor, *, weight: float) -> Tensor:
    """[unit(h) | weight * columns]: an embedding with what need not be learned beside it."""
    return torch.cat([F.normalize(h, dim=1), weight * columns.to(h.device)], dim=1)


def _unit_rows(block: Block) -> Tensor | SparseMatrix:
    """Rows of length 1, or of zeros."""
    if not isinstance(block, SparseMatrix):
        assert isinstance(block, Tensor)
        return F.normalize(block.float(), dim=1)
    squares = torch.zeros(block.shape[0], device=block.device).index_add_(0, block.rows, block.values.square())
    lengths = torch.where(squares > 0, squares.sqrt(), torch.ones_like(squares))
    return block.with_values(block.values / lengths[block.rows])


def _times(rows: Tensor | SparseMatrix, weight: Tensor) -> Tensor:
    if isinstance(rows, Tensor):
        return rows @ weight
    columns, values = rows.indices.long(), rows.values
    return F.embedding_bag(
        columns, weight, rows.indptr, mode="sum", per_sample_weights=values, include_last_offset=True
    )


def _evenly_spaced(block: Block) -> Block:
    if block.shape[0] <= _ROWS_FITTED:
        return block
    return take_rows(block, torch.linspace(0, block.shape[0] - 1, _ROWS_FITTED, dtype=torch.float64).long())


@dataclass(frozen=True)
class InstantSettings(MethodSettings):
    """`num_columns`: C above, at most as many as features have; `num_hops`: K."""

    name: str = "instant"
    num_columns: int = setting(64, low=1, high=4096)
    num_hops: int = setting(3, low=0, high=16)

    def check(self, recipe: Recipe) -> None:
        """Refuse fewer hops of samples than there are averages."""
        hops = len(recipe.sampling.fan_outs)
        if hops and hops < self.num_hops:
            raise InputError(f"sampling.fan_outs has {hops} hops, and method.num_hops is {self.num_hops}: give as many")


@METHODS.register("instant")
class Instant(Method):
    """The method: an encoder that is fitted at once, and never trained."""

    Settings = InstantSettings
    is_trained = reads_views = False
    online: HopColumns

    def __init__(self, settings: InstantSettings, blueprint: Blueprint) -> None:
        super().__init__()
        sizes = blueprint.input_sizes
        num_columns = min(settings.num_columns, max(sizes))  # there are no more to find
        self.online = HopColumns(sizes, num_columns=num_columns, num_hops=settings.num_hops)

    def fit(self, prepared: Graph) -> None:
        """From a graph with its features as the encoder takes them."""
        self.online.fit(prepared)
