"""The features of one node type, in any of the forms that they are kept in.

    Tensor             dense
    SparseMatrix       bag-of-words features, in CSR
    QuantisedMatrix    dense, in one byte each
    ScaledMatrix       any of these, scaled when rows of it are read: for features that are larger than memory

An encoder of whole graphs takes the first two, `Features`; `readable` gives them. All forms are frozen values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from graphstrap.graph.views import hash32

Move = Callable[[Tensor], Tensor]

MAX_CODE = 255
MANY_VALUES = 1 << 26  # statistics of more values than that are those of `SAMPLED_ROWS` rows, always the same ones
SAMPLED_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class Movable:
    """A frozen value whose tensors move together, those of values in it too."""

    def map(self, move: Move) -> Self:
        return replace(self, **{f.name: _moved(getattr(self, f.name), move) for f in fields(self)})


def _moved(value: Any, move: Move) -> Any:
    if isinstance(value, Tensor):
        return move(value)
    if isinstance(value, Movable):
        return value.map(move)
    if isinstance(value, tuple):
        items = [_moved(item, move) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


@dataclass(frozen=True, eq=False)
class SparseMatrix(Movable):
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

        arrays = (self.values.cpu().numpy(), self.indices.cpu().numpy(), self.indptr.cpu().numpy())
        return csr_matrix(arrays, shape=self.shape)

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
        indptr = row_starts(torch.bincount(self.indices, minlength=self.num_columns))
        return SparseMatrix(indptr, self.rows[order].int(), self.values[order], self.shape[0])

    def with_values(self, values: Tensor) -> SparseMatrix:
        return SparseMatrix(self.indptr, self.indices, values, self.num_columns)

    def to_dense(self, *, dtype: torch.dtype | None = None, num_columns: int | None = None) -> Tensor:
        """A dense matrix, perhaps in another type, perhaps with columns of zeros at its end."""
        dtype, width = dtype or self.values.dtype, num_columns or self.num_columns
        dense = torch.zeros(self.shape[0], width, dtype=dtype, device=self.device)
        dense[self.rows, self.indices.long()] = self.values.to(dtype)
        return dense

    def select_rows(self, rows: Tensor) -> SparseMatrix:
        """The matrix of these rows, in this order."""
        chosen = row_positions(self.indptr, rows)
        indptr = row_starts(self.indptr.index_select(0, rows + 1) - self.indptr.index_select(0, rows))
        indices, values = self.indices.index_select(0, chosen), self.values.index_select(0, chosen)
        return SparseMatrix(indptr, indices, values, self.num_columns)


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


@dataclass(frozen=True, eq=False)
class QuantisedMatrix(Movable):
    """value[i, j]  =  offset[j] + scale[j] * code[i, j]

    A column runs from its least to its largest value, so no value is off by more than half a step of its column.
    """

    codes: Tensor  # (R, F) uint8
    scale: Tensor  # (F,) float32, the step of each column; 0 where a column is constant
    offset: Tensor  # (F,) float32, the least value of each column

    @classmethod
    def from_dense(cls, x: Tensor) -> QuantisedMatrix:
        x = x.float()
        low = x.amin(0) if len(x) else x.new_zeros(x.shape[1])
        high = x.amax(0) if len(x) else low
        scale, offset = find_steps(low, high)
        return cls(encode(x, scale=scale, offset=offset), scale, offset)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.codes.shape[0]), int(self.codes.shape[1])

    @property
    def device(self) -> torch.device:
        return self.codes.device

    @property
    def values(self) -> Tensor:
        """The numbers that decide whether every value is finite."""
        return torch.cat([self.scale, self.offset])

    def take(self, rows: Tensor | slice) -> Tensor:
        """Some rows as float32."""
        return torch.addcmul(self.offset, self.codes[rows].float(), self.scale)

    def to_dense(self) -> Tensor:
        return self.take(slice(None))


def find_steps(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The scale and the offset of columns that run from `low` to `high`."""
    return ((high.double() - low.double()) / MAX_CODE).float(), low.float()


def encode(x: Tensor, *, scale: Tensor, offset: Tensor) -> Tensor:
    """uint8 codes of float32 rows."""
    step = torch.where(scale > 0, scale, torch.ones_like(scale)).double()
    return ((x.double() - offset.double()) / step).round_().clamp_(0, MAX_CODE).to(torch.uint8)


@dataclass(frozen=True, eq=False)
class ScaledMatrix(Movable):
    """A matrix that stays as it is stored; each row that is read is the row that scaling the whole would have given."""

    raw: Raw  # the matrix as it is kept
    scaling: str  # "row" for x / sum |x|, a row of zeros staying zero; "column" for (x - mean) / scale; or "none"
    mean: Tensor | None = None  # (F,) for "column", as is the scale
    scale: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.raw.shape[0]), int(self.raw.shape[1])

    @property
    def device(self) -> torch.device:
        return self.raw.device

    def apply(self, rows: Raw) -> Features:
        """Some rows of the raw matrix, scaled; on whatever device they are."""
        x = encodable(rows)
        if self.scaling == "row":
            return _to_unit_sum(x)
        if self.scaling == "column":
            assert self.mean is not None
            assert self.scale is not None
            return (dense(x) - self.mean.to(x.device)) / self.scale.to(x.device)
        return x

    def take(self, rows: Tensor | slice) -> Features:
        return self.apply(take_rows(self.raw, rows))

    def to_dense(self) -> Tensor:
        return dense(self.apply(self.raw))


Features = Tensor | SparseMatrix
Raw = Features | QuantisedMatrix
Block = Raw | ScaledMatrix


def readable(block: Block | None) -> Features | None:
    """A block as an encoder of whole graphs takes it."""
    if isinstance(block, ScaledMatrix):
        return block.apply(block.raw)
    return block.to_dense() if isinstance(block, QuantisedMatrix) else block


def encodable(block: Raw) -> Features:
    """The same values, dense ones in float32: a store may keep them in fewer bits."""
    if isinstance(block, QuantisedMatrix):
        return block.to_dense()
    return block.float() if isinstance(block, Tensor) else block


def dense(block: Block) -> Tensor:
    return block if isinstance(block, Tensor) else block.to_dense()


def take_rows(block: Block, rows: Tensor | slice) -> Features:
    """Some rows of a block: dense ones in the type that they are kept in, quantised and scaled ones as float32."""
    if isinstance(block, ScaledMatrix | QuantisedMatrix):
        return block.take(rows)
    if isinstance(block, SparseMatrix):
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(block.shape[0]), device=block.device)
        return block.select_rows(rows)
    return block[rows] if isinstance(rows, slice) else block.index_select(0, rows)


def sample_rows(block: Block) -> Features:
    """The rows that statistics are made from: all; of a large block, one of each of `SAMPLED_ROWS` equal ranges of
    rows, where in its range being a hash of the range's number."""
    raw = block.raw if isinstance(block, ScaledMatrix) else block
    num_rows, rows = int(raw.shape[0]), raw
    if is_large(raw) and num_rows > SAMPLED_ROWS:
        numbers = torch.arange(SAMPLED_ROWS, device=raw.device)
        starts, ends = numbers * num_rows // SAMPLED_ROWS, (numbers + 1) * num_rows // SAMPLED_ROWS
        rows = take_rows(raw, starts + hash32(numbers, 0) % (ends - starts))
    return block.apply(rows) if isinstance(block, ScaledMatrix) else encodable(rows)


def is_large(block: Block) -> bool:
    """Whether a block is too large to be looked at row by row, or to be copied."""
    if isinstance(block, ScaledMatrix):
        block = block.raw
    num_values = len(block.values) if isinstance(block, SparseMatrix) else block.shape[0] * block.shape[1]
    return num_values > MANY_VALUES


def is_bag(block: Block) -> bool:
    """Whether features are non-negative and mostly zero, as counts of words are."""
    x = sample_rows(block)
    values, density = (x.values, x.density) if isinstance(x, SparseMatrix) else (x, float((x != 0).float().mean()))
    return density < 0.5 and bool((values >= 0).all())


def block_tensors(block: Block | None) -> list[Tensor]:
    """The tensors that a block is kept as; of a scaled one, those of its raw matrix."""
    if isinstance(block, ScaledMatrix):
        block = block.raw
    if block is None or isinstance(block, Tensor):
        return [] if block is None else [block]
    values = [getattr(block, field.name) for field in fields(block)]
    return [value for value in values if isinstance(value, Tensor)]


def _to_unit_sum(x: Features) -> Features:
    """Rows divided by the sum of their absolute values; an all-zero row stays zero."""
    if isinstance(x, SparseMatrix):
        sums = torch.segment_reduce(x.values.abs(), "sum", offsets=x.indptr)
        return x.with_values(x.values / sums.clamp(min=1e-12)[x.rows])
    return x / x.abs().sum(1, keepdim=True).clamp(min=1e-12)
