"""ROC AUC of a linear probe: how often a node of the second class gets a higher score than one of the first.

It asks for the right order and not for the right threshold, so it means the same where test nodes come from a graph
with another balance of classes. C is chosen by it too, on validation nodes; of equally good values the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from graphstrap.errors import InputError
from graphstrap.evaluate._axes import multiply
from graphstrap.evaluate._choice import STRENGTHS
from graphstrap.evaluate._fits import Fit, fit_models
from graphstrap.evaluate._rows import Index, Rows
from graphstrap.evaluate._splits import Split


def probe_auc(cases: Sequence[tuple[Rows, Index, Split]], *, solver: str) -> list[tuple[float, float]]:
    """For each case (rows, labels, split): the AUC on validation and on test nodes, from 0 to 1."""
    for _, labels, split in cases:
        if any(len(np.unique(labels[part])) != 2 for part in split):
            raise InputError("the protocol 'auc' needs nodes of exactly two classes in train, in val and in test")
    fits = [Fit(rows, labels, split.train, STRENGTHS) for rows, labels, split in cases]
    found: dict[int, tuple[float, float]] = {}
    for place, weights in fit_models(fits, solver=solver):
        rows, labels, split = cases[place]
        second = weights[:, 1]  # (S, D + 1) of the second class against the first
        on_val = [_auc(rows, labels, split.val, one) for one in second]
        best = int(np.argmax(on_val))
        found[place] = on_val[best], _auc(rows, labels, split.test, second[best])
    return [found[place] for place in range(len(cases))]


def _auc(rows: Rows, labels: Index, nodes: Index, weights: torch.Tensor) -> float:
    from sklearn.metrics import roc_auc_score

    blocks = rows.blocks(nodes, width=1)
    scores = torch.cat([multiply(rows.take_with_constant(block), weights[:, None]) for block in blocks])
    return float(roc_auc_score(labels[nodes], scores[:, 0].cpu().numpy()))
