"""ScaledMatrix: features that are scaled when rows of them are asked for, as a frozen value.

    row       x / sum |x|                  a row of zeros stays zero
    column    (x - mean) / scale           of each column
    none      x                            as float32

A table that is larger than memory stays on disk, in the few bits that it is stored in; every row that a batch or a
block gathers is the row that scaling the whole table would have given. Statistics of a table of more than `MANY_VALUES`
values are those of `SAMPLED_ROWS` of its rows, always the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphstrap.keep import hash32
from graphstrap.quantised import QuantisedMatrix
from graphstrap.sparse import SparseMatrix

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
