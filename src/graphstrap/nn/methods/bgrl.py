"""BGRL: predict one view's target embedding from the other view's online embedding.

Thakoor et al., Large-Scale Representation Learning on Graphs via Bootstrapping, ICLR 2022.

    h_1, h_2 = online(view_1), online(view_2)
    t_1, t_2 = target(view_1), target(view_2)          no gradient
    loss     = 2 - mean cos(q(h_1), t_2) - mean cos(q(h_2), t_1)
    target  <- decay * target + (1 - decay) * online   after every step

With `target_hops` k, what is predicted is the neighbourhood's direction: A^k unit(t) in place of t, where A averages
over a node's neighbours and itself in the whole graph. With `embed_with` "target", the averaged network embeds.

Departs from the paper:
  * Its loss is -2 mean cos for each of the two predictions; ours is half of their sum, and 2 more, as in the authors'
    code: 0 where every prediction is right. AdamW's steps do not depend on the factor.
  * The moving average covers parameters only; batch-norm statistics of the target are those of the batch at hand, as
    in the authors' code. Pinned by test_bgrl.py::test_target_moves_towards_online.
  * The optional projector of the ablation stands between encoder and predictor in both networks; off by default.
Cost of a step: time O(E D + N D^2), memory O(N D). No negatives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.encoders.gcn import glorot
from graphstrap.nn.methods import Blueprint, Method, MethodSettings, Stats
from graphstrap.ops import linear, linear_prelu, move_average, propagate, row_cosine
from graphstrap.run.recipe import METHODS, Recipe
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class BGRLSettings(MethodSettings):
    """`predictor_hidden_size`: width of the predictor's hidden layer (512 in the paper).
    `target_decay`: decay at the first step; rises to 1 at the last along a cosine (0.99 in the paper).
    `projector_size`: 0 for none, the paper's choice.
    `target_hops`: over how many hops targets are averaged; 0 for the node's own alone, the paper's choice.
    `embed_with`: "online", the paper's choice, or "target".
    """

    name: str = "bgrl"
    predictor_hidden_size: int = setting(512, low=1, high=65536)
    target_decay: float = setting(0.99, low=0.0, high=1.0)
    projector_size: int = setting(0, low=0, high=65536)
    target_hops: int = setting(0, low=0, high=16)
    embed_with: str = setting("online", choices=("online", "target"))

    def check(self, recipe: Recipe) -> None:
        if self.target_hops and recipe.sampling.fan_outs:
            raise InputError(
                "method.target_hops averages over the neighbours of every node, and a sampled batch has roots alone: "
                "set it to 0, or leave sampling.fan_outs empty"
            )


@METHODS.register("bgrl")
class BGRL(Method):
    """The method: two encoders, which start from different weights (the appendix), a predictor, and the loss between
    them."""

    Settings = BGRLSettings
    num_views = 2
    online: Encoder
    target: Encoder

    def __init__(self, settings: BGRLSettings, blueprint: Blueprint) -> None:
        super().__init__()
        first, second = blueprint.generator(0), blueprint.generator(1)
        self.online, self.target = blueprint.make_encoder(first), blueprint.make_encoder(second)
        size, projector_size = self.online.embedding_size, settings.projector_size
        self.online_projector = _projector(size, projector_size, first)
        self.target_projector = _projector(size, projector_size, second)
        size = projector_size or size
        self.predictor = MLP(size, settings.predictor_hidden_size, size, generator=first)
        self.target_decay, self.total_steps = settings.target_decay, blueprint.recipe.train.steps
        self.target_hops, self.embed_with = settings.target_hops, settings.embed_with
        for module in (self.target, self.target_projector):
            module.requires_grad_(False)

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        loss, (h_1, _) = self.bootstrap(batch, views)
        return loss, {"embedding": h_1.detach()}

    def bootstrap(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The loss, and the online embeddings of both views."""
        (h_1, t_1), (h_2, t_2) = (self.online.encode_all([self.target], batch, view) for view in views)  # (N, D) each
        q_1 = self.predictor(self.online_projector(batch.roots_of(h_1)))
        q_2 = self.predictor(self.online_projector(batch.roots_of(h_2)))
        z_1 = average_over_neighbours(batch, self.target_projector(batch.roots_of(t_1)), num_hops=self.target_hops)
        z_2 = average_over_neighbours(batch, self.target_projector(batch.roots_of(t_2)), num_hops=self.target_hops)
        return bootstrap_loss(q_1, z_2) + bootstrap_loss(q_2, z_1), (h_1, h_2)

    @torch.no_grad()
    def after_step(self, step: int | Tensor) -> None:
        decay = target_decay_at(step, base=self.target_decay, total_steps=self.total_steps)
        for online, target in ((self.online, self.target), (self.online_projector, self.target_projector)):
            move_average(target.parameters(), online.parameters(), weight=1.0 - decay)

    @classmethod
    def scheduled(cls, settings: BGRLSettings, *, step: int, total_steps: int) -> dict[str, float]:
        return {"target_decay": float(target_decay_at(step, base=settings.target_decay, total_steps=total_steps))}

    @property
    def frozen(self) -> nn.Module:
        """The network that embeds."""
        return self.target if self.embed_with == "target" else self.online


class MLP(nn.Module):
    """Linear, PReLU, Linear: no normalisation."""

    def __init__(self, size_in: int, size_hidden: int, size_out: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.weight_1, self.bias_1 = glorot(size_in, size_hidden, generator), nn.Parameter(torch.zeros(size_hidden))
        self.weight_2, self.bias_2 = glorot(size_hidden, size_out, generator), nn.Parameter(torch.zeros(size_out))
        self.slope = nn.Parameter(torch.tensor([0.25]))

    def forward(self, h: Tensor) -> Tensor:
        return linear(linear_prelu(h, self.weight_1, self.bias_1, self.slope), self.weight_2, self.bias_2)


def bootstrap_loss(q: Tensor, t: Tensor) -> Tensor:
    """1 - mean cos(q, t) over nodes: 0 when every prediction points where its target does."""
    return 1.0 - row_cosine(q, t).mean()


def average_over_neighbours(graph: Graph, t: Tensor, *, num_hops: int) -> Tensor:
    """A^k unit(t), of the clean graph; t itself for no hops. The more alike neighbours are, the longer its rows."""
    if not num_hops:
        return t
    t = F.normalize(t, dim=1).to(t.dtype)
    for _ in range(num_hops):
        t = propagate(graph, CLEAN, t, norm="mean")
    return t


def target_decay_at(step: Any, *, base: float, total_steps: int) -> Any:
    """From `base` at step 0 to 1 at the end; the step is a number or a tensor.

    1 - (1 - base) / 2 * (cos(pi step / total) + 1)
    """
    cosine = torch.cos if isinstance(step, Tensor) else math.cos
    return 1.0 - (1.0 - base) / 2.0 * (cosine(step * (math.pi / total_steps)) + 1.0)


def _projector(size_in: int, size_out: int, generator: torch.Generator) -> nn.Module:
    return MLP(size_in, size_in, size_out, generator=generator) if size_out else nn.Identity()
