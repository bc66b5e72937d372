"""Arrays on disk: `.npy` files written row after row and opened memory-mapped, read-only.

A file is refused unless it is a plain file of its own folder whose header says what is expected of it and whose size is
exactly that of the array: nothing is read, mapped or allocated by a size that the file only claims to have.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import stat
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError

Array = np.ndarray[Any, Any]
BFLOAT16 = "bfloat16"  # NumPy has no such type: its bits are kept as uint16
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class ArrayInfo:
    """What a store says about an array: its type as NumPy writes it (or bfloat16), its shape and its checksum."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def stored(self) -> np.dtype[Any]:
        """The type in the file."""
        return np.dtype("<u2" if self.dtype == BFLOAT16 else self.dtype)

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.stored.itemsize


class ArrayWriter:
    """An `.npy` file that grows by rows. Its header is written again at the end, when the number of rows is known."""

    def __init__(self, path: Path, *, dtype: str, columns: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.columns = path, dtype, columns
        self.num_rows = 0
        self._stored = ArrayInfo(dtype, (), "").stored
        self._digest = hashlib.sha256()
        self._file = open(path, "xb")  # noqa: SIM115  (the writer is the context manager)
        self._write_header()
        self._start = self._file.tell()

    def append(self, rows: Array | Tensor) -> None:
        """Rows of a type that can become the file's without loss of kind (floats are rounded)."""
        array = np.ascontiguousarray(_as_stored(rows, self.dtype), dtype=self._stored)
        if array.shape[1:] != self.columns:
            raise ValueError(f"{self.path.name} has rows of shape {self.columns}, got {array.shape[1:]}")
        data = array.reshape(-1).view(np.uint8).data
        self._digest.update(data)
        self._file.write(data)
        self.num_rows += len(array)

    def close(self) -> ArrayInfo:
        """Write the final header and wait until everything is on the disk."""
        self._file.seek(0)
        self._write_header()
        assert self._file.tell() == self._start, "NumPy leaves room for the number of rows to grow"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return ArrayInfo(self.dtype, (self.num_rows, *self.columns), self._digest.hexdigest())

    def _write_header(self) -> None:
        shape = (self.num_rows, *self.columns)
        header = {"descr": self._stored.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def dtype_name(tensor: Tensor | Array) -> str:
    """The name of an array's type in a store: little-endian, as NumPy writes it."""
    if isinstance(tensor, Tensor):
        if tensor.dtype == torch.bfloat16:
            return BFLOAT16
        tensor = torch.empty(0, dtype=tensor.dtype).numpy()
    return tensor.dtype.newbyteorder("<").str


def open_array(folder: Path, name: str, info: ArrayInfo) -> Array:
    """The array as a read-only memory map."""
    path = folder / f"{name}.npy"
    with _open_plain(path) as file:
        start = _check_header(file, path, info)
        if math.prod(info.shape) == 0:
            return np.empty(info.shape, info.stored)
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(buffer, info.stored, math.prod(info.shape), start).reshape(info.shape)


def as_tensor(array: Array, dtype: str) -> Tensor:
    """A tensor over a read-only map. Nothing may write to it: the system would end the process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == BFLOAT16 else tensor


def checksum(folder: Path, name: str, info: ArrayInfo) -> str:
    """The checksum of what is in the file now, read from start to end."""
    digest = hashlib.sha256()
    path = folder / f"{name}.npy"
    with _open_plain(path) as file:
        _check_header(file, path, info)
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _open_plain(path: Path) -> BinaryIO:
    """Open a file that is really there: no link, no pipe, no device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise InputError(f"{path} cannot be opened as a plain file: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or path.is_symlink():
        os.close(descriptor)
        raise InputError(f"{path} is not a plain file: copy the store again")
    return os.fdopen(descriptor, "rb")


def _check_header(file: BinaryIO, path: Path, info: ArrayInfo) -> int:
    """Where the data starts. The header must say what the store says, and the file must be exactly as long."""
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"version {version}")
        shape, in_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    except (ValueError, SyntaxError, tokenize.TokenError, TypeError, RecursionError, MemoryError, EOFError) as error:
        raise InputError(f"{path} is not an array of a store ({_first_line(error)}): copy the store again") from error
    if (shape, dtype.str, in_fortran_order) != (info.shape, info.stored.str, False):
        raise InputError(f"{path} holds {dtype} {shape} where the store expects {info.dtype} {info.shape}")
    start, size = file.tell(), os.fstat(file.fileno()).st_size
    if size != start + info.num_bytes:
        raise InputError(f"{path} has {size:,} bytes instead of {start + info.num_bytes:,}: copy the store again")
    return start


def _as_stored(rows: Array | Tensor, dtype: str) -> Array:
    if not isinstance(rows, Tensor):
        return rows
    rows = rows.detach().cpu()
    if dtype == BFLOAT16:
        return rows.to(torch.bfloat16).contiguous().view(torch.uint16).numpy()
    return rows.numpy()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
