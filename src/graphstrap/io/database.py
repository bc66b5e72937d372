"""DuckDB: a connection, and CSV and Parquet files as tables that it reads.

DuckDB is imported inside the functions, because the package must import without it. It works in memory, cannot fetch
extensions, and its errors come out as an InputError of one sentence.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import re
import shlex
import signal
import socket
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.files import check_readable, os_errors
from graphstrap.io.registry import import_extra

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    Connection: TypeAlias = DuckDBPyConnection
else:
    Connection = Any


@contextmanager
def connect(
    path: str = ":memory:", *, memory_bytes: int | None = None, threads: int | None = None
) -> Iterator[Connection]:
    """An empty database that cannot fetch extensions, and reads times as UTC.

    Args:
        path: a file for tables larger than memory; what is spilled goes beside it.
        memory_bytes, threads: limits; DuckDB's own without them.
    """
    duckdb = import_extra("duckdb", "tables need DuckDB, which is not installed: pip install duckdb")
    spill_folder = os.path.join(tempfile.gettempdir(), f"graphstrap-{os.getpid()}")
    settings: dict[str, Any] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": spill_folder if path == ":memory:" else f"{path}.spill",
        "memory_limit": None if memory_bytes is None else f"{memory_bytes // 10**6}MB",
        "threads": threads,
    }
    connection = duckdb.connect(path, config={name: value for name, value in settings.items() if value is not None})
    try:
        connection.execute("SET TimeZone = 'UTC'")
        with _stopped_by_signals(connection):
            yield connection
    finally:
        connection.close()


@contextmanager
def _stopped_by_signals(connection: Connection) -> Iterator[None]:
    """Ctrl-C and SIGTERM end a query at once: by itself DuckDB looks for them now and then, up to ten seconds later.

    Python's own handler only runs when the query has ended, so a thread waits for the byte that a signal leaves.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    if before != -1:  # a notebook's event loop waits for these bytes
        signal.set_wakeup_fd(before)

    def watch() -> None:
        while number := reader.recv(1):
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                connection.interrupt()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)
        writer.close()
        watcher.join()
        reader.close()


@contextmanager
def one_line_errors(path: str, action: str = "read") -> Iterator[None]:
    """Turn what DuckDB says about a file into an InputError of one sentence."""
    import duckdb

    try:
        yield
    except (RuntimeError, duckdb.Error) as error:
        said = isinstance(error, RuntimeError) and "interrupted" in str(error).lower()
        if said or isinstance(error, duckdb.InterruptException):  # Ctrl-C, which DuckDB notices by itself
            raise KeyboardInterrupt from None
        raise InputError(_explain(str(error), path=path, action=action)) from error


def execute_long(connection: Connection, query: str, stage: str, report: Callable[[str, float], None]) -> None:
    """Run a statement that takes long, and report how far it is about twice a second."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(0.5):
            report(stage, min(1.0, max(0.0, connection.query_progress() / 100.0)))

    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    report(stage, 0.0)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        connection.execute(query)
    finally:
        finished.set()
        watcher.join()
    report(stage, 1.0)


def quote_name(name: str) -> str:
    """A column or table name in SQL, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A string in SQL, whatever characters it has."""
    return "'" + text.replace("'", "''") + "'"


def fetch_one(connection: Connection, query: str) -> tuple[Any, ...]:
    """The only row of a query that has one."""
    row = connection.execute(query).fetchone()
    assert row is not None
    return tuple(row)


def _explain(message: str, *, path: str, action: str) -> str:
    line = re.search(r"CSV Error on Line: (\d+)", message)
    if line is None and "reached an invalid state" in message:
        return f"cannot read {path}: its lines end in two ways, as in Windows and as in Unix: save it with one of them"
    if line is None:
        fix = " (if the file is damaged, write or download it again)" if action == "read" else ""
        lines = [line for line in message.splitlines() if line.strip() and "pending query result" not in line]
        first = re.sub(r"^((Error|[\w -]+ Error): )+", "", lines[0] if lines else "unknown error").strip()
        return f"cannot {action} {path}: {first}{fix}"
    file = re.search(r"^ *file = (.+)$", message, re.MULTILINE)
    place = f"{file[1].strip() if file else path}, line {line[1]}"
    cells = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if cells is not None:
        return f"{place} has {cells[2]} where the first line has {cells[1]} cells: fix that line"
    if "unicode" in message:
        return f"{place}: not UTF-8 text: save the file as UTF-8"
    if "unterminated quote" in message:
        return f"{place}: a quote opens and never closes: fix that line"
    return f"{place}: not a row of a CSV table: fix that line"


# Tables: one or several CSV or Parquet files, in the order of their names, that DuckDB reads as one.

_CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET_ENDINGS = (".parquet", ".pq")
_PARQUET_MAGIC = b"PAR1"
_MOST_NAMES_SHOWN = 20
_LONGEST_NAME = 1000
_PANDAS_INDEX = ("__index_level_0__", "Unnamed: 0")


def is_called_as_a_table(name: str) -> bool:
    return name.lower().endswith(_CSV_ENDINGS + _PARQUET_ENDINGS)


@dataclass(frozen=True, eq=False)
class Table:
    """An open table: `columns` maps each column's name to its DuckDB type. Nothing else is read until asked for."""

    connection: Connection = field(repr=False)
    name: str  # what the user wrote: a path or a glob
    paths: tuple[str, ...]
    dialect: Dialect | None  # of a CSV table; None for Parquet
    columns: dict[str, str]
    scan: str  # the table as something to select from in SQL
    ignored: tuple[str, ...]  # columns that the options leave out, of this table or another
    named: tuple[str, ...]  # columns that the options give a role
    row: ClassVar[str] = "row_number() OVER () - 1"  # the number of a row in SQL, from 0

    @property
    def is_csv(self) -> bool:
        return self.dialect is not None

    @property
    def index(self) -> str | None:
        """The column that pandas writes for a table's index, where that has no name."""
        if self.dialect is not None and self.dialect.is_first_nameless:
            return self.dialect.names[0]
        return next((name for name in self.columns if name in _PANDAS_INDEX), None)

    def execute(self, query: str) -> tuple[Any, ...]:
        """Run a statement that reads this table; the first row of what it finds."""
        with one_line_errors(self.name):
            return self.connection.execute(query).fetchone() or ()

    def fetch(self, expressions: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
        """Evaluate SQL expressions over all rows, in order. Where there are NULLs the array is a masked one."""
        selection = ", ".join(f"{expression} AS {quote_name(name)}" for name, expression in expressions.items())
        with one_line_errors(self.name):
            return dict(self.connection.execute(f"SELECT {selection} FROM {self.scan}").fetchnumpy())

    def first_row(self, condition: str) -> int:
        """The first row, counted from 0, where a SQL condition holds; 0 if there is none."""
        hits = f"SELECT row_number() OVER () - 1 AS row, {condition} AS hit FROM {self.scan}"
        return int(self.execute(f"SELECT coalesce(min(row), 0) FROM ({hits}) WHERE hit")[0])

    def cell(self, row: int, name: str) -> str:
        """One cell as it stands in the file, shortened, for a message."""
        query = f"SELECT CAST({quote_name(name)} AS VARCHAR) FROM {self.scan} LIMIT 1 OFFSET {row}"
        text = fetch_one(self.connection, query)[0]
        return "empty" if text is None else repr(text if len(text) <= 40 else text[:37] + "...")

    def place(self, row: int) -> str:
        """A row, counted from 0 over all files, in words: its number among its file's data rows, from 1."""
        for path in self.paths[:-1]:
            num_rows = int(fetch_one(self.connection, f"SELECT count(*) FROM {_scan((path,), self.dialect)}")[0])
            if row < num_rows:
                return f"row {row + 1} of {path}"
            row -= num_rows
        return f"row {row + 1} of {self.paths[-1]}"

    def slices(self, step: int, num_rows: int) -> Iterator[tuple[Table, int, int]]:
        """Its rows, some at a time, with the first and the end: files are read through at once."""
        yield self, 0, num_rows

    def how_to_leave_out(self, *names: str) -> str:
        """What to write so that columns are not read: an option to paste, with what is left out already in it."""
        some = "the column" if len(names) == 1 else "the columns"
        if {name.lower() for name in names} & {name.lower() for name in self.named}:
            return f"leave {some} {', '.join(names)} out of the option that names {'it' if len(names) == 1 else 'them'}"
        return f"leave {some} out with --ignore-columns {shlex.quote(','.join((*self.ignored, *names)))}"

    def names_in_words(self) -> str:
        num_hidden = len(self.columns) - _MOST_NAMES_SHOWN
        return ", ".join(list(self.columns)[:_MOST_NAMES_SHOWN]) + (f" and {num_hidden} more" if num_hidden > 0 else "")


@dataclass(frozen=True, eq=False)
class TableCopy(Table):
    """Rows of a table whose columns were copied into the database: read once from the files, then in slices."""

    original: Table
    copied: str  # the table in the database
    begin: int = 0
    row: ClassVar[str] = "rowid"

    @classmethod
    def of(cls, table: Table, name: str, columns: tuple[str, ...]) -> TableCopy:
        """Copy these columns of all rows to a table of that name."""
        if any(column.lower() == "rowid" for column in columns):
            raise InputError(f"{table.name} has a column called 'rowid', which DuckDB keeps for itself: rename it")
        chosen = ", ".join(quote_name(column) for column in columns)
        table.execute(f"CREATE TABLE {name} AS SELECT {chosen} FROM {table.scan}")
        return cls(**(vars(table) | {"scan": name}), original=table, copied=name)

    def cell(self, row: int, name: str) -> str:
        return self.original.cell(self.begin + row, name)

    def place(self, row: int) -> str:
        return self.original.place(self.begin + row)

    def slices(self, step: int, num_rows: int) -> Iterator[tuple[Table, int, int]]:
        for begin in range(0, max(1, num_rows), step):
            end = min(num_rows, begin + step)
            scan = f"(SELECT * FROM {self.copied} WHERE rowid >= {begin} AND rowid < {end})"
            yield replace(self, scan=scan, begin=begin), begin, end


def open_table(
    connection: Connection,
    name: str | os.PathLike[str],
    *,
    ignored: tuple[str, ...] = (),
    named: tuple[str, ...] = (),
    has_header: bool | None = None,
) -> Table:
    """Open a file, or all files that a glob matches. What is ignored or named matters for messages only."""
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
    dialect, columns = _describe_parquet(connection, paths) if kinds == {True} else _describe_csv(paths, has_header)
    longest = max(map(len, columns), default=0)
    if longest > _LONGEST_NAME:  # an error that names it would be as long
        raise InputError(f"{name} has a column with a name of {longest:,} characters: is its first line a header?")
    return Table(connection, name, paths, dialect, columns, _scan(paths, dialect), ignored, named)


def _expand(name: str) -> tuple[str, ...]:
    """The files that a path or a glob stands for, sorted. A file that is there under that very name comes first."""
    if os.path.isdir(name):
        example = os.path.join(name, "*.parquet")
        raise InputError(
            f"{name} is a folder, not a table: name a file in it, or several with a glob such as {example}"
        )
    if not os.path.exists(name) and not glob.has_magic(name):
        raise InputError(f"{name} does not exist: check the path")
    found = [name] if os.path.exists(name) else sorted(filter(os.path.isfile, glob.glob(name, recursive=True)))
    if not found:
        raise InputError(f"no file matches {name}: check the folder and the pattern")
    for path in found:
        check_readable(path)
    return tuple(found)


def _is_parquet(path: str) -> bool:
    """By the ending, else by the content. A Parquet file must be whole: it begins and ends with its mark."""
    lower = path.lower()
    if lower.endswith(_CSV_ENDINGS):
        return False
    with os_errors(f"cannot read {path}"), open(path, "rb") as file:
        head = file.read(4)
        file.seek(max(0, os.path.getsize(path) - 4))
        tail = file.read(4)
    if head == tail == _PARQUET_MAGIC:
        return True
    if not lower.endswith(_PARQUET_ENDINGS) and head != _PARQUET_MAGIC:
        return False
    why = "it is cut short" if head == _PARQUET_MAGIC else "it is something else" if head else "the file is empty"
    raise InputError(f"{path} is not a whole Parquet file ({why}): write or download it again")


def _describe_csv(paths: tuple[str, ...], has_header: bool | None) -> tuple[Dialect, dict[str, str]]:
    dialects = {path: find_dialect(path, has_header) for path in paths}
    _check_same_columns({path: dialect.names for path, dialect in dialects.items()})
    first = dialects[paths[0]]
    for path, dialect in dialects.items():
        if dialect != first:
            raise InputError(
                f"{path} and {paths[0]} differ in delimiter or header: write both alike, or give --[no-]header"
            )
    return first, dict.fromkeys(first.names, "VARCHAR")


def _describe_parquet(connection: Connection, paths: tuple[str, ...]) -> tuple[None, dict[str, str]]:
    def describe(some: tuple[str, ...]) -> dict[str, str]:
        with one_line_errors(some[0]):
            columns = connection.execute(f"DESCRIBE SELECT * FROM {_scan(some, None)}").fetchall()
        return {str(column[0]): str(column[1]).upper() for column in columns}

    _check_same_columns({path: tuple(sorted(describe((path,)))) for path in paths})
    return None, describe(paths)


def _check_same_columns(names_of: dict[str, tuple[str, ...]]) -> None:
    first, names = next(iter(names_of.items()))
    for path, others in names_of.items():
        if others != names:
            odd = sorted(set(names) ^ set(others))
            what = f"only one of them has {odd[0]!r}" if odd else "their order differs"
            raise InputError(f"{first} and {path} do not have the same columns: {what}")


def _scan(paths: tuple[str, ...], dialect: Dialect | None) -> str:
    """The DuckDB function that reads files. Paths are escaped twice: as globs, and as SQL."""
    files = "[" + ", ".join(quote_text(glob.escape(path)) for path in paths) + "]"
    if dialect is None:
        return f"read_parquet({files}, union_by_name = true, hive_partitioning = false, binary_as_string = true)"
    columns = ", ".join(f"{quote_text(name)}: 'VARCHAR'" for name in dialect.names)  # text: `007` stays `007`
    return (
        f"read_csv({files}, auto_detect = false, delim = {quote_text(dialect.delimiter)}, quote = '\"', escape = '\"', "
        f"header = {str(dialect.has_header).lower()}, skip = {dialect.num_lines_skipped}, "
        f"columns = {{{columns}}}, hive_partitioning = false)"
    )


# How a CSV file is written: its delimiter, its header and the lines before it.
#
# DuckDB can guess this too, but from a sample: one short row turns a comma into a bar, and a quote that first appears
# late is not seen. These rules are fixed, so that a file always reads the same way:
#
# - quotes are double quotes; blank lines, and lines with # at the top of the file, are skipped;
# - the delimiter is the one of comma, tab, semicolon and bar that the first line has most of (in .tsv a tab; where it
#   has none of them, in a file that is not called .csv, a space);
# - the first line is the header unless its first cell is a number, or one of its first two stands in those columns
#   again, as ids of nodes do and names of columns do not.

_GZIP_MAGIC = b"\x1f\x8b"
_CELLS_LOOKED_AT = 1 << 15


@dataclass(frozen=True)
class Dialect:
    """What DuckDB has to be told to read a CSV file."""

    delimiter: str
    has_header: bool
    num_lines_skipped: int
    names: tuple[str, ...]
    is_first_nameless: bool = False  # though others have a name: the index of a pandas table


def find_dialect(path: str, has_header: bool | None = None) -> Dialect:
    """Look at the first lines of a CSV file, compressed or not; None looks for a header, too."""
    try:
        with open(path, "rb") as raw, gzip.open(raw) if raw.peek(2)[:2] == _GZIP_MAGIC else raw as file:
            if b"\x00" in file.read(1 << 16):
                raise InputError(f"{path} is not a table: it holds binary data, not CSV or Parquet")
            while file is not raw and file.read(1 << 20):
                pass  # a compressed file that is cut short raises at its end: DuckDB 1.4 reads the rest silently
            file.seek(0)
            with io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as text:
                return _read_dialect(text, path, has_header)
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _read_dialect(text: io.TextIOWrapper, path: str, has_header: bool | None) -> Dialect:
    for num_lines_skipped, line in enumerate(text):
        if line.strip() and not line.startswith("#"):
            delimiter = _find_delimiter(line, path)
            rows = csv.reader(chain([line], text), delimiter=delimiter)
            cells = next(rows)
            if has_header is None:
                has_header = not _is_number(cells[0]) and not _stands_again(cells, rows)
            names = _name_columns(cells if has_header else [""] * len(cells), path)
            return Dialect(delimiter, has_header, num_lines_skipped, names, has_header and not cells[0].strip())
    raise InputError(f"{path} is not a table: the file is empty")


def _stands_again(cells: list[str], rows: Iterator[list[str]]) -> bool:
    """Whether one of the first two cells does in the rows below, other than by the whole line twice. A letter or two
    may well be a column and a node."""
    first = {cell for cell in cells[:2] if len(cell.strip()) > 2}
    with suppress(csv.Error):  # which DuckDB reports with its line
        return any(first & set(row[:2]) and row != cells for row in islice(rows, _CELLS_LOOKED_AT // len(cells)))
    return False


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
    names = tuple(cell.strip() or f"column{i}" for i, cell in enumerate(cells))
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InputError(f"{path} has two columns called {name!r}: rename one of them")
        seen.add(name.lower())
    return names
