"""atomic_write: a file is there as a whole, or not at all.

The data goes to a temporary file in the same folder, is flushed to the disk, and takes its final name in one step. A
reader never sees half a file; a run that is cut, or a disk that is full, leaves what was there before.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graphstrap.errors import InputError

_UMASK = os.umask(0)
os.umask(_UMASK)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes `path` when the block ends without an exception.

    The temporary name keeps the suffix of `path`. An OSError (disk full, no permission, no such folder) comes out as an
    InputError that names `path`; any other exception comes out as it is. Either way the temporary file is gone.
    """
    final = Path(path)
    check_folder(final)
    temporary = final.with_name(f".{final.stem}.{secrets.token_hex(6)}.tmp{final.suffix}")
    try:
        yield temporary
        flush_file(temporary)
        temporary.chmod(0o666 & ~_UMASK)  # safetensors writes files that only their owner can read
        os.replace(temporary, final)
        flush_folder(final.parent)
    except OSError as error:
        raise InputError(f"cannot write {final}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # a read-only disk: there is nothing to clean up, and the error is on its way
            temporary.unlink(missing_ok=True)


def check_folder(path: Path) -> None:
    """Whether there is a folder for a file of this name."""
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist: create it first")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder: choose another name")


def flush_file(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Wait until the new name is on the disk. Windows cannot open a folder, and does not need to."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
