"""VICReg: two views agree, columns keep their variance, and no two columns say the same.

Bardes, Ponce, LeCun, VICReg: Variance-Invariance-Covariance Regularization, ICLR 2022.

    h_1, h_2 = online(view_1), online(view_2)
    loss     = mean |h_1 - h_2|^2  +  variance(h_1) + variance(h_2)  +  covariance(h_1) + covariance(h_2)
    variance   = mean over columns of max(0, 1 - std);   covariance = sum over i != j of C_ij^2 / D

Departs from the paper: the embedding itself is compared, without an expander; the last two weights are settings.
Cost of a step: time O(E D + N D^2), memory O(N D + D^2). No negatives, no second network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.methods import METHODS, Blueprint, Method, MethodSettings, Stats
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class VICRegSettings(MethodSettings):
    """What `[method]` of a recipe may say."""

    name: str = "vicreg"
    variance_weight: float = setting(1.0, low=0.0, high=1000.0)
    covariance_weight: float = setting(0.1, low=0.0, high=1000.0)


@METHODS.register("vicreg")
class VICReg(Method):
    """The method: one encoder and the loss between two views."""

    Settings = VICRegSettings
    num_views, compares_roots = 2, True

    def __init__(self, encoder: Encoder, settings: VICRegSettings) -> None:
        super().__init__()
        self.online = encoder
        self.variance_weight, self.covariance_weight = settings.variance_weight, settings.covariance_weight

    @classmethod
    def build(cls, settings: VICRegSettings, blueprint: Blueprint) -> VICReg:
        return cls(blueprint.make_encoder(blueprint.generator(0)), settings)

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        h_1, h_2 = (self.online(batch, view) for view in views)  # (N, D) each
        loss = F.mse_loss(batch.roots_of(h_1), batch.roots_of(h_2))
        for h in (batch.roots_of(h_1), batch.roots_of(h_2)):
            loss = loss + self.variance_weight * variance_loss(h) + self.covariance_weight * covariance_loss(h)
        return loss, {"embedding": h_1.detach()}


def variance_loss(h: Tensor) -> Tensor:
    """How far columns fall short of a standard deviation of 1."""
    return F.relu(1.0 - (h.float().var(0) + 1e-4).sqrt()).mean()


def covariance_loss(h: Tensor) -> Tensor:
    """The squares of the covariances between columns."""
    z = h.float() - h.float().mean(0)
    covariance = z.T @ z / (len(z) - 1)
    off_diagonal: Tensor = covariance - torch.diag(covariance.diagonal())
    return off_diagonal.square().sum() / len(covariance)
