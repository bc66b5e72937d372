"""atomic_write: a file is there as a whole, or not at all.

The data goes to a temporary file in the same folder, is flushed to the disk, and takes its final name in one step. A
reader never sees half a file; a run that is cut, or a disk that is full, leaves what was there before.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphstrap.errors import InputError

# Reading files that may be anything: a pipe would make the reader wait for ever, a device has no end.


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


# lock_file: one process at a time. The system unlocks the file when its holder ends, however it ends.


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


# A file of JSON objects, one a line, that grows: a line that a power cut left half-written is not counted.


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append an object; half a line stays alone."""
    if path.is_fifo():
        raise InputError(f"{path} cannot be written: it is a pipe, which nobody reads")
    try:
        with path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            begin = "" if file.read(1) in (b"", b"\n") else "\n"
            file.write(f"{begin}{json.dumps(record)}\n".encode())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def flush_lines(path: Path) -> None:
    """Wait until all that was appended is on the disk."""
    try:
        if path.exists():
            flush_file(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects, without the lines that are none; nothing where there is no file."""
    if not path.exists():
        return []
    records = []
    for line in read_plain_text(path).splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


# Which blocks of rows of a table are on disk, so that a cut run goes on with the others.


@dataclass(frozen=True)
class DoneBlocks:
    """Lines of text: each worker has a file of its own, and a line that a power cut left half-written does not count.

    Args:
        folder: where the tables are.
        number: of the table.
        identity: what must not have changed since it was begun, as JSON.
    """

    folder: Path
    number: int
    identity: list[Any]

    def is_begun(self, table: Path) -> bool:
        """Whether an earlier run of the same model on the same graph made the table."""
        try:
            return table.exists() and bool(json.loads(self._head.read_text(encoding="utf-8")) == self.identity)
        except (OSError, ValueError):
            return False

    def begin(self) -> None:
        for old in self._lists():
            old.unlink()
        with atomic_write(self._head) as temporary:
            temporary.write_text(json.dumps(self.identity), encoding="utf-8")

    def add(self, rank: int, first: int, last: int) -> None:
        path = self.folder / f"done-{self.number}-{rank}.txt"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"\n{first} {last} .")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error

    def blocks(self) -> set[tuple[int, int]]:
        lines = [line.split() for path in self._lists() for line in path.read_text(encoding="utf-8").splitlines()]
        return {(int(words[0]), int(words[1])) for words in lines if len(words) == 3}

    @property
    def _head(self) -> Path:
        return self.folder / f"table-{self.number}.json"

    def _lists(self) -> list[Path]:
        return list(self.folder.glob(f"done-{self.number}-*.txt"))


# A table of numbers on disk that is filled in any order, memory-mapped.


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


# room_for_files: an array that is mapped keeps a file open, and a process may have only so many.


_OTHERS = 512  # files that are open for other reasons


@contextmanager
def room_for_files(number: int, *, what: str) -> Iterator[None]:
    """Let this process open so many files more than it usually may, as far as the system lets it raise its limit."""
    try:
        import resource
    except ImportError:  # Windows
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = number + _OTHERS
    if soft == resource.RLIM_INFINITY or needed <= soft:
        yield
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(f"{what} needs {needed} open files, and this system allows {hard}: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
