"""BGRL as users of PyTorch Geometric write it: the baseline that `graphstrap bench step` compares with.

GCNConv on an edge list, views that are copies, a target that is a second network, dense float32 features, eager. It
has the parameters of `graphstrap.methods.bgrl` and nothing of its code. In favour of the baseline the convolutions in
front of a batch norm have no bias, and a view copies features and edges but not the labels and masks beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.io.pyg import import_pyg
from graphstrap.run.recipe import Recipe
from graphstrap.train.step import learning_rate_at

GCNConv = import_pyg("nn").GCNConv


class Encoder(nn.Module):
    """Convolution, batch norm, PReLU at every layer."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self.convs = nn.ModuleList(GCNConv(size_in, size_out, bias=False) for size_in, size_out in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(size_out, momentum=0.01) for _, size_out in pairs)
        self.activations = nn.ModuleList(nn.PReLU() for _ in pairs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, norm, activation in zip(self.convs, self.norms, self.activations, strict=True):
            x = activation(norm(conv(x, edge_index)))
        return x


class PlainBGRL(nn.Module):
    """Online and target encoder, and a predictor."""

    def __init__(self, sizes: Sequence[int], *, predictor_hidden_size: int) -> None:
        super().__init__()
        self.online = Encoder(sizes)
        self.target = Encoder(sizes).requires_grad_(False)
        size = sizes[-1]
        self.predictor = nn.Sequential(
            nn.Linear(size, predictor_hidden_size), nn.PReLU(), nn.Linear(predictor_hidden_size, size)
        )

    def forward(self, view_1: tuple[Tensor, Tensor], view_2: tuple[Tensor, Tensor]) -> Tensor:
        q_1 = self.predictor(self.online(*view_1))
        q_2 = self.predictor(self.online(*view_2))
        with torch.no_grad():
            t_1, t_2 = self.target(*view_1), self.target(*view_2)
        return 2 - F.cosine_similarity(q_1, t_2, dim=-1).mean() - F.cosine_similarity(q_2, t_1, dim=-1).mean()

    @torch.no_grad()
    def update_target(self, decay: float) -> None:
        for new, average in zip(self.online.parameters(), self.target.parameters(), strict=True):
            average.mul_(decay).add_(new, alpha=1.0 - decay)


def make_view(
    x: Tensor, edge_index: Tensor, *, edge_drop_prob: float, feature_mask_prob: float
) -> tuple[Tensor, Tensor]:
    """A copy of the graph without some of its feature columns and edges."""
    x = x.clone()
    x[:, torch.rand(x.shape[1], device=x.device) < feature_mask_prob] = 0.0
    kept = torch.rand(edge_index.shape[1], device=edge_index.device) >= edge_drop_prob
    return x, edge_index[:, kept]


class PlainStep:
    """One training step: `take_step(step)` gives the loss."""

    def __init__(self, x: Tensor, edge_index: Tensor, *, recipe: Recipe) -> None:
        self.x, self.edge_index, self.recipe = x, edge_index, recipe
        sizes = [x.shape[1], *recipe.encoder.hidden_sizes, recipe.encoder.embedding_size]
        self.model = PlainBGRL(sizes, predictor_hidden_size=recipe.method.predictor_hidden_size).to(x.device)
        learned = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        train = recipe.train
        self.optimizer = torch.optim.AdamW(learned, lr=train.learning_rate, weight_decay=train.weight_decay)

    def __call__(self, step: int) -> Tensor:
        train, views = self.recipe.train, self.recipe.views
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_at(step, train)
        view_1, view_2 = (
            make_view(self.x, self.edge_index, edge_drop_prob=edge_drop_prob, feature_mask_prob=feature_mask_prob)
            for edge_drop_prob, feature_mask_prob in zip(views.edge_drop_probs, views.feature_mask_probs, strict=True)
        )
        self.model.train()
        self.optimizer.zero_grad()
        loss: Tensor = self.model(view_1, view_2)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        base = self.recipe.method.target_decay
        self.model.update_target(1.0 - (1.0 - base) * (math.cos(math.pi * step / train.steps) + 1.0) / 2.0)
        return loss.detach()
