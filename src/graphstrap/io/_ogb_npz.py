"""An array inside an `.npz` file as a memory map: unpacked, a piece at a time, to a file of its own."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io._archive import UNREADABLE
from graphstrap.io._arrays import Array

_PIECE = 1 << 24


def member_as_map(path: Path, key: str, scratch: Path) -> Array:
    """The array under a key, unpacked into the folder `scratch`."""
    place = scratch / f"{path.stem}.{key}.npy"
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as packed, open(place, "xb") as unpacked:
            while piece := packed.read(_PIECE):
                unpacked.write(piece)
        array: Array = np.load(place, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise InputError(f"{path} has no readable array {key} ({error}): copy it again") from error
    return array
