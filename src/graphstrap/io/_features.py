"""Numeric columns as matrices: node features, one block per node type, and the numeric columns of edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io._files import Table
from graphstrap.io._values import Array, bad_cell, find_kinds, first_unreadable_row, read_lists, read_numbers


@dataclass(frozen=True, eq=False)
class Column:
    """A column of numbers, or of lists of numbers. Row i has `values[starts[i]:starts[i] + lengths[i]]`."""

    name: str
    values: Array  # (sum of lengths,) float32, NaN where empty
    lengths: Array | None = None  # (N,); None means one value a row

    def is_empty(self, rows: Array) -> bool:
        if self.lengths is None:
            return bool(np.isnan(self.values[rows]).all())
        return not self.lengths[rows].any()

    def take(self, table: Table, rows: Array) -> Array:
        """The values of some rows, (R, W): they must be finite, and as many in each row."""
        if self.lengths is None:
            block = self.values[rows][:, None]
        else:
            width = self._find_width(table, rows, self.lengths)
            starts = np.cumsum(self.lengths) - self.lengths
            block = self.values[starts[rows][:, None] + np.arange(width)]
        is_good = np.isfinite(block).all(axis=1)
        if not is_good.all():
            raise bad_cell(
                table, self.name, row=int(rows[~is_good][0]), wanted=f"a finite number: {_how_to_fix(self.name)}"
            )
        return block

    def _find_width(self, table: Table, rows: Array, lengths: Array) -> int:
        width = int(lengths[rows[0]])
        is_good = (lengths[rows] == width) & (lengths[rows] > 0)
        if is_good.all():
            return width
        row = int(rows[~is_good][0])
        if lengths[row] == 0:
            raise bad_cell(table, self.name, row=row, wanted=f"a list of numbers: {_how_to_fix(self.name)}")
        first = table.place(int(rows[0]))
        raise InputError(
            f"column {self.name!r} is a list of {lengths[row]} in {table.place(row)} but of {width} in {first}: "
            f"make all lists of equal length"
        )


def read_feature_blocks(
    table: Table, names: tuple[str, ...], *, rows_by_type: list[Array]
) -> tuple[list[Array | None], tuple[str, ...] | None]:
    """One float32 matrix (N_t, F_t) per node type, or None; and the names of the columns, where there is one type.

    With several types, a column that is empty for all nodes of a type is not part of that type's block.
    """
    columns = read_columns(table, find_feature_kinds(table, names))
    if len(rows_by_type) == 1:
        parts = {column.name: column.take(table, rows_by_type[0]) for column in columns}
        return [_joined(list(parts.values()))], feature_names(parts) or None
    blocks = []
    for rows in rows_by_type:
        blocks.append(_joined([column.take(table, rows) for column in columns if not column.is_empty(rows)]))
    return blocks, None


def read_matrix(table: Table, names: tuple[str, ...], *, kinds: dict[str, str] | None = None) -> Array | None:
    """float32 (N, K) of K numeric columns, all finite; None without columns."""
    columns = read_columns(table, kinds or check_kinds(table, names, allowed=("number", "boolean")))
    return _joined([column.take(table, np.arange(len(column.values))) for column in columns])


def find_feature_kinds(table: Table, names: tuple[str, ...]) -> dict[str, str]:
    """Whether each feature column holds numbers, truth values or lists."""
    return check_kinds(table, names, allowed=("number", "boolean", "list"))


def check_kinds(table: Table, names: tuple[str, ...], *, allowed: tuple[str, ...]) -> dict[str, str]:
    """The kind of each column, which must be an allowed one."""
    kinds = find_kinds(table, names)
    bad = [name for name, kind in kinds.items() if kind not in allowed]
    if bad:
        row = first_unreadable_row(table, bad[0], kinds=allowed)
        label = "; name a column of classes with --label-column" if "list" in allowed else ""
        raise bad_cell(table, bad[0], row=row, wanted=f"a number: {_how_to_fix(*bad)}{label}")
    return kinds


def read_columns(table: Table, kinds: dict[str, str]) -> list[Column]:
    """The columns of these names, by their kinds."""
    numbers = read_numbers(table, tuple(name for name in kinds if kinds[name] != "list"), kinds=kinds)
    return [
        Column(name, *read_lists(table, name)) if kinds[name] == "list" else Column(name, numbers[name])
        for name in kinds
    ]


def _how_to_fix(*names: str) -> str:
    return f"fix the cell, or leave the column out with --ignore-columns {','.join(names)}"


def _joined(parts: list[Array]) -> Array | None:
    return np.concatenate(parts, axis=1) if parts else None


def feature_names(parts: dict[str, Array]) -> tuple[str, ...]:
    widths = {name: part.shape[1] for name, part in parts.items()}
    return tuple(name if width == 1 else f"{name}[{i}]" for name, width in widths.items() for i in range(width))
