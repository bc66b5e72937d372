"""NumPy's files: archives (`.npz`), memory maps of single arrays (`.npy`), and the arrays of a store.

Nothing is ever unpickled. A store's file is refused unless it is a regular file of its own folder whose header says
what is expected of it and whose size is exactly that of the array: nothing is read, mapped or allocated by a size that
the file only claims to have.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import shutil
import stat
import tokenize
import warnings
import zipfile
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Self

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.io.files import check_readable, os_errors

Array = np.ndarray[Any, Any]

BFLOAT16 = "bfloat16"  # NumPy has no such type: its bits are kept as uint16
UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, MemoryError, OverflowError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),  # NumPy reads an array's header with a Python tokenizer
)
_KIND_NAMES = {"b": "true/false", "i": "whole numbers", "u": "unsigned whole numbers", "f": "decimals", "U": "text"}
_MOST_NODES = 10**7
_CHUNK_BYTES = 1 << 24


def damaged(what: object, error: BaseException, *, expected: str, fix: str = "copy it again") -> InputError:
    """The error for a file that is there and does not hold what it should."""
    why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
    return InputError(f"{what} is not {expected} ({why}): {fix}")


class Archive(ExitStack):
    """An open .npz file. Its arrays are checked as they are read; every message names the file and the key."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"{self.path} is not a file: give the path of an .npz file")
        with ExitStack() as stack:
            try:
                loaded = np.load(stack.enter_context(open(self.path, "rb")), allow_pickle=False)
            except UNREADABLE as error:
                raise damaged(self.path, error, expected="a readable .npz file") from error
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise InputError(
                    f"{self.path} holds a single array: a graph needs an .npz file with the key edge_index"
                )
            self._arrays = stack.enter_context(loaded)
            self.push(stack.pop_all())

    def __contains__(self, key: str) -> bool:
        return key in self._arrays.files

    @property
    def all_keys(self) -> list[str]:
        return list(self._arrays.files)

    def refuse(self, key: str, problem: str) -> NoReturn:
        raise InputError(f"{self.path}: {key} {problem}")

    def read(self, key: str, *, kinds: str, dimensions: int | tuple[int, ...]) -> Array:
        """One array of an allowed NumPy kind ("b" bool, "i", "u", "f", "U" text) and number of dimensions."""
        if key not in self:
            self.refuse(key, "is missing: the format needs this key")
        try:
            array = np.asarray(self._arrays[key])  # a member that is no array comes as bytes
        except UNREADABLE as error:
            raise damaged(f"{self.path}: {key}", error, expected="a readable array") from error
        if array.dtype.kind not in kinds:
            self.refuse(key, f"has type {array.dtype}, expected {' or '.join(_KIND_NAMES[kind] for kind in kinds)}")
        allowed = (dimensions,) if isinstance(dimensions, int) else dimensions
        if array.ndim not in allowed:
            self.refuse(key, f"has shape {array.shape}, expected {' or '.join(map(str, allowed))} dimensions")
        return array

    def integers(self, key: str, *, dimensions: int | tuple[int, ...] = 1) -> Array:
        return self.read(key, kinds="iu", dimensions=dimensions).astype(np.int64)

    def indices(self, key: str, *, below: int, dimensions: int = 1) -> Array:
        """Whole numbers from 0 up to, but without, `below`."""
        values = self.integers(key, dimensions=dimensions)
        if values.size and (values.min() < 0 or values.max() >= below):
            wrong = values.min() if values.min() < 0 else values.max()
            self.refuse(key, f"holds {wrong}, but there are only {below} to choose from (0 to {below - 1})")
        return values

    def count(self, key: str) -> int:
        """A number of nodes. One that is far too large for the size of the file is refused before memory is taken."""
        count, most = int(self.integers(key, dimensions=0)), max(_MOST_NODES, 100 * self.path.stat().st_size)
        if not 0 <= count <= most:
            self.refuse(key, f"is {count}, expected 0 to {most:,} in a file of this size: is the number right?")
        return count

    def names(self, key: str) -> tuple[str, ...] | None:
        """A row of text, or None where the key is absent."""
        return tuple(self.read(key, kinds="U", dimensions=1).tolist()) if key in self else None

    def csr(self, suffix: str = "") -> Any:
        """The SciPy CSR matrix under x_data, x_indices, x_indptr and x_shape, each with a suffix."""
        from scipy.sparse import csr_matrix

        shape = self.integers(f"x_shape{suffix}")
        if len(shape) != 2 or shape.min() < 0:
            self.refuse(f"x_shape{suffix}", f"is {shape.tolist()}, expected the numbers of rows and columns")
        values = self.read(f"x_data{suffix}", kinds="buif", dimensions=1).astype(np.float32)
        columns = self.indices(f"x_indices{suffix}", below=int(shape[1]))
        indptr = self.integers(f"x_indptr{suffix}")
        if len(indptr) != shape[0] + 1 or indptr[0] != 0 or indptr[-1] != len(values) or (np.diff(indptr) < 0).any():
            self.refuse(f"x_indptr{suffix}", f"does not divide {len(values)} values into {shape[0]} rows")
        if len(columns) != len(values):
            self.refuse(f"x_indices{suffix}", f"has {len(columns)} entries for {len(values)} values in x_data{suffix}")
        matrix = csr_matrix((values, columns, indptr), shape=tuple(shape.tolist()))
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return matrix


def load_npy(path: Path, *, mapped: bool = False, what: str | None = None) -> Array:
    """The array of an `.npy` file, in memory or as a memory map. Messages speak of `what`, or of the path."""
    check_readable(path)
    try:
        with np.errstate(over="ignore"):  # of a shape that is refused for its size
            array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("it is an .npz file")
    except UNREADABLE as error:
        raise damaged(what or path, error, expected="a readable .npy file") from error
    return array


def file_as_map(path: Path, *, rows: int | None = None, what: str | None = None) -> Array:
    """An `.npy` file of numbers as a memory map; with `rows`, whole numbers in so many rows."""
    what = what or str(path)
    array = load_npy(path, mapped=True, what=what)
    if rows is not None and (array.ndim != 2 or array.shape[0] != rows):
        raise InputError(f"{what} has shape {array.shape}, expected {rows} rows")
    if array.dtype.kind not in ("biuf" if rows is None else "iu") or array.ndim == 0:
        raise InputError(f"{what} holds {array.dtype} of shape {array.shape}, expected numbers: copy it again")
    return array


def member_as_map(path: Path, key: str, scratch: Path, *, rows: int | None = None) -> Array:
    """An array inside an `.npz` file, unpacked into the folder `scratch`, as a memory map."""
    place = scratch / f"{path.stem}.{key}.npy"
    check_readable(path)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as packed, open(place, "xb") as unpacked:
            shutil.copyfileobj(packed, unpacked, _CHUNK_BYTES)
    except UNREADABLE as error:
        raise damaged(f"{path}: {key}", error, expected="a readable array") from error
    return file_as_map(place, rows=rows, what=f"{path}: {key}")


# The arrays of a store: `.npy` files that grow by rows, and are opened as memory maps.


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


def _as_stored(rows: Array | Tensor, dtype: str) -> Array:
    if not isinstance(rows, Tensor):
        return rows
    rows = rows.detach().cpu()
    if dtype == BFLOAT16:
        return rows.to(torch.bfloat16).contiguous().view(torch.uint16).numpy()
    return rows.numpy()


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
    with _open_regular(path) as file:
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
    path = folder / f"{name}.npy"
    with _open_regular(path) as file:
        _check_header(file, path, info)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open_regular(path: Path) -> BufferedReader:
    """Open a file that is really in the folder: no link, no pipe, no device."""
    with os_errors(f"{path} cannot be opened as a regular file"):
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or path.is_symlink():
        os.close(descriptor)
        raise InputError(f"{path} is not a regular file: copy the store again")
    return os.fdopen(descriptor, "rb")


def _check_header(file: BinaryIO, path: Path, info: ArrayInfo) -> int:
    """Where the data starts. The header must say what the store says, and the file must be exactly as long."""
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"version {version}")
        shape, in_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    except UNREADABLE as error:
        raise damaged(path, error, expected="an array of a store", fix="copy the store again") from error
    if (shape, dtype.str, in_fortran_order) != (info.shape, info.stored.str, False):
        raise InputError(f"{path} holds {dtype} {shape} where the store expects {info.dtype} {info.shape}")
    start, size = file.tell(), os.fstat(file.fileno()).st_size
    if size != start + info.num_bytes:
        raise InputError(f"{path} has {size:,} bytes instead of {start + info.num_bytes:,}: copy the store again")
    return start
