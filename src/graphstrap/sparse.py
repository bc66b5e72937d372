"""SparseMatrix: bag-of-words features in CSR, as a frozen value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """The non-zero entries of row i are `values[indptr[i]:indptr[i + 1]]`, in columns `indices[...]`."""

    indptr: Tensor  # (R + 1,) int64
    indices: Tensor  # (nnz,) int32
    values: Tensor  # (nnz,) float32
    num_columns: int

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseMatrix:
        matrix = matrix.tocsr()
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # the caller's stays as it is
            matrix.sum_duplicates()
        return cls(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int32)),
            torch.from_numpy(matrix.data.astype(np.float32)),
            int(matrix.shape[1]),
        )

    def to_scipy(self) -> Any:
        from scipy.sparse import csr_matrix

        parts = (self.values.cpu().numpy(), self.indices.cpu().numpy(), self.indptr.cpu().numpy())
        return csr_matrix(parts, shape=self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.indptr.shape[0]) - 1, self.num_columns

    @property
    def density(self) -> float:
        return len(self.values) / max(1, self.shape[0] * self.num_columns)

    @property
    def device(self) -> torch.device:
        return self.values.device

    @cached_property
    def rows(self) -> Tensor:
        """(nnz,) row of each entry."""
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.indptr.diff())

    @cached_property
    def transpose_order(self) -> Tensor:
        """(nnz,) positions of this matrix's entries in the order of its transpose."""
        return torch.sort(self.indices, stable=True).indices

    @cached_property
    def transpose(self) -> SparseMatrix:
        order = self.transpose_order
        counts = torch.bincount(self.indices, minlength=self.num_columns)
        indptr = row_starts(counts)
        return SparseMatrix(indptr, self.rows[order].int(), self.values[order], self.shape[0])

    def with_values(self, values: Tensor) -> SparseMatrix:
        return SparseMatrix(self.indptr, self.indices, values, self.num_columns)

    def to_dense(self, *, dtype: torch.dtype | None = None, num_columns: int | None = None) -> Tensor:
        """A dense table, perhaps in another type, perhaps with columns of zeros at its end."""
        dtype, width = dtype or self.values.dtype, num_columns or self.num_columns
        dense = torch.zeros(self.shape[0], width, dtype=dtype, device=self.device)
        dense[self.rows, self.indices.long()] = self.values.to(dtype)
        return dense

    def select_rows(self, rows: Tensor) -> SparseMatrix:
        """The matrix of these rows, in this order."""
        chosen = row_positions(self.indptr, rows)
        counts = self.indptr.index_select(0, rows + 1) - self.indptr.index_select(0, rows)
        indptr = row_starts(counts)
        return SparseMatrix(
            indptr, self.indices.index_select(0, chosen), self.values.index_select(0, chosen), self.num_columns
        )

    def map(self, move: Callable[[Tensor], Tensor]) -> SparseMatrix:
        return SparseMatrix(move(self.indptr), move(self.indices), move(self.values), self.num_columns)


def row_starts(counts: Tensor) -> Tensor:
    """(R + 1,) where each row of a CSR matrix begins, and the last one ends, from how many entries each has."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def row_positions(indptr: Tensor, rows: Tensor) -> Tensor:
    """Where the entries of these rows of a CSR matrix stand, row after row."""
    starts = indptr.index_select(0, rows)
    counts = indptr.index_select(0, rows + 1) - starts
    ends = counts.cumsum(0)
    shift = torch.repeat_interleave(starts - ends + counts, counts)
    return torch.arange(len(shift), device=indptr.device) + shift
