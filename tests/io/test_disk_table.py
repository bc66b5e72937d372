"""Tables on disk: zeros to be filled, with their room taken, so that a full disk is told when they are made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from graphstrap.errors import InputError
from graphstrap.io.files import make_table


@pytest.mark.parametrize("shape", [(0, 5), (3, 4), (50_000, 10)])
def test_a_table_is_zeros_and_keeps_what_is_written(tmp_path: Path, shape: tuple[int, int]) -> None:
    table = make_table(tmp_path / "table.npy", shape)
    assert table.shape == shape
    assert not table.any()
    table[-1:] = 7
    table.flush()
    again = np.load(tmp_path / "table.npy")
    assert np.array_equal(again, table)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system takes no room before it is written to")
def test_its_room_is_taken_at_once(tmp_path: Path) -> None:
    make_table(tmp_path / "table.npy", (100_000, 10))
    assert (tmp_path / "table.npy").stat().st_blocks * 512 >= 4_000_000


def test_a_disk_without_room_is_told(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        with pytest.raises(InputError, match=r"table\.npy: No space left"):
            make_table(tmp_path / "table.npy", (100_000, 10))
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
