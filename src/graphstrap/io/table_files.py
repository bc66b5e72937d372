"""Table: one or several CSV or Parquet files, in the order of their names, that DuckDB reads as one table."""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import shlex
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.database import fetch_one, one_line_errors, quote_name, quote_text
from graphstrap.io.files import check_readable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


# How a CSV file is written: its delimiter, its header and the lines before it.
#
# DuckDB can guess this too, but it guesses from a sample: one short row turns a comma into a bar, and a quote that
# first appears late is not seen. The rules here look at the first line only, so that a file always reads the same way:
#
# - quotes are double quotes; blank lines, and lines with # at the top of the file, are skipped;
# - the delimiter is the one of comma, tab, semicolon and bar that the first line has most of (in .tsv a tab; where it
# has none of them, in a file that is not called .csv, a space); - the first line is the header unless its first cell is
# a number.


_GZIP_MAGIC = b"\x1f\x8b"
_NUM_BYTES_LOOKED_AT = 1 << 16


@dataclass(frozen=True)
class Dialect:
    """What DuckDB has to be told to read a CSV file."""

    delimiter: str
    has_header: bool
    num_lines_skipped: int
    names: tuple[str, ...]
    is_first_nameless: bool = False  # though others have a name: the index of a pandas table

    def arguments(self) -> str:
        """The arguments of DuckDB's read_csv. Every column is read as text: `007` stays `007`."""
        columns = ", ".join(f"{quote_text(name)}: 'VARCHAR'" for name in self.names)
        return (
            f"auto_detect = false, delim = {quote_text(self.delimiter)}, quote = '\"', escape = '\"', "
            f"header = {str(self.has_header).lower()}, skip = {self.num_lines_skipped}, "
            f"columns = {{{columns}}}, hive_partitioning = false"
        )


def find_dialect(path: str) -> Dialect:
    """Look at the first lines of a CSV file, compressed or not."""
    try:
        with _open_bytes(path) as file:
            if b"\x00" in file.read(_NUM_BYTES_LOOKED_AT):
                raise InputError(f"{path} is not a table: it holds binary data, not CSV or Parquet")
            if isinstance(file, gzip.GzipFile):
                _check_whole(file)
            file.seek(0)
            with io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as text:
                return _look_at(text, path)
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _open_bytes(path: str) -> gzip.GzipFile | io.BufferedReader:
    with open(path, "rb") as file:
        is_compressed = file.read(2) == _GZIP_MAGIC
    return gzip.open(path, "rb") if is_compressed else open(path, "rb")


def _check_whole(file: gzip.GzipFile) -> None:
    """Read a compressed file to its end, which raises if it is cut short: DuckDB 1.4 would read the rest silently."""
    while file.read(1 << 20):
        pass


def _look_at(text: io.TextIOWrapper, path: str) -> Dialect:
    for num_lines_skipped, line in enumerate(text):
        if line.strip() and not line.startswith("#"):
            delimiter = _find_delimiter(line, path)
            cells = next(csv.reader(_chained(line, text), delimiter=delimiter))
            has_header = not _is_number(cells[0])
            names = _name_columns(cells if has_header else [""] * len(cells), path)
            return Dialect(delimiter, has_header, num_lines_skipped, names, has_header and not cells[0].strip())
    raise InputError(f"{path} is not a table: the file is empty")


def _chained(line: str, rest: Iterator[str]) -> Iterator[str]:
    yield line
    yield from rest


def _find_delimiter(line: str, path: str) -> str:
    name = path.lower().removesuffix(".gz")
    if name.endswith(".tsv"):
        return "\t"
    outside_quotes = "".join(line.split('"')[::2])
    best = max(",\t;|", key=outside_quotes.count)
    if best in outside_quotes:
        return best
    return " " if " " in outside_quotes.strip() and not name.endswith(".csv") else ","


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _name_columns(cells: list[str], path: str) -> tuple[str, ...]:
    """The header's names; a column without one is called by its place, as DuckDB does: column0, column1."""
    names = [cell.strip() or f"column{i}" for i, cell in enumerate(cells)]
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InputError(f"{path} has two columns called {name!r}: rename one of them")
        seen.add(name.lower())
    return tuple(names)


_CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET_ENDINGS = (".parquet", ".pq")
_PARQUET_MAGIC = b"PAR1"
_PARQUET_ARGUMENTS = "union_by_name = true, hive_partitioning = false, binary_as_string = true"
_MOST_NAMES_SHOWN = 20
_LONGEST_NAME = 1000
_PANDAS_INDEX = ("__index_level_0__", "Unnamed: 0")


def is_called_as_a_table(name: str) -> bool:
    """Whether a file of this name is read as a table."""
    return name.lower().endswith(_CSV_ENDINGS + _PARQUET_ENDINGS)


@dataclass(frozen=True, eq=False)
class Table:
    """An open table: `columns` maps each column's name to its DuckDB type. Nothing else is read until asked for."""

    connection: DuckDBPyConnection = field(repr=False)
    name: str  # what the user wrote: a path or a glob
    paths: tuple[str, ...]
    dialect: Dialect | None  # of a CSV table; None for Parquet
    columns: dict[str, str]
    ignored: tuple[str, ...]  # columns that the options leave out, of this table or another
    named: tuple[str, ...]  # columns that the options name for a part

    @property
    def is_csv(self) -> bool:
        return self.dialect is not None

    @property
    def index(self) -> str | None:
        """The column that pandas writes for a table's index, where that has no name."""
        if self.dialect is not None and self.dialect.is_first_nameless:
            return self.dialect.names[0]
        return next((name for name in self.columns if name in _PANDAS_INDEX), None)

    @property
    def scan(self) -> str:
        """The table as something to select from in SQL."""
        return _scan(self.paths, self.dialect)

    def execute(self, query: str) -> None:
        """Run a statement that reads this table."""
        with one_line_errors(self.name):
            self.connection.execute(query)

    def fetch(self, expressions: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
        """Evaluate SQL expressions over the rows, in order. Where there are NULLs the array is a masked one."""
        selection = ", ".join(f"{expression} AS {quote_name(name)}" for name, expression in expressions.items())
        with one_line_errors(self.name):
            arrays: dict[str, Any] = self.connection.execute(f"SELECT {selection} FROM {self.scan}").fetchnumpy()
        return arrays

    def aggregate(self, *expressions: str) -> tuple[Any, ...]:
        """Evaluate SQL aggregates over all rows."""
        with one_line_errors(self.name):
            return fetch_one(self.connection, f"SELECT {', '.join(expressions)} FROM {self.scan}")

    def first_row(self, condition: str) -> int:
        """The first row, counted from 0, where a SQL condition holds; 0 if there is none."""
        hits = f"SELECT row_number() OVER () - 1 AS row, {condition} AS hit FROM {self.scan}"
        with one_line_errors(self.name):
            return int(fetch_one(self.connection, f"SELECT coalesce(min(row), 0) FROM ({hits}) WHERE hit")[0])

    def cell(self, row: int, name: str) -> str:
        """One cell as it stands in the file, shortened, for a message."""
        query = f"SELECT CAST({quote_name(name)} AS VARCHAR) FROM {self.scan} LIMIT 1 OFFSET {row}"
        text = fetch_one(self.connection, query)[0]
        if text is None:
            return "empty"
        return repr(text if len(text) <= 40 else text[:37] + "...")

    def place(self, row: int) -> str:
        """A row, counted from 0 over all files, in words: its number among its file's data rows, from 1."""
        for path in self.paths[:-1]:
            num_rows = int(fetch_one(self.connection, f"SELECT count(*) FROM {_scan((path,), self.dialect)}")[0])
            if row < num_rows:
                return f"row {row + 1} of {path}"
            row -= num_rows
        return f"row {row + 1} of {self.paths[-1]}"

    def how_to_leave_out(self, *names: str) -> str:
        """What to write so that columns are not read: an option to paste, with what is left out already in it."""
        some = "the column" if len(names) == 1 else "the columns"
        if {name.lower() for name in names} & {name.lower() for name in self.named}:
            return f"leave {some} {', '.join(names)} out of the option that names {'it' if len(names) == 1 else 'them'}"
        return f"leave {some} out with --ignore-columns {shlex.quote(','.join((*self.ignored, *names)))}"

    def names_in_words(self) -> str:
        shown = list(self.columns)[:_MOST_NAMES_SHOWN]
        num_hidden = len(self.columns) - len(shown)
        return ", ".join(shown) + (f" and {num_hidden} more" if num_hidden else "")


@dataclass(frozen=True, eq=False)
class Rows(Table):
    """Some successive rows of a table that was copied into the database: as a table of its own."""

    parent: Table
    copy: str  # the name of the table in the database
    begin: int
    end: int

    @property
    def scan(self) -> str:
        return f"(SELECT * FROM {self.copy} WHERE rowid >= {self.begin} AND rowid < {self.end})"

    def cell(self, row: int, name: str) -> str:
        return self.parent.cell(self.begin + row, name)

    def place(self, row: int) -> str:
        return self.parent.place(self.begin + row)


@dataclass(frozen=True, eq=False)
class Copy:
    """A table in the database, of the columns that are needed: read once from its files, then in parts of any size."""

    table: Table
    name: str
    num_rows: int

    @classmethod
    def of(cls, table: Table, name: str, columns: tuple[str, ...]) -> Copy:
        if any(column.lower() == "rowid" for column in columns):
            raise InputError(f"{table.name} has a column called 'rowid', which DuckDB keeps for itself: rename it")
        chosen = ", ".join(quote_name(column) for column in columns)
        table.execute(f"CREATE TABLE {name} AS SELECT {chosen} FROM {table.scan}")
        return cls(table, name, int(fetch_one(table.connection, f"SELECT count(*) FROM {name}")[0]))

    @property
    def whole(self) -> Rows:
        return self.rows(0, self.num_rows)

    def rows(self, begin: int, end: int) -> Rows:
        t = self.table
        of_table = (t.connection, t.name, t.paths, t.dialect, t.columns, t.ignored, t.named)
        return Rows(*of_table, t, self.name, begin, end)

    def parts(self, step: int) -> Iterator[Rows]:
        for begin in range(0, self.num_rows, step):
            yield self.rows(begin, min(self.num_rows, begin + step))


def open_table(
    connection: DuckDBPyConnection,
    name: str | os.PathLike[str],
    *,
    ignored: tuple[str, ...] = (),
    named: tuple[str, ...] = (),
) -> Table:
    """Open a file, or all files that a glob matches. Columns that are ignored or named matter for messages only."""
    if not isinstance(name, str | os.PathLike):
        raise InputError(
            f"a table is the path of a CSV or Parquet file, got a {type(name).__name__}: write it to a file first, "
            "as a pandas DataFrame does with to_csv(path, index=False)"
        )
    name = os.fspath(name)
    paths = _expand(name)
    kinds = {_is_parquet(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(f"{name} matches both CSV and Parquet files: give files of one kind")
    dialect, columns = _look_at_parquet(connection, paths) if kinds == {True} else _look_at_csv(paths)
    longest = max(map(len, columns), default=0)
    if longest > _LONGEST_NAME:  # an error that names it would be as long
        raise InputError(f"{name} has a column with a name of {longest:,} characters: is its first line a header?")
    return Table(connection, name, paths, dialect, columns, ignored, named)


def _look_at_csv(paths: tuple[str, ...]) -> tuple[Dialect | None, dict[str, str]]:
    dialects = [find_dialect(path) for path in paths]
    for path, dialect in zip(paths, dialects, strict=True):
        _check_same_columns((paths[0], dialects[0].names), (path, dialect.names))
        if dialect != dialects[0]:
            raise InputError(f"{path} and {paths[0]} differ in delimiter or header lines: write both the same way")
    return dialects[0], dict.fromkeys(dialects[0].names, "VARCHAR")


def _look_at_parquet(connection: DuckDBPyConnection, paths: tuple[str, ...]) -> tuple[Dialect | None, dict[str, str]]:
    columns = [_describe(connection, (path,)) for path in paths]
    for path, others in zip(paths, columns, strict=True):
        _check_same_columns((paths[0], tuple(sorted(columns[0]))), (path, tuple(sorted(others))))
    return None, columns[0] if len(paths) == 1 else _describe(connection, paths)


def _describe(connection: DuckDBPyConnection, paths: tuple[str, ...]) -> dict[str, str]:
    with one_line_errors(paths[0]):
        rows = connection.execute(f"DESCRIBE SELECT * FROM {_scan(paths, None)}").fetchall()
    return {str(row[0]): str(row[1]).upper() for row in rows}


def _scan(paths: tuple[str, ...], dialect: Dialect | None) -> str:
    """The DuckDB function that reads files. Paths are escaped twice: as globs, and as SQL."""
    files = "[" + ", ".join(quote_text(glob.escape(path)) for path in paths) + "]"
    return (
        f"read_parquet({files}, {_PARQUET_ARGUMENTS})"
        if dialect is None
        else f"read_csv({files}, {dialect.arguments()})"
    )


def _check_same_columns(first: tuple[str, tuple[str, ...]], other: tuple[str, tuple[str, ...]]) -> None:
    if first[1] != other[1]:
        odd = sorted(set(first[1]) ^ set(other[1]))
        what = f"only one of them has {odd[0]!r}" if odd else "their order differs"
        raise InputError(f"{first[0]} and {other[0]} do not have the same columns: {what}")


def _expand(name: str) -> tuple[str, ...]:
    """The files that a path or a glob stands for, sorted. A file that is there under that very name comes first."""
    if os.path.isdir(name):
        example = os.path.join(name, "*.parquet")
        raise InputError(
            f"{name} is a folder, not a table: name a file in it, or several with a glob such as {example}"
        )
    if os.path.exists(name):
        paths = [name]
    elif glob.has_magic(name):
        paths = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
        if not paths:
            raise InputError(f"no file matches {name}: check the folder and the pattern")
    else:
        raise InputError(f"{name} does not exist: check the path")
    for path in paths:
        check_readable(path)
    return tuple(paths)


def _is_parquet(path: str) -> bool:
    """By the ending, else by the content. A Parquet file must be whole: it begins and ends with its mark."""
    lower = path.lower()
    if lower.endswith(_CSV_ENDINGS):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(4)
            file.seek(max(0, os.path.getsize(path) - 4))
            tail = file.read(4)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not lower.endswith(_PARQUET_ENDINGS) and head != _PARQUET_MAGIC:
        return False
    if head != _PARQUET_MAGIC or tail != _PARQUET_MAGIC:
        why = (
            "the file is empty" if not head else "it is cut short" if head == _PARQUET_MAGIC else "it is something else"
        )
        raise InputError(f"{path} is not a whole Parquet file ({why}): write or download it again")
    return True
