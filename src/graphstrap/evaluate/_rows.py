"""Rows: embeddings or raw features from which protocols take l2-normalised float64 rows.

    row_i  ->  row_i / ||row_i||          a row of zeros stays as it is

A NumPy array (memory-mapped too), a tensor on any device, a SparseMatrix or a SciPy matrix. Nothing of the size of
the whole is copied: what is taken is converted when it is taken. Sparse rows stay sparse when they are nearly empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluate._axes import Block
from graphstrap.sparse import SparseMatrix

Embeddings = np.ndarray[Any, Any] | Tensor | SparseMatrix
Index = np.ndarray[Any, np.dtype[np.int64]]

BLOCK_ENTRIES = 2**22
SPARSE_DENSITY = 0.05  # sparse products win below: at the 35 % of Amazon's words they are three times slower


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows by number; `source` is a NumPy array, a tensor or a SciPy CSR matrix of shape (N, D)."""

    source: Any

    @classmethod
    def of(cls, h: Any) -> Rows:
        """Check `h` and wrap it: two dimensions, real numbers, all of them finite."""
        source = h.to_scipy() if isinstance(h, SparseMatrix) else h
        if hasattr(source, "tocsr"):
            source = source.tocsr()
        elif not isinstance(source, Tensor):
            source = np.asarray(source)
        if len(source.shape) != 2 or 0 in source.shape:
            raise InputError(
                f"h must have one row per node and at least one column, got the shape {tuple(source.shape)}"
            )
        rows = cls(source)
        rows._check_finite(source.data if rows.is_stored_sparse else source)
        return rows

    @property
    def is_stored_sparse(self) -> bool:
        return hasattr(self.source, "tocsr")

    @property
    def is_sparse(self) -> bool:
        """Whether `take` gives sparse rows."""
        return self.is_stored_sparse and bool(self.source.nnz < SPARSE_DENSITY * self.num_rows * self.num_columns)

    @property
    def num_rows(self) -> int:
        return int(self.source.shape[0])

    @property
    def num_columns(self) -> int:
        return int(self.source.shape[1])

    @property
    def device(self) -> torch.device:
        return self.source.device if isinstance(self.source, Tensor) else torch.device("cpu")

    def take(self, index: Index) -> Block:
        """Normalised rows, (len(index), D) float64: a dense tensor, or SciPy CSR of a nearly empty source."""
        if self.is_sparse:
            return _normalise_sparse(self.source[index])
        taken = self.take_as_given(index)
        norms = taken.norm(dim=1, keepdim=True)
        return taken / torch.where(norms > 0, norms, 1.0)

    def take_as_given(self, index: Index) -> Tensor:
        """Rows that are not normalised, (len(index), D) float64, dense."""
        if isinstance(self.source, Tensor):
            return self.source.detach()[torch.from_numpy(index).to(self.device)].double()
        chosen = self.source[index]
        return torch.from_numpy((chosen.toarray() if self.is_stored_sparse else chosen).astype(np.float64))

    def take_with_constant(self, index: Index) -> Block:
        """The same with a last column of ones, (len(index), D + 1): the intercept of a linear model."""
        taken = self.take(index)
        if isinstance(taken, Tensor):
            return torch.cat([taken, taken.new_ones(len(taken), 1)], dim=1)
        from scipy.sparse import hstack

        return hstack([taken, np.ones((taken.shape[0], 1))], format="csr")

    def blocks(self, index: Index, *, width: int) -> Iterator[Index]:
        """Cut `index` so that neither a block of its rows nor a result of `width` columns outgrows the memory."""
        size = max(1, BLOCK_ENTRIES // max(width, 1 if self.is_sparse else self.num_columns))
        for start in range(0, len(index), size):
            yield index[start : start + size]

    def _check_finite(self, values: Any) -> None:
        if not isinstance(values, Tensor) and values.dtype.kind not in "fiub":
            raise InputError(f"h must hold real numbers, got {values.dtype}")
        size = max(1, BLOCK_ENTRIES // self.num_columns)
        for start in range(0, len(values), size):
            block = values[start : start + size]
            finite = block.isfinite().all() if isinstance(block, Tensor) else np.isfinite(block).all()
            if not finite:
                raise InputError("h holds NaN or infinite values: no protocol can use them; did the training diverge?")


def _normalise_sparse(matrix: Any) -> Any:
    from scipy.sparse import diags_array

    matrix = matrix.astype(np.float64)
    norms = np.sqrt(matrix.multiply(matrix).sum(axis=1)).reshape(-1)
    scales = 1 / np.where(norms > 0, norms, 1.0)
    return diags_array(np.asarray(scales).reshape(-1)).tocsr() @ matrix
