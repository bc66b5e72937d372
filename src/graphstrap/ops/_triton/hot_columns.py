"""Sparse features, their frequent columns as a dense table:  X W = X_hot W[hot] + X_cold W.

How often words occur is a power law: on Coauthor CS a seventh of the columns hold two thirds of the entries. An entry
of a sparse product gathers a whole row of W; a column of a dense product costs N multiplications for each column of W,
at the rate of the matrix units. A column that more than `HOT_FROM` of the rows have is cheaper in the dense one.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphstrap.sparse import SparseMatrix

HOT_FROM = 0.02  # of the rows: the best of 0.005, 0.01 and 0.02 on an H200 (docs/LOG.md)
_MULTIPLE = 64  # of columns: what the matrix units like

_splits: WeakKeyDictionary[SparseMatrix, dict[torch.dtype, HotColumns]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class HotColumns:
    hot: Tensor  # (K,) ascending
    table: Tensor  # (N, K)
    cold: SparseMatrix  # (N, F): the other entries, columns numbered as before


def hot_columns(features: SparseMatrix, dtype: torch.dtype) -> HotColumns:
    """The features cut in two, the table in the product's type; worked out once."""
    by_dtype = _splits.setdefault(features, {})
    if dtype not in by_dtype:
        by_dtype[dtype] = _split(features, _choose(features), dtype)
    return by_dtype[dtype]


def _choose(features: SparseMatrix) -> Tensor:
    """The most frequent columns, as many as pass the mark, rounded to a multiple."""
    counts = torch.bincount(features.indices, minlength=features.num_columns)
    wanted = int((counts > HOT_FROM * features.shape[0]).sum())
    rounded = min((wanted + _MULTIPLE // 2) // _MULTIPLE * _MULTIPLE, features.num_columns // _MULTIPLE * _MULTIPLE)
    most_frequent = torch.sort(counts, descending=True, stable=True).indices
    return torch.sort(most_frequent[:rounded]).values


def _split(features: SparseMatrix, hot: Tensor, dtype: torch.dtype) -> HotColumns:
    place = torch.full((features.num_columns,), -1, device=features.device)
    place[hot] = torch.arange(len(hot), device=features.device)
    places = place[features.indices]
    is_hot = places >= 0
    table = torch.zeros(features.shape[0], len(hot), dtype=dtype, device=features.device)
    table[features.rows[is_hot], places[is_hot]] = features.values[is_hot].to(dtype)
    before = torch.cat([is_hot.new_zeros(1, dtype=torch.int64), (~is_hot).cumsum(0)])  # cold entries before each
    cold = SparseMatrix(
        before[features.indptr], features.indices[~is_hot], features.values[~is_hot], features.num_columns
    )
    return HotColumns(hot, table, cold)
