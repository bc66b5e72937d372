"""A table of numbers on disk that is filled in any order, memory-mapped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.errors import InputError


def make_table(path: Path, shape: tuple[int, int]) -> np.memmap[Any, Any]:
    """A new (N, D) float32 table of zeros, with all of its room on the disk: where a write through a map finds none,
    the system ends the process."""
    try:
        table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        if hasattr(os, "posix_fallocate"):  # not on every system
            _take_room(path)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    return table


def _take_room(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
