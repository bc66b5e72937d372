"""BGRL with decorrelated columns: what `default` trains.

    loss  =  BGRL's  +  a mean (n(h_1) - n(h_2))^2  +  b (|off C_1|^2 + |off C_2|^2) / D

    n(h)  =  columns with mean 0 and variance 1 over the nodes
    C_i   =  n(h_i)^T n(h_i) / N                  off: without its diagonal
    a, b  =  agreement_weight, decorrelation_weight

The two terms are those of CCA-SSG (Zhang et al., From Canonical Correlation Analysis to Self-supervised Graph Neural
Networks, NeurIPS 2021). Bootstrapping alone may say one thing in many columns; a probe does not mind, but cosine,
k-means and few labels do. It is to buy what negatives buy a contrastive method, linear in the nodes.

Cost of a step: BGRL's and time O(N D^2), memory O(N D). Of several workers each decorrelates over its own roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.nn.methods import Blueprint, Stats
from graphstrap.nn.methods.bgrl import BGRL, BGRLSettings
from graphstrap.run.recipe import METHODS
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class BGRLCCASettings(BGRLSettings):
    """`agreement_weight`, `decorrelation_weight`: a and b above. The rest is BGRL's."""

    name: str = "bgrl-cca"
    agreement_weight: float = setting(0.1, low=0.0, high=1000.0)
    decorrelation_weight: float = setting(1e-4, low=0.0, high=1000.0)


@METHODS.register("bgrl-cca")
class BGRLCCA(BGRL):
    """The method: BGRL's networks and step, and two terms more in the loss."""

    Settings = BGRLCCASettings
    compares_roots = True

    def __init__(self, settings: BGRLCCASettings, blueprint: Blueprint) -> None:
        super().__init__(settings, blueprint)
        self.agreement_weight, self.decorrelation_weight = settings.agreement_weight, settings.decorrelation_weight

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        bootstrap, (h_1, h_2) = self.bootstrap(batch, views)
        n_1, n_2 = standardized(batch.roots_of(h_1)), standardized(batch.roots_of(h_2))
        agreement = (n_1 - n_2).square().mean()
        correlation = correlation_loss(n_1) + correlation_loss(n_2)
        loss = bootstrap + self.agreement_weight * agreement + self.decorrelation_weight * correlation
        return loss, {"embedding": h_1.detach()}


def standardized(h: Tensor) -> Tensor:
    """Columns with mean 0 and variance 1, as float32; constant ones stay near 0."""
    variance, mean = torch.var_mean(h.float(), dim=0)
    return (h.float() - mean) * torch.rsqrt(variance + 1e-4)


def correlation_loss(n: Tensor) -> Tensor:
    """The squares of the correlations between different columns, summed, for each column."""
    correlations = n.T @ n / len(n)  # (D, D)
    return (correlations.square().sum() - correlations.diagonal().square().sum()) / len(correlations)
