"""Graph Barlow Twins: make each column of the embedding agree between two views, and no two columns alike.

Bielak et al., Graph Barlow Twins: A self-supervised representation learning framework for graphs, Knowledge-Based
Systems 2022 (arXiv 2021); the loss is Zbontar et al.'s, ICML 2021.

    h_1, h_2 = online(view_1), online(view_2)          columns then brought to mean 0 and variance 1
    C        = h_1^T h_2 / N                           (D, D) cross-correlation
    loss     = sum of (1 - C_ii)^2  +  redundancy_weight * sum over i != j of C_ij^2

Departs from the authors' code:
  * The variance is that of the batch (over N, not N - 1), so that equal views give C_ii = 1 exactly. Pinned by
    test_barlow_twins.py::test_loss_is_zero_when_views_agree_and_columns_are_uncorrelated.
  * The encoder is the recipe's. Theirs ends in the convolution, which is `encoder.linear_end`: a PReLU there lets a
    column become zero on all nodes but a few, which then agrees, is like no other, and says nothing (docs/LOG.md).
Cost of a step: time O(E D + N D^2), memory O(N D + D^2). No negatives, no second network, no projector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.nn.methods import Blueprint, Method, MethodSettings, Stats
from graphstrap.run.recipe import METHODS
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class BarlowTwinsSettings(MethodSettings):
    """`redundancy_weight`: how much correlations between columns weigh; 0 means the paper's 1 / D."""

    name: str = "barlow-twins"
    redundancy_weight: float = setting(0.0, low=0.0, high=100.0)


@METHODS.register("barlow-twins")
class BarlowTwins(Method):
    """The method: one encoder and the loss between two views."""

    Settings = BarlowTwinsSettings
    num_views, compares_roots = 2, True

    def __init__(self, settings: BarlowTwinsSettings, blueprint: Blueprint) -> None:
        super().__init__()
        encoder = blueprint.make_encoder(blueprint.generator(0))
        self.online, self.redundancy_weight = encoder, settings.redundancy_weight or 1.0 / encoder.embedding_size

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        view_1, view_2 = views
        h_1, h_2 = self.online(batch, view_1), self.online(batch, view_2)  # (N, D) each
        correlation = cross_correlation(batch.roots_of(h_1), batch.roots_of(h_2))
        return redundancy_loss(correlation, weight=self.redundancy_weight), {"embedding": h_1.detach()}


def cross_correlation(h_1: Tensor, h_2: Tensor) -> Tensor:
    """(D, D) correlation over nodes of each column of one view with each of the other, in float32."""
    with torch.autocast(h_1.device.type, enabled=False):  # the loss looks at small differences from 1
        z_1, z_2 = (F.batch_norm(h.float(), None, None, training=True, eps=1e-10) for h in (h_1, h_2))
        return z_1.T @ z_2 / len(z_1)


def redundancy_loss(correlation: Tensor, *, weight: float) -> Tensor:
    """How far the diagonal is from 1, and, weighted, how far the rest is from 0."""
    diagonal = correlation.diagonal()
    others = correlation.square().sum() - diagonal.square().sum()
    return (1.0 - diagonal).square().sum() + weight * others
