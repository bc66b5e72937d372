"""Numeric columns as matrices: node features, one block per node type, and the numeric columns of edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io._files import Table
from graphstrap.io._values import Array, bad_cell, find_kinds, first_unreadable_row, read_lists, read_numbers

_MOST_CLASSES = 50


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

    def is_whole(self, rows: Array) -> Array:
        """(R,) whether the cell of each of these rows is there and finite."""
        is_finite = np.isfinite(self.values)
        if self.lengths is None:
            return np.asarray(is_finite[rows])
        row_of_value = np.repeat(np.arange(len(self.lengths)), self.lengths)
        num_bad = np.bincount(row_of_value[~is_finite], minlength=len(self.lengths))
        return np.asarray((self.lengths[rows] > 0) & (num_bad[rows] == 0))

    def looks_like_labels(self) -> bool:
        """Whether some rows have one of a few whole numbers, and others nothing."""
        known = self.values[~np.isnan(self.values)]
        if self.lengths is not None or len(known) == len(self.values):
            return False
        classes = np.unique(known)
        are_whole = bool(np.isfinite(known).all()) and bool((classes == np.floor(classes)).all())
        return are_whole and 2 <= len(classes) <= min(_MOST_CLASSES, len(known) // 2)

    def take(self, table: Table, rows: Array) -> Array:
        """The values of some rows, (R, W): as many in each row. `check_gaps` comes first."""
        if self.lengths is None:
            return np.asarray(self.values[rows][:, None])
        width = self._find_width(table, rows, self.lengths)
        starts = np.cumsum(self.lengths) - self.lengths
        return np.asarray(self.values[starts[rows][:, None] + np.arange(width)])

    def _find_width(self, table: Table, rows: Array, lengths: Array) -> int:
        width = int(lengths[rows[0]])
        is_good = lengths[rows] == width
        if is_good.all():
            return width
        row = int(rows[~is_good][0])
        first = table.place(int(rows[0]))
        raise InputError(
            f"column {self.name!r} is a list of {lengths[row]} in {table.place(row)} but of {width} in {first}: "
            f"make all lists of equal length"
        )


def check_gaps(table: Table, used: list[tuple[Column, Array]], *, are_features: bool = True) -> None:
    """Every column must be whole in the rows that it is used for: those that are not are named all at once."""
    gaps: dict[str, tuple[Column, int]] = {}
    for column, rows in used:
        is_whole = column.is_whole(rows)
        if not is_whole.all():
            gaps.setdefault(column.name, (column, int(rows[~is_whole][0])))
    if not gaps:
        return
    first, row = next(iter(gaps.values()))
    wanted = "a finite number" if first.lengths is None else "a list of finite numbers"
    if len(gaps) > 1:
        wanted += f" (such cells are in {len(gaps)} columns)"
    label = ""
    if are_features and (name := next((name for name, (one, _) in gaps.items() if one.looks_like_labels()), None)):
        label = f"; if {name!r} is what to predict, name it with --label-column"
    raise bad_cell(table, first.name, row=row, wanted=f"{wanted}: {_how_to_fix(table, *gaps)}{label}")


def read_feature_blocks(
    table: Table, names: tuple[str, ...], *, rows_by_type: list[Array]
) -> tuple[list[Array | None], tuple[str, ...] | None]:
    """One float32 matrix (N_t, F_t) per node type, or None; and the names of the columns, where there is one type.

    With several types, a column that is empty for all nodes of a type is not part of that type's block.
    """
    columns = read_columns(table, find_feature_kinds(table, names))
    is_only_type = len(rows_by_type) == 1
    used = [[column for column in columns if is_only_type or not column.is_empty(rows)] for rows in rows_by_type]
    check_gaps(table, [(column, rows) for some, rows in zip(used, rows_by_type, strict=True) for column in some])
    if is_only_type:
        parts = {column.name: column.take(table, rows_by_type[0]) for column in columns}
        return [_joined(list(parts.values()))], feature_names(parts) or None
    return [
        _joined([column.take(table, rows) for column in some]) for some, rows in zip(used, rows_by_type, strict=True)
    ], None


def read_matrix(table: Table, names: tuple[str, ...], *, kinds: dict[str, str] | None = None) -> Array | None:
    """float32 (N, K) of K numeric columns, all finite; None without columns."""
    columns = read_columns(table, kinds or check_kinds(table, names, allowed=("number", "boolean")))
    used = [(column, np.arange(len(column.values))) for column in columns]
    check_gaps(table, used, are_features=False)
    return _joined([column.take(table, rows) for column, rows in used])


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
        raise bad_cell(table, bad[0], row=row, wanted=f"a number: {_how_to_fix(table, *bad)}{label}")
    return kinds


def read_columns(table: Table, kinds: dict[str, str]) -> list[Column]:
    """The columns of these names, by their kinds."""
    numbers = read_numbers(table, tuple(name for name in kinds if kinds[name] != "list"), kinds=kinds)
    return [
        Column(name, *read_lists(table, name)) if kinds[name] == "list" else Column(name, numbers[name])
        for name in kinds
    ]


def _how_to_fix(table: Table, *names: str) -> str:
    return f"fix the cell, or {table.how_to_leave_out(*names)}"


def _joined(parts: list[Array]) -> Array | None:
    return np.concatenate(parts, axis=1) if parts else None


def feature_names(parts: dict[str, Array]) -> tuple[str, ...]:
    widths = {name: part.shape[1] for name, part in parts.items()}
    return tuple(name if width == 1 else f"{name}[{i}]" for name, width in widths.items() for i in range(width))
