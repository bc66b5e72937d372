"""Which blocks are done: what was added is found, by any worker, and nothing of another table or run is."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphstrap.errors import InputError
from graphstrap.io.files import DoneBlocks


def test_what_any_worker_adds_is_found_and_half_a_line_is_not(tmp_path: Path) -> None:
    done = DoneBlocks(tmp_path, 1, [3, "a"])
    done.begin()
    done.add(0, 0, 10)
    done.add(1, 10, 20)
    done.add(0, 20, 30)
    assert done.blocks() == {(0, 10), (10, 20), (20, 30)}
    assert DoneBlocks(tmp_path, 2, [3, "a"]).blocks() == set()
    with (tmp_path / "done-1-0.txt").open("a", encoding="utf-8") as file:
        file.write("\n30 4")  # the power is cut here
    assert done.blocks() == {(0, 10), (10, 20), (20, 30)}
    done.add(0, 40, 50)
    assert done.blocks() == {(0, 10), (10, 20), (20, 30), (40, 50)}
    done.begin()
    assert done.blocks() == set()


def test_a_table_is_begun_when_it_is_there_and_its_identity_is_the_same(tmp_path: Path) -> None:
    table, done = tmp_path / "table-1.npy", DoneBlocks(tmp_path, 1, [3, "a"])
    done.begin()
    assert not done.is_begun(table)
    table.touch()
    assert done.is_begun(table)
    assert not DoneBlocks(tmp_path, 1, [4, "a"]).is_begun(table)
    (tmp_path / "table-1.json").write_text("[3", encoding="utf-8")
    assert not done.is_begun(table)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"done-1-0\.txt: No such file"):
        DoneBlocks(tmp_path / "gone", 1, []).add(0, 0, 10)
