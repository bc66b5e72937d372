"""Supervised GCN and MLP: two layers trained on labels, to say what embeddings made without labels compete with.

Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017, equations 9 and 10:

    H     =  prelu(S drop(X) W_1 + b_1),   Z = S drop(H) W_2 + b_2          S: A_hat for the GCN, nothing for the MLP
    loss  =  mean over training nodes of -log softmax(Z)[label]  +  weight_decay / 2 ||W_1||^2

Trained by Adam until the loss on validation nodes has not fallen for `patience` steps; the weights with the lowest are
kept, as in Shchur et al., Pitfalls of Graph Neural Network Evaluation, 2018.

Departs from the papers:
  * PReLU with a learned slope, which our encoders have, in place of ReLU.
  * drop(X) leaves X as it is unless `feature_dropout_prob` says otherwise: on a CPU a mask for every entry of dense
    features makes a step 17 times as long (Amazon Photo). On Cora it is worth one point (85.2 for 84.2, two splits).
  * The MLP has the GCN's settings, and the penalty on W_1 alone: Shchur et al. have 0.01 on both weights and half the
    learning rate for it.
Cost of a step: time O(E D + N F D), or O(E D + nnz(X) D) with sparse features; memory O(N D).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.graph.blocks import Block, Features, SparseMatrix
from graphstrap.graph.views import child_seed, drop_threshold, keep
from graphstrap.nn.encoders.gcn import glorot
from graphstrap.ops import propagate
from graphstrap.run.recipe import ENCODERS

_DROPOUT_BRANCH = 1 << 62  # ids that no edge, column or element of a view has


@dataclass(frozen=True)
class SupervisedSettings:
    """Those that Shchur et al. found for the GCN (config/optimized/gcn.conf.yaml in their code); Kipf and Welling have
    a width of 16, dropout 0.5 and weight decay 5e-4."""

    hidden_size: int = 64
    dropout_prob: float = 0.8
    feature_dropout_prob: float = 0.0
    learning_rate: float = 0.01
    weight_decay: float = 1e-3
    max_steps: int = 2000
    patience: int = 50


class Supervised(nn.Module):
    """The method: an encoder of one layer, "gcn" or "mlp", and a second layer that gives class scores."""

    def __init__(
        self,
        encoder: str,
        input_sizes: Sequence[int],
        *,
        num_classes: int,
        settings: SupervisedSettings,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        kind, size = ENCODERS.get(encoder), settings.hidden_size
        self.online = kind(input_sizes, [size], norm="none", generator=generator)
        self.weight, self.bias = glorot(size, num_classes, generator), nn.Parameter(torch.zeros(num_classes))
        self.follows_edges, self.dropout_prob = kind.follows_edges, settings.dropout_prob

    def loss(self, graph: Graph, view: View) -> Tensor:
        """Cross-entropy on the nodes that have a label: hide those that are not to be learned from."""
        assert graph.labels is not None
        return F.cross_entropy(self.scores(graph, view, self.dropout_prob), graph.labels, ignore_index=-1)

    @torch.no_grad()
    def predict(self, graph: Graph) -> Tensor:
        """(N, C) class scores of the clean graph."""
        return self.scores(graph, CLEAN, 0.0)

    def scores(self, graph: Graph, view: View, dropout_prob: float) -> Tensor:
        z = dropout(self.online(graph, view), dropout_prob, seed=view.seed) @ self.weight
        return (propagate(graph, CLEAN, z) if self.follows_edges else z) + self.bias


def dropout(h: Tensor, prob: float, *, seed: int | Tensor) -> Tensor:
    """h with each element set to 0 with this probability, and the others divided by 1 - prob."""
    if prob == 0.0:
        return h
    ids = torch.arange(h.numel(), device=h.device).view(h.shape) + _DROPOUT_BRANCH
    kept: Tensor = keep(ids, seed, drop_threshold(prob))
    return h * kept / (1.0 - prob)


def fit_supervised(
    graph: Graph, *, encoder: str, train: Tensor, val: Tensor, settings: SupervisedSettings | None = None, seed: int = 0
) -> Supervised:
    """Train on the labels of the nodes `train` and stop by those of `val`. No other label is looked at."""
    assert graph.labels is not None
    settings = settings or SupervisedSettings()
    seen, val_labels = _for_training(graph, train, settings.feature_dropout_prob), graph.labels[val]
    generator, num_classes = torch.Generator().manual_seed(child_seed(seed, 0)), graph.num_classes
    model = Supervised(encoder, graph.num_features, num_classes=num_classes, settings=settings, generator=generator)
    model.to(graph.device)
    optimizer = make_optimizer(model, settings)
    spec = ViewSpec(feature_mask_prob=settings.feature_dropout_prob, mask_elements=True)
    lowest, best_state, num_waited = math.inf, model.state_dict(), 0
    for step in range(settings.max_steps):
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(model.loss(seen, View(spec, child_seed(seed, 1, step))))
        optimizer.step()
        val_loss = float(F.cross_entropy(model.predict(graph)[val], val_labels))
        num_waited += 1
        if val_loss < lowest:
            lowest, num_waited = val_loss, 0
            best_state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        if num_waited == settings.patience:
            break
    model.load_state_dict(best_state)
    return model


def make_optimizer(model: Supervised, settings: SupervisedSettings) -> torch.optim.Optimizer:
    """Adam; the penalty is on the first layer's weights alone, as in both papers."""
    groups: list[dict[str, Any]] = [{"params": [], "weight_decay": settings.weight_decay}, {"params": []}]
    for name, parameter in model.named_parameters():
        groups[0 if name.startswith("online.input_weights") else 1]["params"].append(parameter)
    return torch.optim.Adam(groups, lr=settings.learning_rate)


def _for_training(graph: Graph, train: Tensor, drop_prob: float) -> Graph:
    """The graph without the labels of other nodes, its features divided by the part of them that dropout leaves."""
    assert graph.labels is not None
    labels = torch.full_like(graph.labels, -1).index_copy(0, train, graph.labels[train])
    features = graph.features
    if drop_prob:
        features = tuple(None if block is None else _divided(block, 1.0 - drop_prob) for block in features)
    return replace(graph, labels=labels, features=features)


def _divided(block: Block, by: float) -> Features:
    if isinstance(block, SparseMatrix):
        return block.with_values(block.values / by)
    return (block if isinstance(block, Tensor) else block.to_dense()) / by
