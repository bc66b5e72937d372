"""StoreBuilder: a store is there as a whole, or not at all.

Everything is written to a folder beside the final one, `.NAME.building`, flushed to the disk, and takes its final name
in one step. A build that is cut leaves that folder behind; the next one locks it, empties it and starts again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.io.arrays import Array, ArrayInfo, ArrayWriter, dtype_name, open_array
from graphstrap.io.files import atomic_write, flush_folder

STORE_FILE = "store.json"
FORMAT, VERSION = "graphstrap-store", 1
_LOCK_FILE = ".lock"


class StoreBuilder:
    """Arrays on their way into a store. `scratch` is a folder for temporary files, gone when the build ends."""

    def __init__(self, folder: Path, *, file_name: str = STORE_FILE, kind: str = FORMAT) -> None:
        self.folder, self.scratch = folder, folder / ".scratch"
        self.file_name, self.kind = file_name, kind
        self.arrays: dict[str, ArrayInfo] = {}
        self.open_files = ExitStack()
        self.scratch.mkdir()

    @contextmanager
    def array(self, name: str, *, dtype: str, columns: tuple[int, ...] = ()) -> Iterator[ArrayWriter]:
        """An array to append rows to; it is part of the store when the block ends without an exception."""
        assert name not in self.arrays, name
        with ArrayWriter(self.folder / f"{name}.npy", dtype=dtype, columns=columns) as writer:
            yield writer
            self.arrays[name] = writer.close()

    def scratch_array(self, name: str, *, dtype: str, columns: tuple[int, ...] = ()) -> ArrayWriter:
        """An array for the time of the build."""
        writer = ArrayWriter(self.scratch / f"{name}.npy", dtype=dtype, columns=columns)
        return self.open_files.enter_context(writer)

    def write(self, name: str, rows: Array | Tensor) -> None:
        """A whole array that is in memory."""
        with self.array(name, dtype=dtype_name(rows), columns=tuple(rows.shape[1:])) as writer:
            writer.append(rows)

    def read(self, name: str) -> Array:
        """A finished array, memory-mapped."""
        return open_array(self.folder, name, self.arrays[name])

    def finish(self, about: dict[str, Any]) -> None:
        """Write what describes the store: from then on the folder is one."""
        shutil.rmtree(self.scratch)
        described = {"format": self.kind, "version": VERSION, **about}
        described["arrays"] = {name: asdict(info) for name, info in sorted(self.arrays.items())}
        with atomic_write(self.folder / self.file_name) as temporary:
            temporary.write_text(json.dumps(described, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


@contextmanager
def build_store(
    path: str | os.PathLike[str], *, overwrite: bool = False, file_name: str = STORE_FILE, kind: str = FORMAT
) -> Iterator[StoreBuilder]:
    """Yield a builder; the store gets its name when the block ends. An OSError comes out as an InputError."""
    final = Path(os.path.abspath(path))
    _check_place(final, overwrite=overwrite, file_name=file_name)
    folder = final.with_name(f".{final.name}.building")
    try:
        folder.mkdir(exist_ok=True)
        with _locked(folder) as lock:
            try:
                _check_place(final, overwrite=overwrite, file_name=file_name)  # another build may just have ended
                _empty(folder)
                builder = StoreBuilder(folder, file_name=file_name, kind=kind)
                with builder.open_files:
                    yield builder
                assert (folder / file_name).exists(), "finish() makes it a store"
                _move(folder, final)
            finally:
                with suppress(OSError):  # a disk that cannot be written: the error is on its way
                    _remove(folder, lock)
    except OSError as error:
        raise InputError(f"cannot write the store {final}: {error.strerror or error}") from error


def _check_place(final: Path, *, overwrite: bool, file_name: str) -> None:
    if not final.parent.is_dir():
        raise InputError(f"cannot write {final}: the folder {final.parent} does not exist: create it first")
    if not os.path.lexists(final):
        return
    if not overwrite:
        raise InputError(f"{final} exists: choose another name, or replace it with --overwrite")
    if final.is_symlink() or not (final / file_name).is_file():
        raise InputError(f"{final} is not a store (no {file_name}), so it is not replaced: choose another name")


@contextmanager
def _locked(folder: Path) -> Iterator[BinaryIO]:
    """One build at a time. The system lets go of the lock when the process ends, however it ends."""
    with open(folder / _LOCK_FILE, "ab") as file:
        _lock(file, folder)
        if not _is_in(folder, file):
            raise InputError(f"{folder} belongs to a build that has just ended: start again")
        yield file


def _lock(file: BinaryIO, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(f"{folder} belongs to a build that is still going on: wait for it, or stop it") from error


def _is_in(folder: Path, lock: BinaryIO) -> bool:
    """Whether the lock is that of this folder: a build that ends takes both away."""
    path = folder / _LOCK_FILE
    return path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())


def _empty(folder: Path) -> None:
    """Remove what an interrupted build left, but not the lock."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _LOCK_FILE:
            entry.unlink()


def _remove(folder: Path, lock: BinaryIO) -> None:
    """Remove what a failed build has made, the lock last; another build's folder stays."""
    if _is_in(folder, lock):
        _empty(folder)
        (folder / _LOCK_FILE).unlink()
        folder.rmdir()


def _move(folder: Path, final: Path) -> None:
    """Give the folder its name. An earlier store steps aside first: a folder cannot be replaced in one step. The lock
    goes along: without it, another build would take the folder for one that was left behind."""
    flush_folder(folder)
    earlier = final.with_name(f".{final.name}.replaced")
    shutil.rmtree(earlier, ignore_errors=True)
    if final.exists():
        os.rename(final, earlier)
    os.rename(folder, final)
    (final / _LOCK_FILE).unlink()
    flush_folder(final.parent)
    shutil.rmtree(earlier, ignore_errors=True)
