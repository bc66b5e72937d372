"""lock_file: one process at a time. The system unlocks the file when its holder ends, however it ends."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from graphstrap.errors import InputError

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # a file system without locks: go on without


@contextmanager
def lock_file(path: Path, *, what: str) -> Iterator[None]:
    """Hold a lock, with the holder's process and host in the file. One that is held is refused at once."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise InputError(f"{what} cannot be written to: {error.strerror or error}") from error
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        _lock(file, what)
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        except OSError as error:
            raise InputError(f"{what} cannot be written to: {error.strerror or error}") from error
        yield


def _lock(file: IO[str], what: str) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return
        holder = file.read(200).strip() or "another process"
        raise InputError(f"{what} is in use by {holder}: wait for it, or stop it") from error
