"""Feature blocks: the features of one node type, in any of the forms that they are kept in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph.edge_table import as_numbers
from graphstrap.graph.keep import hash32

# SparseMatrix: bag-of-words features in CSR, as a frozen value.


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


# QuantisedMatrix: dense features in one byte each, as a frozen value.
#
# value[i, j]  =  offset[j] + scale[j] * code[i, j]          code in 0..255, offset and scale of each column
#
# A column runs from its least to its largest value, so no value is off by more than half a step of its column.


MAX_CODE = 255


@dataclass(frozen=True, eq=False)
class QuantisedMatrix:
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
        """What makes a value finite or not."""
        return torch.cat([self.scale, self.offset])

    def take(self, rows: Tensor | slice) -> Tensor:
        """Some rows as float32."""
        return torch.addcmul(self.offset, self.codes[rows].float(), self.scale)

    def to_dense(self) -> Tensor:
        return self.take(slice(None))

    def map(self, move: Callable[[Tensor], Tensor]) -> QuantisedMatrix:
        return QuantisedMatrix(move(self.codes), move(self.scale), move(self.offset))


def find_steps(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The scale and the offset of columns that run from `low` to `high`."""
    return ((high.double() - low.double()) / MAX_CODE).float(), low.float()


def encode(x: Tensor, *, scale: Tensor, offset: Tensor) -> Tensor:
    """uint8 codes of float32 rows."""
    step = torch.where(scale > 0, scale, torch.ones_like(scale)).double()
    return ((x.double() - offset.double()) / step).round_().clamp_(0, MAX_CODE).to(torch.uint8)


# ScaledMatrix: features that are scaled when rows of them are asked for, as a frozen value.
#
# row       x / sum |x|                  a row of zeros stays zero
# column    (x - mean) / scale           of each column
# none      x                            as float32
#
# A table that is larger than memory stays on disk, in the few bits that it is stored in; every row that a batch or a
# block gathers is the row that scaling the whole table would have given. Statistics of a table of more than
# `MANY_VALUES` values are those of `SAMPLED_ROWS` of its rows, always the same ones.


Raw = Tensor | SparseMatrix | QuantisedMatrix

MANY_VALUES = 1 << 26
SAMPLED_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class ScaledMatrix:
    """Args:
    raw: the table as it is kept.
    scaling: "row", "column" or "none".
    mean, scale: (F,) for "column".
    """

    raw: Raw
    scaling: str
    mean: Tensor | None = None
    scale: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.raw.shape[0]), int(self.raw.shape[1])

    @property
    def device(self) -> torch.device:
        return self.raw.device

    def apply(self, rows: Raw) -> Tensor | SparseMatrix:
        """Some rows of the raw table, scaled; on whatever device they are."""
        mean, scale = (None if part is None else part.to(rows.device) for part in (self.mean, self.scale))
        return scale_rows(rows, self.scaling, mean, scale)

    def take(self, rows: Tensor | slice) -> Tensor | SparseMatrix:
        return self.apply(take_rows(self.raw, rows))

    def to_dense(self) -> Tensor:
        return dense(self.apply(self.raw))

    def map(self, move: Callable[[Tensor], Tensor]) -> ScaledMatrix:
        raw = move(self.raw) if isinstance(self.raw, Tensor) else self.raw.map(move)
        parts = [None if part is None else move(part) for part in (self.mean, self.scale)]
        return ScaledMatrix(raw, self.scaling, *parts)


def take_rows(block: Raw, rows: Tensor | slice) -> Tensor | SparseMatrix:
    """Some rows of a table, in the type that they are kept in; of a quantised one, as float32."""
    if isinstance(block, SparseMatrix):
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(block.shape[0]), device=block.device)
        return block.select_rows(rows)
    if isinstance(block, QuantisedMatrix):
        return block.take(rows)
    return block[rows] if isinstance(rows, slice) else block.index_select(0, rows)


def scale_rows(block: Raw, scaling: str, mean: Tensor | None, scale: Tensor | None) -> Tensor | SparseMatrix:
    """Every row of a table as the encoder takes it."""
    x = encodable(block)
    if scaling == "row":
        return _to_unit_sum(x)
    if scaling == "column":
        assert mean is not None
        assert scale is not None
        return (dense(x) - mean) / scale
    return x


def encodable(block: Raw) -> Tensor | SparseMatrix:
    """What a store keeps in fewer bits becomes float32."""
    if isinstance(block, QuantisedMatrix):
        return block.to_dense()
    return block.float() if isinstance(block, Tensor) else block


def dense(block: Tensor | SparseMatrix) -> Tensor:
    return block.to_dense() if isinstance(block, SparseMatrix) else block


def is_large(block: Raw | ScaledMatrix) -> bool:
    """Whether a table is too large to be looked at row by row, or to be copied."""
    if isinstance(block, ScaledMatrix):
        block = block.raw
    num_values = len(block.values) if isinstance(block, SparseMatrix) else block.shape[0] * block.shape[1]
    return num_values > MANY_VALUES


def sample_rows(block: Raw | ScaledMatrix) -> Tensor | SparseMatrix:
    """What statistics are made from: the whole table; of a large one, a row from each of `SAMPLED_ROWS` equal parts,
    where in its part being a hash of the part's number."""
    raw, scaled = (block.raw, block) if isinstance(block, ScaledMatrix) else (block, None)
    num_rows, rows = int(raw.shape[0]), raw
    if is_large(raw) and num_rows > SAMPLED_ROWS:
        numbers = torch.arange(SAMPLED_ROWS, device=raw.device)
        starts, ends = numbers * num_rows // SAMPLED_ROWS, (numbers + 1) * num_rows // SAMPLED_ROWS
        rows = take_rows(raw, starts + hash32(numbers, 0) % (ends - starts))
    return encodable(rows) if scaled is None else scaled.apply(rows)


def _to_unit_sum(block: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
    """Rows divided by the sum of their absolute values; an all-zero row stays zero."""
    if isinstance(block, SparseMatrix):
        sums = torch.segment_reduce(block.values.abs(), "sum", offsets=block.indptr)
        return block.with_values(block.values / sums.clamp(min=1e-12)[block.rows])
    return block / block.abs().sum(1, keepdim=True).clamp(min=1e-12)


Features = Tensor | SparseMatrix
Block = Features | QuantisedMatrix | ScaledMatrix


def as_features(x: Any) -> Features | None:
    """Dense or sparse features from a tensor, an array or a SciPy matrix."""
    if x is None or isinstance(x, SparseMatrix):
        return x
    if hasattr(x, "tocsr"):
        return SparseMatrix.from_scipy(x)
    dense = as_numbers("x", x, fix="turn text into numbers, or leave its columns out", dtype=torch.float32)
    if dense.dim() != 2:
        raise InputError(f"x takes a row of numbers for each node, got shape {tuple(dense.shape)}")
    return dense


def readable(block: Block | None) -> Features | None:
    """A block as an encoder of whole graphs takes it."""
    if isinstance(block, ScaledMatrix):
        return block.apply(block.raw)
    return block.to_dense() if isinstance(block, QuantisedMatrix) else block


def is_bag(block: Block) -> bool:
    """Whether features are non-negative and mostly zero, as counts of words are."""
    x = sample_rows(block)
    if isinstance(x, SparseMatrix):
        return x.density < 0.5 and bool((x.values >= 0).all())
    return bool((x >= 0).all()) and float((x != 0).float().mean()) < 0.5


def block_tensors(block: Block | None) -> list[Tensor]:
    """The tensors that a block is kept as; of one that is scaled when it is read, those of its raw table."""
    if isinstance(block, ScaledMatrix):
        block = block.raw
    if block is None or isinstance(block, Tensor):
        return [] if block is None else [block]
    values = [getattr(block, field.name) for field in fields(block)]
    return [value for value in values if isinstance(value, Tensor)]


# Whether the columns of a graph fit together: shapes only, cheap enough for every batch.


def check_types(
    type_offsets: tuple[int, ...], names: Sequence[str], features: Sequence[Block | None], *, num_nodes: int
) -> None:
    """Node types cover all nodes, and each has a feature block with a row for each of its nodes, or none."""
    if type_offsets[0] != 0 or type_offsets[-1] != num_nodes:
        raise ValueError(f"type_offsets must run from 0 to {num_nodes}, got {type_offsets}")
    if not len(features) == len(names) == len(type_offsets) - 1:
        raise ValueError(f"{len(type_offsets) - 1} node types need as many feature blocks and names")
    for name, block, (first, last) in zip(names, features, pairwise(type_offsets), strict=True):
        if block is not None and block.shape[0] != last - first:
            raise ValueError(f"{name} has {last - first} nodes but {block.shape[0]} feature rows")


def check_graphs(graph_offsets: tuple[int, ...], *, num_types: int, num_nodes: int) -> None:
    """Several graphs in one cover all nodes, which are of one type."""
    if graph_offsets[0] != 0 or graph_offsets[-1] != num_nodes or any(a > b for a, b in pairwise(graph_offsets)):
        raise ValueError(f"graph_offsets must rise from 0 to {num_nodes}, got {graph_offsets}")
    if len(graph_offsets) > 2 and num_types > 1:
        raise ValueError(f"several graphs in one must be of one node type, got {num_types}")


def check_lengths(columns: Mapping[str, Sized | None], number: int, what: str) -> None:
    """Every column that is there has an entry for each node, or for each edge."""
    for name, column in columns.items():
        if column is not None and len(column) != number:
            raise ValueError(f"{name} must have one entry for each of the {number} {what}, got {len(column)}")
