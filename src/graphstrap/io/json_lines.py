"""A file of JSON objects, one a line, that grows: a line that a power cut left half-written is not counted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphstrap.errors import InputError
from graphstrap.io.atomic import flush_file
from graphstrap.plain import read_plain_text


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append an object; half a line stays alone."""
    if path.is_fifo():
        raise InputError(f"{path} cannot be written: it is a pipe, which nobody reads")
    try:
        with path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            begin = "" if file.read(1) in (b"", b"\n") else "\n"
            file.write(f"{begin}{json.dumps(record)}\n".encode())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def flush_lines(path: Path) -> None:
    """Wait until all that was appended is on the disk."""
    try:
        if path.exists():
            flush_file(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects, without the lines that are none; nothing where there is no file."""
    if not path.exists():
        return []
    records = []
    for line in read_plain_text(path).splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
