"""The ledger: one JSON object a line for every cell that was computed, never changed, only added to.

A cell is a graph, a variant of a method, its settings and a seed; what did not fit into a memory is one of that memory
limit besides, and takes the place of nothing that was computed. Whoever asks for a table computes what the ledger
lacks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphstrap.errors import InputError
from graphstrap.io.files import append_lines, read_text

Row = dict[str, Any]
KEY = ("dataset", "variant", "settings", "seed")


class Ledger:
    """A file of rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = _read(path)

    def find(self, **wanted: Any) -> list[Row]:
        """Rows with these values, the newest of each cell."""
        matching = (row for row in self.rows if all(row.get(name) == value for name, value in wanted.items()))
        found = {_cell_of(row): row for row in matching}
        return list(found.values())

    def check_writable(self) -> None:
        """Refuse a place where nothing can be added, before anything is computed for it."""
        self.add([])

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to the disk, each whole; others may be adding theirs."""
        new = [dict(row) for row in rows]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_lines(self.path, new, flush=True)
        except (OSError, InputError) as error:
            raise InputError(f"ledger {self.path} cannot be written: {error}") from error
        self.rows += new


def of_one_graph(rows: list[Row]) -> list[Row]:
    """Without those of a graph that has had the same name before; older rows do not say which graph it was."""
    known = [row for row in rows if row.get("graph")]
    if not known:
        return rows
    newest = max(known, key=lambda row: float(row.get("time", 0)))["graph"]
    return [row for row in rows if row.get("graph") in (None, newest)]


def values_of(rows: Sequence[Row], protocol: str) -> dict[int, float]:
    """The accuracies by seed, of those that have any."""
    return {row["seed"]: row["accuracy"][protocol] for row in rows if protocol in row.get("accuracy", {})}


def _cell_of(row: Row) -> tuple[Any, ...]:
    limit = row.get("memory_limit") if row.get("oom") else None
    return (*(row.get(name) for name in KEY), bool(row.get("oom")), limit)


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    rows = []
    try:
        lines = read_text(path).splitlines()
    except InputError as error:
        raise InputError(f"ledger {path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break  # half a line, left by a power cut
            raise InputError(f"ledger {path}, line {number}, is not JSON: {error}") from error
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str | int) for name in KEY):
            raise InputError(
                f"ledger {path}, line {number}, is not a cell: {', '.join(KEY)} are needed, text or numbers"
            )
        rows.append(row)
    return rows
