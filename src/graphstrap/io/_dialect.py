"""How a CSV file is written: its delimiter, its header and the lines before it.

DuckDB can guess this too, but it guesses from a sample: one short row turns a comma into a bar, and a quote that first
appears late is not seen. The rules here look at the first line only, so that a file always reads the same way:

- quotes are double quotes; blank lines, and lines with # at the top of the file, are skipped;
- the delimiter is the one of comma, tab, semicolon and bar that the first line has most of (in .tsv a tab; where it has
  none of them, in a file that is not called .csv, a space);
- the first line is the header unless its first cell is a number.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from graphstrap.errors import InputError
from graphstrap.io._database import quote_text

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
