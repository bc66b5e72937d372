"""Which blocks of rows of a table are on disk, so that a cut run goes on with the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphstrap.errors import InputError
from graphstrap.io.atomic import atomic_write


@dataclass(frozen=True)
class DoneBlocks:
    """Lines of text: each worker has a file of its own, and a line that a power cut left half-written does not count.

    Args:
        folder: where the tables are.
        number: of the table.
        identity: what must not have changed since it was begun, as JSON.
    """

    folder: Path
    number: int
    identity: list[Any]

    def is_begun(self, table: Path) -> bool:
        """Whether an earlier run of the same model on the same graph made the table."""
        try:
            return table.exists() and bool(json.loads(self._head.read_text(encoding="utf-8")) == self.identity)
        except (OSError, ValueError):
            return False

    def begin(self) -> None:
        for old in self._lists():
            old.unlink()
        with atomic_write(self._head) as temporary:
            temporary.write_text(json.dumps(self.identity), encoding="utf-8")

    def add(self, rank: int, first: int, last: int) -> None:
        path = self.folder / f"done-{self.number}-{rank}.txt"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"\n{first} {last} .")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error

    def blocks(self) -> set[tuple[int, int]]:
        lines = [line.split() for path in self._lists() for line in path.read_text(encoding="utf-8").splitlines()]
        return {(int(words[0]), int(words[1])) for words in lines if len(words) == 3}

    @property
    def _head(self) -> Path:
        return self.folder / f"table-{self.number}.json"

    def _lists(self) -> list[Path]:
        return list(self.folder.glob(f"done-{self.number}-*.txt"))
