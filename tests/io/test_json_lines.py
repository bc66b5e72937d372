"""Files of JSON lines: what is appended is read, and what a power cut left is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphstrap.errors import InputError
from graphstrap.io.files import append_line, read_lines


def test_what_is_appended_is_read_without_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert read_lines(path) == []
    records: list[dict[str, object]] = [{"step": 1, "loss": 0.5}, {"name": "ü\n"}, {}]
    for record in records:
        append_line(path, record)
    assert read_lines(path) == records
    with path.open("a", encoding="utf-8") as file:
        file.write('[1]\n{"step": 2')  # no object, and the line that the power was cut in
    assert read_lines(path) == records
    append_line(path, {"step": 3})  # it went on afterwards
    append_line(path, {"step": 4})
    assert read_lines(path) == [*records, {"step": 3}, {"step": 4}]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        append_line(tmp_path, {})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a pipe, which nobody reads"):
        append_line(tmp_path / "pipe", {})
