"""Semi-supervised BGRL: few labels and many nodes without, as on MAG240M.

Thakoor et al., Large-Scale Representation Learning on Graphs via Bootstrapping, ICLR 2022, section 5 and appendix.

    h        =  encoder(clean batch)
    loss     =  mean over labelled roots of -log softmax(h W + b)[label]  +  weight * auxiliary(all roots)
    averaged <- decay * averaged + (1 - decay) * (encoder, W, b)          after every step; these are what is evaluated

The auxiliary signal is BGRL's loss, or GRACE's with k negatives, on two views of the same batch; weight 0 is plain
supervised learning. A batch holds `unlabelled_ratio` roots without a label for each one with.

`label_inputs`: the labels of training nodes are also inputs, one column a class, so that a root sees its neighbours'.
What is hidden is decided by pairs of (root, node), never by places: in a subgraph of its own, the root's label; in a
merged batch, every root's. A batch carries training labels and no others (see `Graph.training_labels`), so labels of
validation and test nodes can reach neither the loss nor the inputs. Pinned by the leak detectors of
test_semi_supervised.py.

Departs from the paper:
  * The averaged weights are those of the encoder that learns from labels, and start where it starts, with less decay in
    the first steps; BGRL's own target network, which starts elsewhere, is left as it is. Pinned by
    test_semi_supervised.py::test_averages_move_towards_the_encoder_and_get_no_gradient.
  * No projector by default: the paper's own ablation says that it hurts.
Cost of a step: that of the auxiliary method, and one more pass of the encoder, over labelled roots alone where every
root has a subgraph of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.graph.blocks import Block, SparseMatrix
from graphstrap.graph.many import select_roots
from graphstrap.nn.encoders.gcn import glorot
from graphstrap.nn.methods import Blueprint, Method, Stats
from graphstrap.nn.methods.bgrl import BGRLSettings, target_decay_at
from graphstrap.nn.methods.grace import GRACESettings
from graphstrap.ops import linear, move_average
from graphstrap.run.recipe import METHODS, Recipe
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class SemiSupervisedSettings(BGRLSettings, GRACESettings):
    """Besides what the auxiliary method reads:

    `auxiliary`: the signal besides labels. `auxiliary_weight`: what it counts; 0 is plain supervised learning.
    `unlabelled_ratio`: how many roots without a label a sampled batch has for each one with.
    `label_inputs`: whether a root sees its neighbours' training labels.
    `inference_passes`: how many sampled passes predictions are averaged over.
    """

    name: str = "semi-supervised"
    auxiliary: str = setting("bgrl", choices=("bgrl", "grace"))
    auxiliary_weight: float = setting(1.0, low=0.0, high=1000.0)
    unlabelled_ratio: float = setting(10.0, low=0.0, high=1e6)
    label_inputs: bool = setting(False)
    inference_passes: int = setting(1, low=1, high=1000)

    def check(self, recipe: Recipe) -> None:
        super().check(recipe)
        if self.label_inputs and (not recipe.sampling.fan_outs or recipe.views.centrality != "none"):
            raise InputError(
                "method.label_inputs hides the labels of a batch's roots, and without sampling every node is one: "
                "set sampling.fan_outs, and leave views.centrality at none"
            )
        if self.embed_with != "online":
            raise InputError("semi-supervised embeds with its averaged encoder: leave method.embed_with at online")

    def num_labelled_roots(self, batch_size: int) -> int:
        """How many of a batch's roots have a label, at least 1."""
        return min(max(1, round(batch_size / (1.0 + self.unlabelled_ratio))), batch_size)

    def num_loss_roots(self, recipe: Recipe) -> int:
        """With a subgraph for each root, what learns from labels sees labelled ones alone."""
        size = recipe.sampling.batch_size
        return self.num_labelled_roots(size) if recipe.sampling.disjoint else size


@METHODS.register("semi-supervised")
class SemiSupervised(Method):
    """The method: an encoder, a linear head, an auxiliary method around the same encoder, and the averages of the first
    two."""

    Settings = SemiSupervisedSettings
    num_views, learns_labels = 2, True

    auxiliary: Method

    def __init__(self, settings: SemiSupervisedSettings, blueprint: Blueprint) -> None:
        super().__init__()
        self.num_classes, self.label_inputs = blueprint.num_classes, settings.label_inputs
        more = self.num_classes if self.label_inputs else 0  # labels that are inputs are columns after the features
        wider = replace(blueprint, input_sizes=[size + more for size in blueprint.input_sizes])
        self.auxiliary = METHODS.get(settings.auxiliary).build(settings, wider)
        self.head = Head(self.online.embedding_size, self.num_classes, blueprint.generator(2))  # type: ignore[arg-type]
        self.averaged, self.averaged_head = deepcopy(self.online), deepcopy(self.head)
        self.averaged.requires_grad_(False)
        self.averaged_head.requires_grad_(False)
        self.auxiliary_weight = settings.auxiliary_weight
        self.average_decay, self.total_steps = settings.target_decay, blueprint.recipe.train.steps
        if not self.auxiliary_weight:  # what has no gradient is not for the optimiser
            self.auxiliary.requires_grad_(False)
            self.online.requires_grad_(True)

    @property
    def frozen(self) -> nn.Module:
        return self.averaged

    @property
    def online(self) -> nn.Module:  # type: ignore[override]
        return self.auxiliary.online

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        assert batch.labels is not None
        shown = self.inputs(batch)
        has_label = batch.roots_of(batch.labels) >= 0
        clean = select_roots(shown, has_label) if batch.owners is not None and bool(has_label.any()) else shown
        h = self.online(clean, View(CLEAN.spec, views[0].seed))
        labels: Tensor = clean.labels  # type: ignore[assignment]
        loss = labelled_loss(self.head(clean.roots_of(h)), clean.roots_of(labels))
        if self.auxiliary_weight:
            auxiliary_loss, _ = self.auxiliary.loss(shown, views)
            loss = loss + self.auxiliary_weight * auxiliary_loss
        return loss, {"embedding": h.detach()}

    @torch.no_grad()
    def after_step(self, step: int | Tensor) -> None:
        self.auxiliary.after_step(step)
        decay = average_decay_at(step, base=self.average_decay, total_steps=self.total_steps)
        for averaged, online in ((self.averaged, self.online), (self.averaged_head, self.head)):
            move_average(averaged.parameters(), online.parameters(), weight=1.0 - decay)
            for ours, theirs in zip(averaged.buffers(), online.buffers(), strict=True):
                ours.copy_(theirs)

    def inputs(self, batch: Graph, *, whole_graph_labels: bool = False) -> Graph:
        """The batch as the encoder takes it. In a whole graph every node is a root and every label hidden, but for
        predictions of nodes without one."""
        if not self.label_inputs:
            return batch
        assert batch.labels is not None
        labels = hide_roots(batch) if batch.num_roots is not None or not whole_graph_labels else batch.labels
        columns = [labels[first:last] for first, last in pairwise(batch.type_offsets)]
        blocks = zip(batch.features, columns, strict=True)
        return replace(batch, features=tuple(append_labels(x, own, self.num_classes) for x, own in blocks))

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        """(N, D); of a sampled batch, its roots. No node's own label is among its inputs."""
        return graph.roots_of(self.averaged.eval()(self.inputs(graph), CLEAN))

    @torch.no_grad()
    def probabilities(self, graph: Graph) -> Tensor:
        """(N, C); of a sampled batch, its roots. In a whole graph, nodes with a training label have it among their
        inputs."""
        h: Tensor = self.averaged.eval()(self.inputs(graph, whole_graph_labels=True), CLEAN)
        scores: Tensor = self.averaged_head(graph.roots_of(h))
        return scores.float().softmax(1)


class Head(nn.Module):
    """Class scores: h W + b."""

    def __init__(self, size: int, num_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight, self.bias = glorot(size, num_classes, generator), nn.Parameter(torch.zeros(num_classes))

    def forward(self, h: Tensor) -> Tensor:
        return linear(h, self.weight, self.bias)


def average_decay_at(step: Any, *, base: float, total_steps: int) -> Any:
    """BGRL's, but at most (1 + step) / (10 + step): short runs forget the initial weights too."""
    decay, most = target_decay_at(step, base=base, total_steps=total_steps), (1.0 + step) / (10.0 + step)
    return torch.minimum(decay, most) if isinstance(step, Tensor) else min(decay, most)


def labelled_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of the rows that have a label; 0 where none has."""
    total = F.cross_entropy(scores.float(), labels, ignore_index=-1, reduction="sum")
    return total / (labels >= 0).sum().clamp(min=1)


def hide_roots(batch: Graph) -> Tensor:
    """(N,) the batch's labels without those of roots: by (root, node), wherever the node stands."""
    assert batch.labels is not None
    if batch.num_roots is None:
        return torch.full_like(batch.labels, -1)
    assert batch.node_ids is not None
    roots = batch.roots_of(batch.node_ids)
    if batch.owners is not None:
        is_root = batch.node_ids == roots.index_select(0, batch.owners)
    else:
        is_root = torch.isin(batch.node_ids, roots)
    return batch.labels.masked_fill(is_root, -1)


def append_labels(block: Block | None, labels: Tensor, num_classes: int) -> Block | None:
    """The features with a column for each class: 1 in that of the node's label, if it has one."""
    if block is None:
        return None
    if isinstance(block, SparseMatrix):
        return _append_sparse(block, labels, num_classes)
    if not isinstance(block, Tensor):
        block = block.to_dense()
    shown = F.one_hot(labels.clamp(min=0), num_classes).to(block.dtype) * (labels >= 0)[:, None]
    return torch.cat([block, shown.to(block.dtype)], dim=1)


def _append_sparse(block: SparseMatrix, labels: Tensor, num_classes: int) -> SparseMatrix:
    """One entry more at the end of every row whose node has a label."""
    has_label = labels >= 0
    more = torch.cat([block.indptr.new_zeros(1), has_label.long().cumsum(0)])
    indptr = block.indptr + more
    places = torch.arange(len(block.values), device=block.device) + more.index_select(0, block.rows)
    last = indptr[1:][has_label] - 1
    columns = block.indices.new_empty(len(block.indices) + len(last))
    values = block.values.new_ones(len(columns))
    columns[places], values[places] = block.indices, block.values
    columns[last] = (labels[has_label] + block.num_columns).to(columns.dtype)
    return SparseMatrix(indptr, columns, values, block.num_columns + num_classes)
