"""DGI: tell the nodes of the graph from those of the same graph with its features shuffled.

Velickovic et al., Deep Graph Infomax, ICLR 2019.

    h, k   = online(graph), online(graph with shuffled features)
    s      = sigmoid(mean of h over nodes)                              (D,) summary
    score  = h_i^T W s + b
    loss   = mean over 2 N nodes of the cross-entropy: h_i is real, k_i is not

Views: the clean graph, and one whose feature rows are permuted by the seed of the first view that training draws. The
recipe's edge and feature probabilities are not read. Shuffling needs features that differ between nodes.

Departs from the authors' code:
  * The encoder is the recipe's; theirs is one layer without normalisation (`hidden_sizes = []`, `norm = "none"`). With
    batch norm each of the two graphs is normalised by its own statistics in training and the running ones mix both:
    ask for `batch_norm_statistics = "recalibrated"`.
  * No early stopping on the training loss: `train.steps` is what it says.
  * AdamW with the recipe's weight decay; theirs is Adam without any.
Cost of a step: time O(E D + N D^2), memory O(N D). One negative for each node; no projector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.encoders.gcn import bilinear_weight
from graphstrap.nn.methods import Blueprint, Method, MethodSettings, Stats
from graphstrap.run.recipe import METHODS

SHUFFLED = ViewSpec(shuffle_nodes=True)


@dataclass(frozen=True)
class DGISettings(MethodSettings):
    name: str = "dgi"


@METHODS.register("dgi")
class DGI(Method):
    """The method: an encoder and a discriminator."""

    Settings = DGISettings
    num_views, reads_views = 1, False

    def __init__(self, settings: DGISettings, blueprint: Blueprint) -> None:
        super().__init__()
        generator = blueprint.generator(0)
        encoder = blueprint.make_encoder(generator)
        self.online, self.discriminator = encoder, Discriminator(encoder.embedding_size, generator=generator)

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        h: Tensor = self.online(batch, View(CLEAN.spec, views[0].seed))  # (N, D)
        shuffled: Tensor = self.online(batch, View(SHUFFLED, views[0].seed))
        real = batch.roots_of(h)
        summary = torch.sigmoid(real.float().mean(0))  # (D,)
        real_scores = self.discriminator(real, summary)  # (N,)
        shuffled_scores = self.discriminator(batch.roots_of(shuffled), summary)
        return discrimination_loss(real_scores, shuffled_scores), {"embedding": h.detach()}


class Discriminator(nn.Module):
    """Bilinear: h^T W s + b."""

    def __init__(self, size: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.weight, self.bias = bilinear_weight(size, size, generator), nn.Parameter(torch.zeros(()))

    def forward(self, h: Tensor, summary: Tensor) -> Tensor:
        scores: Tensor = (h @ (self.weight @ summary)).float() + self.bias
        return scores


def discrimination_loss(real_scores: Tensor, shuffled_scores: Tensor) -> Tensor:
    """Binary cross-entropy of scores that should be high for real nodes and low for shuffled ones: ln 2 by guessing."""
    return (F.softplus(-real_scores).mean() + F.softplus(shuffled_scores).mean()) / 2
