"""Archive: the arrays of one .npz file, checked as they are read. Every complaint names the file and the key."""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from graphstrap.errors import InputError

Array = np.ndarray[Any, Any]
UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, MemoryError, OverflowError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),  # NumPy reads an array's header with a Python tokenizer
)

_MOST_NODES = 10**7


class Archive:
    """An open .npz file. Nothing in it is ever unpickled."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"{self.path} is not a file: give the path of an .npz file")
        with ExitStack() as stack:
            try:
                loaded = np.load(stack.enter_context(open(self.path, "rb")), allow_pickle=False)
            except UNREADABLE as error:
                why = _in_short(error)
                raise InputError(f"{self.path} is not a readable .npz file ({why}): copy it again") from error
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise InputError(
                    f"{self.path} holds a single array: a graph needs an .npz file with the key edge_index"
                )
            self._arrays = loaded
            self._open_files = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._arrays.close()
        self._open_files.close()

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
            self.refuse(key, f"cannot be read ({_in_short(error)}): copy the file again, without pickled objects")
        if array.dtype.kind not in kinds:
            self.refuse(key, f"has type {array.dtype}, expected {' or '.join(KIND_NAMES[kind] for kind in kinds)}")
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
        """A number of nodes. One that a file of this size cannot have anything to say about is refused, before memory
        is taken for them."""
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


KIND_NAMES = {"b": "true/false", "i": "whole numbers", "u": "unsigned whole numbers", "f": "decimals", "U": "text"}


def _in_short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
