"""Reading files that may be anything: a pipe would make the reader wait for ever, a device has no end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from graphstrap.errors import InputError

MAX_BYTES = 1 << 32


def check_plain(path: str | os.PathLike[str]) -> None:
    """Whether there is a plain file under this name, or a link to one."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {os.fspath(path)}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(f"cannot read {os.fspath(path)}: it is {what}, not a plain file")


def read_plain_bytes(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a plain file of bounded size."""
    check_plain(path)
    try:
        if path.stat().st_size > max_bytes:
            raise InputError(f"cannot read {path}: it has more than {max_bytes:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def read_plain_text(path: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """Likewise, as UTF-8."""
    try:
        return read_plain_bytes(path, max_bytes=max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: it is not UTF-8 text") from error
