"""Folds: models that each leave another share of the labels out of training, so that together they have learned all.

    fold i of K     held out of model i's training, and what it is validated on
    model i         learns from the training labels and from all other folds

Cut into folds are the validation nodes, as in the authors' released code for MAG240M (ten folds; validation papers are
the nearest in time to the test papers), or `all`: training and validation nodes together, where there are no validation
nodes or where that is asked for. Nodes in the order of a hash of their numbers are dealt out one by one: folds have
nearly the same size, are the same for every seed, and do not depend on the labels. Test nodes are in none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.keep import hash32

PARTS = ("val", "all")
_SEED = 1_000_003


@dataclass(frozen=True)
class Fold:
    """The fold `number` (from 0) of `of`, cut from the nodes `part`."""

    number: int
    of: int
    part: str = "val"

    def __call__(self, graph: Graph) -> Graph:
        """The graph whose training nodes are all but the fold's, and whose validation nodes are the fold."""
        folds = fold_numbers(graph, self.of, part=self.part)
        held_out = folds == self.number
        train, _, test = _labelled_and_test(graph)
        masks = ((train | (folds >= 0)) & ~held_out, held_out, test)
        return replace(graph, splits=Splits(*(mask[:, None] for mask in masks)))

    @classmethod
    def from_dict(cls, saved: Any) -> Fold:
        kinds = {"number": int, "of": int, "part": str}
        if not isinstance(saved, dict) or {name: type(value) for name, value in saved.items()} != kinds:
            raise InputError("the run folder does not say which fold it leaves out: fit it again")
        fold = cls(**saved)
        if fold.part not in PARTS or not 0 <= fold.number < fold.of:
            raise InputError(f"there is no fold {fold.number} of {fold.of} of {fold.part!r} nodes: fit it again")
        return fold


def make_folds(graph: Graph, number: int, *, part: str | None = None) -> list[Fold]:
    """So many folds; of validation nodes where the split has enough of them, unless `part` says otherwise."""
    if graph.labels is None or graph.labels.dim() != 1:
        raise InputError("folds are of nodes with labels: name the label column with --label-column")
    if part not in (None, *PARTS):
        raise InputError(f"folds are cut from one of {', '.join(PARTS)}, got {part!r}")
    _, val, _ = _labelled_and_test(graph)
    chosen = part or ("val" if int(val.sum()) >= number else "all")
    size = int((fold_numbers(graph, 1, part=chosen) == 0).sum())
    if not 2 <= number <= size:
        raise InputError(f"--folds must lie between 2 and the {size} labelled nodes that are cut ({chosen})")
    return [Fold(index, number, chosen) for index in range(number)]


def fold_numbers(graph: Graph, number: int, *, part: str) -> Tensor:
    """(N,) the fold of every node; -1 for those of none."""
    train, val, _ = _labelled_and_test(graph)
    assert graph.labels is not None
    nodes = (val if part == "val" else train | val).nonzero().squeeze(1).cpu().numpy()
    order = np.argsort(hash32(nodes, _SEED), kind="stable")
    folds = torch.full((graph.num_nodes,), -1)
    folds[torch.from_numpy(nodes[order])] = torch.arange(len(nodes)) % number
    return folds.to(graph.labels.device)


def _labelled_and_test(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """(N,) each: labelled nodes for training and for validation, and test nodes, by the first split. Without a split
    all labels are for training."""
    assert graph.labels is not None
    has_label, nobody = graph.labels >= 0, torch.zeros_like(graph.labels, dtype=torch.bool)
    if graph.splits is None:
        return has_label, nobody, nobody
    splits = graph.splits
    return splits.train[:, 0] & has_label, splits.val[:, 0] & has_label, splits.test[:, 0]
