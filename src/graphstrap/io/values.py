"""The columns of a table as NumPy arrays: node features, numbers, lists of numbers, times and names.

A Parquet column has a declared type. A CSV column is text, and is what all of its cells can be read as: DuckDB counts
them, so that one bad cell in row 50,000 is found and named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import compress

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.arrays import Array
from graphstrap.io.database import Table, quote_name

_INTEGER_TYPES = r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)"
_NUMBER_TYPES = rf"({_INTEGER_TYPES}|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN)"

# How a cell is read for each kind of column. One of a CSV file is text, and its column of the first kind that fits all.
_KINDS = ("number", "boolean", "list", "moment")
_READ_TEXT = {
    "number": "TRY_CAST({cell} AS DOUBLE)",
    "boolean": "CASE lower({cell}) WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 END",
    "list": "CASE WHEN trim({cell}) LIKE '[%]' THEN TRY_CAST({cell} AS DOUBLE[]) END",
    "moment": "TRY_CAST({cell} AS TIMESTAMP WITH TIME ZONE)",
    "integer": "CASE WHEN regexp_full_match(trim({cell}), '[+-]?[0-9]+') THEN TRY_CAST({cell} AS BIGINT) END",
}
_READ_TYPED = {
    "number": "TRY_CAST({cell} AS DOUBLE)",
    "list": "{cell}",
    "moment": "{cell}",
    "integer": "TRY_CAST({cell} AS BIGINT)",
}
_NUMBERS = ("number", "boolean")
_MOST_CLASSES = 50


def used_columns(table: Table, kinds: dict[str, str], code: str | None, num_types: int) -> list[list[str]]:
    """For each node type, by its code, the columns that are not empty for all of its nodes; where there is one, all."""
    if code is None or num_types == 1 or not kinds:
        return [list(kinds)] * num_types
    cells = {name: _read_cell(table, name, kind) for name, kind in kinds.items()}
    has_value = [
        f"bool_or(len({cell}) > 0)" if kinds[name] == "list" else f"bool_or(NOT isnan(TRY_CAST({cell} AS FLOAT)))"
        for name, cell in cells.items()
    ]
    query = f"SELECT {code} AS code, {', '.join(has_value)} FROM {table.scan} GROUP BY ALL"
    used: dict[int, list[str]] = {
        number: list(compress(kinds, are_used)) for number, *are_used in table.connection.execute(query).fetchall()
    }
    return [used.get(number, []) for number in range(num_types)]


def take_columns(table: Table, used: list[list[Column]], rows_by_type: list[Array]) -> list[dict[str, Array]]:
    """For each node type, the values of the columns that it uses, which must be whole."""
    pairs = list(zip(used, rows_by_type, strict=True))
    check_gaps(table, [(column, rows) for columns, rows in pairs for column in columns])
    return [{column.name: column.take(table, rows) for column in columns} for columns, rows in pairs]


def feature_names(widths: dict[str, int]) -> tuple[str, ...]:
    """The name of each feature; those of a list are `name[0]`, `name[1]`, ..."""
    return tuple(name if width == 1 else f"{name}[{i}]" for name, width in widths.items() for i in range(width))


def read_matrix(table: Table, kinds: dict[str, str], *, are_features: bool = False) -> Array:
    """float32 (N, F) of all columns of these kinds, all finite."""
    columns = read_columns(table, kinds)
    rows = np.arange(len(columns[0].values if columns[0].lengths is None else columns[0].lengths))
    check_gaps(table, [(column, rows) for column in columns], are_features=are_features)
    return np.concatenate([column.take(table, rows) for column in columns], axis=1)


def read_times(table: Table, name: str, expression: str) -> Array:
    """Times (N,) by an expression that `time_expression` gave: int64 or float64."""
    times = table.fetch({"time": expression})["time"]
    check_cells(table, name, is_good=~np.ma.getmaskarray(times) & np.isfinite(np.ma.getdata(times)), wanted="a time")
    return np.asarray(times)


def time_expression(table: Table, name: str) -> str:
    """The SQL that makes a time of a cell: integers stay BIGINT, dates and timestamps become BIGINT seconds since 1970,
    other numbers DOUBLE."""
    kind = _find_kinds(table, (name,))[name]
    if kind == "moment":
        return f"CAST(floor(epoch({_read_cell(table, name, kind)})) AS BIGINT)"
    if kind == "number":
        return _read_cell(table, name, "integer" if _is_integer(table, name) else kind)
    row = _first_unreadable_row(table, name, kinds=("number", "moment"))
    raise bad_cell(table, name, row=row, wanted="a time: give a number, a date or a timestamp")


def _is_integer(table: Table, name: str) -> bool:
    if not table.is_csv:
        return re.fullmatch(_INTEGER_TYPES, table.columns[name]) is not None
    num_cells, num_integers = _count_cells(table, (name,), kind="integer")[name]
    return num_cells == num_integers


def read_codes(table: Table, code: str) -> Array:
    """The codes by the SQL that `code_names` gave."""
    return np.asarray(table.fetch({"code": code})["code"])


def code_names(table: Table, name: str) -> tuple[tuple[str, ...], str]:
    """The distinct values as text, sorted (numbers as numbers), and the SQL that makes a cell's code of it."""
    text = f"CAST({quote_name(name)} AS VARCHAR)"
    text = f"CASE WHEN isnan(TRY_CAST({text} AS DOUBLE)) THEN NULL ELSE {text} END"  # as pandas writes an empty cell
    with_numbers = (
        f"SELECT text, TRY_CAST(text AS DOUBLE) AS number FROM (SELECT DISTINCT {text} AS text FROM {table.scan})"
    )
    in_order = "ORDER BY CASE WHEN (SELECT bool_and(number IS NOT NULL) FROM names) THEN number END, text"
    table.execute(f"CREATE OR REPLACE TEMP TABLE names AS SELECT * FROM ({with_numbers}) WHERE text IS NOT NULL")
    values = tuple(str(row[0]) for row in table.connection.execute(f"SELECT text FROM names {in_order}").fetchall())
    if not values:
        return (), "CAST(-1 AS BIGINT)"
    codes = quote_name(f"codes of {name} in {table.name}")
    table.connection.execute(f"CREATE TYPE {codes} AS ENUM (SELECT text FROM names {in_order})")
    return values, f"coalesce(CAST(enum_code(CAST({text} AS {codes})) AS BIGINT), -1)"


@dataclass(frozen=True, eq=False)
class Column:
    """A column of numbers, or of lists of numbers. Row i has `values[starts[i]:starts[i] + lengths[i]]`."""

    name: str
    values: Array  # (sum of lengths,) float32, NaN where a cell is empty or does not fit into float32
    lengths: Array | None = None  # (N,) 0 for an empty list; None: one value a row

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
        lengths = self.lengths[rows]
        width = int(lengths[0])
        is_bad = lengths != width
        if is_bad.any():
            row, first = int(rows[is_bad][0]), table.place(int(rows[0]))
            raise InputError(
                f"column {self.name!r} is a list of {self.lengths[row]} in {table.place(row)} but of {width} in "
                f"{first}: make all lists of equal length"
            )
        starts = np.cumsum(self.lengths) - self.lengths
        return np.asarray(self.values[starts[rows][:, None] + np.arange(width)])


def read_columns(table: Table, kinds: dict[str, str]) -> list[Column]:
    """The columns of these names, by their kinds."""
    numbers = {name: _read_cell(table, name, kind) for name, kind in kinds.items() if kind != "list"}
    expressions = {f"c{i}": f"TRY_CAST({number} AS FLOAT)" for i, number in enumerate(numbers.values())}
    fetched = dict(zip(numbers, table.fetch(expressions).values(), strict=True)) if numbers else {}
    return [
        _read_list(table, name) if kind == "list" else Column(name, np.ma.filled(fetched.pop(name), np.nan))
        for name, kind in kinds.items()
    ]


def _read_list(table: Table, name: str) -> Column:
    lists = _read_cell(table, name, "list")
    lengths = table.fetch({"length": f"CAST(coalesce(len({lists}), 0) AS BIGINT)"})["length"]
    values = table.fetch({"value": f"TRY_CAST(unnest({lists}) AS FLOAT)"})["value"]
    return Column(name, np.ma.filled(values, np.nan), np.asarray(lengths))


def _read_cell(table: Table, name: str, kind: str) -> str:
    """The SQL that makes a value of a cell: a DOUBLE, a BIGINT for "integer", a list or a moment."""
    return (_READ_TEXT if table.is_csv else _READ_TYPED)[kind].format(cell=quote_name(name))


def find_feature_kinds(table: Table, names: tuple[str, ...]) -> dict[str, str]:
    """Whether each feature column holds numbers, truth values or lists."""
    return check_kinds(table, names, allowed=(*_NUMBERS, "list"))


def check_kinds(table: Table, names: tuple[str, ...], *, allowed: tuple[str, ...] = _NUMBERS) -> dict[str, str]:
    """The kind of each column, which must be an allowed one."""
    kinds = _find_kinds(table, names)
    bad = [name for name, kind in kinds.items() if kind not in allowed]
    if bad:
        row = _first_unreadable_row(table, bad[0], kinds=allowed)
        label = "; name a column of classes with --label-column" if "list" in allowed else ""
        raise bad_cell(
            table, bad[0], row=row, wanted=f"a number: fix the cell, or {table.how_to_leave_out(*bad)}{label}"
        )
    return kinds


def _find_kinds(table: Table, names: tuple[str, ...]) -> dict[str, str]:
    """Whether each column is "number", "boolean", "list", "moment" (a date or a time of day) or "text"."""
    if not table.is_csv:
        return {name: _declared_kind(table.columns[name]) for name in names}
    kinds: dict[str, str] = {}
    for kind in _KINDS:
        counts = _count_cells(table, tuple(name for name in names if name not in kinds), kind=kind)
        kinds |= {name: kind for name, (num_cells, num_good) in counts.items() if num_good == num_cells}
    return {name: kinds.get(name, "text") for name in names}


def _declared_kind(declared: str) -> str:
    if re.fullmatch(_NUMBER_TYPES, declared):
        return "number"
    if re.fullmatch(rf"{_NUMBER_TYPES}\[\d*\]", declared):
        return "list"
    return "moment" if declared == "DATE" or declared.startswith("TIMESTAMP") else "text"


def _count_cells(table: Table, names: tuple[str, ...], *, kind: str) -> dict[str, tuple[int, int]]:
    """For each column: how many cells are not empty, and how many of these can be read as a kind."""
    if not names:
        return {}
    counts = [f"count({quote_name(name)}), count({_read_cell(table, name, kind)})" for name in names]
    values = iter(table.execute(f"SELECT {', '.join(counts)} FROM {table.scan}"))
    return dict(zip(names, zip(values, values, strict=True), strict=True))


def _first_unreadable_row(table: Table, name: str, *, kinds: tuple[str, ...]) -> int:
    """The first row, from 0, that keeps a column from being what most of its cells are."""
    is_there = f"{quote_name(name)} IS NOT NULL"
    if not table.is_csv:
        return table.first_row(is_there)
    best = max(kinds, key=lambda kind: _count_cells(table, (name,), kind=kind)[name][1])
    return table.first_row(f"{is_there} AND ({_read_cell(table, name, best)}) IS NULL")


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
    fix = f"fix the cell, or {table.how_to_leave_out(*gaps)}{label}"
    raise bad_cell(table, first.name, row=row, wanted=f"{wanted}: {fix}")


def check_cells(table: Table, name: str, *, is_good: Array, wanted: str) -> None:
    """Every cell must be good; otherwise name the first that is not."""
    if not is_good.all():
        raise bad_cell(table, name, row=int(np.flatnonzero(~is_good)[0]), wanted=f"{wanted}: fix the cell")


def bad_cell(table: Table, name: str, *, row: int, wanted: str) -> InputError:
    return InputError(f"column {name!r} is {table.cell(row, name)} in {table.place(row)}, not {wanted}")
