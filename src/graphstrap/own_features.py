"""A node's own features, compressed, to stand beside an embedding that is an average over neighbours.

Where neighbours are unlike each other, averaging hides what a node itself looks like. Appending it costs a few columns:

    z          = unit(X) V              V: leading right singular vectors of unit(X) on the training graph
    embedding  = [unit(h) | w unit(z)]  w: `encoder.own_weight`, usually 1

BlogCatalog, protocol `paper`: 78.2 without, 92.1 with 64 such columns (docs/LOG.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.blocks import Block, Features
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.scaled import ScaledMatrix, sample_rows, take_rows
from graphstrap.sparse import SparseMatrix

_ROWS_AT_ONCE = 1 << 16
_ROWS_FITTED = 1 << 17  # at most, evenly spaced: more take long and change next to nothing


@dataclass(frozen=True, eq=False)
class OwnFeatures:
    """The projection, fitted on a training graph whose features are prepared already."""

    basis: Tensor  # (F, K)
    weight: float = 1.0

    @classmethod
    def fit(cls, graph: Graph, *, num_columns: int, weight: float = 1.0) -> OwnFeatures:
        from sklearn.utils.extmath import randomized_svd

        if len(graph.features) != 1 or graph.features[0] is None:
            raise InputError("encoder.own_features needs a graph with one node type: set it to 0")
        block = sample_rows(graph.features[0])
        if block.shape[0] > _ROWS_FITTED:
            block = take_rows(block, torch.linspace(0, block.shape[0] - 1, _ROWS_FITTED, dtype=torch.float64).long())
        rows = _unit_rows(block)
        num_columns = min(num_columns, *rows.shape)
        _, _, basis = randomized_svd(rows, n_components=num_columns, random_state=0)
        return cls(torch.from_numpy(np.ascontiguousarray(basis.T, dtype=np.float32)), weight)

    def append_to(self, h: Tensor, graph: Graph) -> Tensor:
        """[unit(h) | w unit(z)]: (N, D + K)."""
        block = graph.features[0]
        assert block is not None
        if not isinstance(block, ScaledMatrix):
            return self.append_rows(h, some_rows(block, slice(None)))
        firsts = range(0, graph.num_nodes, _ROWS_AT_ONCE)
        parts = [slice(first, first + _ROWS_AT_ONCE) for first in firsts]
        return torch.cat([self.append_rows(h[part], block.take(part)) for part in parts])

    def append_rows(self, h: Tensor, x: Features) -> Tensor:
        """The same for some nodes and the rows of features that are theirs."""
        z = torch.from_numpy(np.asarray(_unit_rows(x) @ self.basis.numpy(), dtype=np.float32))
        return torch.cat([F.normalize(h.cpu(), dim=1), self.weight * F.normalize(z, dim=1)], dim=1)


def _row_sums(one: Any, other: Any) -> np.ndarray[Any, Any]:
    product = one.multiply(other) if hasattr(one, "multiply") else one * other
    return np.asarray(product.sum(axis=1)).ravel()


def some_rows(block: Block, rows: Tensor | slice) -> Features:
    """Rows of a prepared block."""
    return block.take(rows) if isinstance(block, ScaledMatrix) else take_rows(block, rows)


def _unit_rows(block: Features) -> Any:
    """Rows of length 1, or of zeros, as a SciPy matrix where the features are sparse."""
    if not isinstance(block, SparseMatrix):
        dense = block.cpu().numpy()
        return dense / _not_zero(np.linalg.norm(dense, axis=1, keepdims=True))
    sparse = block.to_scipy().copy()
    lengths = np.sqrt(_row_sums(sparse, sparse))
    sparse.data /= np.repeat(_not_zero(lengths), np.diff(sparse.indptr))
    return sparse


def _not_zero(lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(lengths == 0, np.ones_like(lengths), lengths)
