"""A file of JSON objects, one a line, that grows: a line that a power cut left half-written ends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphstrap.errors import InputError
from graphstrap.plain import read_plain_text


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    if path.is_fifo():
        raise InputError(f"{path} cannot be written: it is a pipe, which nobody reads")
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects up to the first line that is not JSON; none where there is no file."""
    if not path.exists():
        return []
    records = []
    for line in read_plain_text(path).splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            break
        if isinstance(record, dict):
            records.append(record)
    return records
