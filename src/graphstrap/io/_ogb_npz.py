"""Arrays of published folders as memory maps: an `.npy` file, or an array inside an `.npz` file, which is unpacked, a
piece at a time, to a file of its own."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io._archive import UNREADABLE
from graphstrap.io._arrays import Array
from graphstrap.plain import check_plain

_PIECE = 1 << 24


def file_as_map(path: Path, *, rows: int | None = None, what: str | None = None) -> Array:
    """An `.npy` file of numbers, never unpickled; with `rows`, whole numbers in so many rows. Errors speak of `what`,
    or of the path."""
    what = what or str(path)
    check_plain(path)
    try:
        with np.errstate(over="ignore"):  # of a shape that is refused for its size
            array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise InputError(f"{what} is not a readable .npy file ({error}): copy it again") from error
    if rows is not None and (array.ndim != 2 or array.shape[0] != rows):
        raise InputError(f"{what} has shape {array.shape}, expected {rows} rows")
    if array.dtype.kind not in ("biuf" if rows is None else "iu") or array.ndim == 0:
        raise InputError(f"{what} holds {array.dtype} of shape {array.shape}, expected numbers: copy it again")
    return array


def member_as_map(path: Path, key: str, scratch: Path, *, rows: int | None = None) -> Array:
    """The array under a key, unpacked into the folder `scratch`."""
    place = scratch / f"{path.stem}.{key}.npy"
    check_plain(path)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as packed, open(place, "xb") as unpacked:
            while piece := packed.read(_PIECE):
                unpacked.write(piece)
    except UNREADABLE as error:
        raise InputError(f"{path} has no readable array {key} ({error}): copy it again") from error
    return file_as_map(place, rows=rows, what=f"{path}: {key}")
