"""Results are kept for a later command that is given the same options, and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphstrap.errors import InputError
from graphstrap_lab.bench.record import kept_rows, write_record


def test_rows_are_kept_for_the_same_options_alone(tmp_path: Path) -> None:
    path, options = tmp_path / "result.json", {"steps": 10, "limit": None}
    assert kept_rows(path, options=options) == []
    write_record(path, bench="some", command="python some.py", rows=[{"seed": 0}], options=options)
    assert kept_rows(path, options=options) == [{"seed": 0}]
    assert kept_rows(path, options={**options, "steps": 11}) == []
    path.write_text("{")
    with pytest.raises(InputError, match="no result"):
        kept_rows(path, options=options)
