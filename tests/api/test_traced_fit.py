"""How much of the package a plain fit goes through: a reader who follows one has this much to read."""

from __future__ import annotations

from pathlib import Path

from traced_fit import trace_fit


def test_a_fit_of_two_tables_stays_within_few_files_and_few_frames(tmp_path: Path) -> None:
    found = trace_fit(tmp_path)
    assert len(found.files) <= 45, found.files
    assert len(found.deepest) <= 18, found.deepest
