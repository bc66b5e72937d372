"""A CSR matrix and its product with a table, by `embedding_bag`.

`embedding_bag(indices, table, offsets, weights)` sums weighted rows of a table for each row of a CSR matrix: that is a
sparse product, and on a CPU the fastest one in PyTorch. It makes no E x D intermediate and uses no atomics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.sparse import SparseMatrix

_bags: WeakKeyDictionary[SparseMatrix, Bag] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Bag:
    """A CSR matrix in the form that `embedding_bag` is fastest with: 32-bit indices (five times, on CPU)."""

    indptr: Tensor
    indices: Tensor
    values: Tensor

    @classmethod
    def of(cls, matrix: SparseMatrix) -> Bag:
        if matrix not in _bags:
            _bags[matrix] = cls(narrow(matrix.indptr, len(matrix.values)), matrix.indices, matrix.values)
        return _bags[matrix]

    def with_values(self, values: Tensor) -> Bag:
        return Bag(self.indptr, self.indices, values)

    def times(self, table: Tensor) -> Tensor:
        return F.embedding_bag(
            self.indices.to(self.indptr.dtype),
            table.contiguous(),
            self.indptr,
            mode="sum",
            per_sample_weights=self.values.to(table.dtype),
            include_last_offset=True,
        )


def times(matrix: Bag, transposed: Bag, table: Tensor) -> Tensor:
    """M H; the gradient of H is M^T G."""
    product: Tensor = _SparseProduct.apply(table, matrix, transposed)  # type: ignore[no-untyped-call]
    return product


class _SparseProduct(torch.autograd.Function):
    """M H, whose gradient with respect to H is M^T G: both matrices are given."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, matrix: Bag, transposed: Bag) -> Tensor:
        ctx.transposed = transposed
        return matrix.times(h)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        transposed: Bag = ctx.transposed
        return transposed.times(gradient), None, None


def narrow(numbers: Tensor, limit: int) -> Tensor:
    """As 32-bit integers, where all are below the limit that makes this possible."""
    return numbers.int() if limit < 2**31 else numbers
