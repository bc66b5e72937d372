"""Files and folders that are there as a whole or not at all, locks that end with their holder, and lines of JSON.

A file or folder is written under a temporary name beside its place, flushed to the disk, and takes its name in one
step. A reader never sees half of it; a process that is killed, or a disk that is full, leaves what was there before.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphstrap.errors import InputError

# ---- reading -------------------------------------------------------------------------------------------------------

MAX_BYTES = 1 << 32


@contextmanager
def os_errors(what: str) -> Iterator[None]:
    """Turn an OSError into an InputError: what cannot be done, and why."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: {error.strerror or error}") from error


def check_readable(path: str | os.PathLike[str]) -> None:
    """Refuse anything but a regular file or a link to one: a pipe would block the reader, a device has no end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {os.fspath(path)}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(f"cannot read {os.fspath(path)}: it is {what}, not a regular file")


def read_bytes(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a regular file of bounded size."""
    check_readable(path)
    with os_errors(f"cannot read {path}"):
        if path.stat().st_size > max_bytes:
            raise InputError(f"cannot read {path}: it has more than {max_bytes:,} bytes")
        return path.read_bytes()


def read_text(path: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """The same as UTF-8 text."""
    try:
        return read_bytes(path, max_bytes=max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: it is not UTF-8 text") from error


# ---- writing files and folders ---------------------------------------------------------------------------------------

_UMASK = os.umask(0)
os.umask(_UMASK)
_FOLDER_LOCK = ".lock"


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
        with os_errors(f"cannot write {final}"):
            yield temporary
            _flush(temporary)
            temporary.chmod(0o666 & ~_UMASK)  # safetensors writes files that only their owner can read
            os.replace(temporary, final)
            _flush(final.parent)
    finally:
        with suppress(OSError):  # a read-only disk: there is nothing to clean up, and the error is on its way
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, *, check: Callable[[], None]) -> Iterator[Path]:
    """Yield a temporary folder to fill; it becomes `path`, and replaces it, when the block ends without an exception.

    The temporary folder, `.NAME.building`, is locked. A process that is killed leaves it behind; the next one to build
    the same folder empties it and starts again. OSErrors come out as InputErrors, as from `atomic_write`.

    Args:
        path: the folder to make, in one that exists.
        check: raises an InputError where `path` may not be taken; called again once the lock is held.
    """
    check()
    temporary, earlier = path.with_name(f".{path.name}.building"), path.with_name(f".{path.name}.replaced")
    lock = temporary / _FOLDER_LOCK
    with os_errors(f"cannot write {path}"):
        is_new = not temporary.exists()
        temporary.mkdir(exist_ok=not is_new)
        with lock_file(lock, what=str(path)) as is_locked:
            if not is_locked and not is_new:
                raise InputError(
                    f"{temporary} exists, and this file system has no locks to tell whether it is in use: "
                    "remove it unless another process is writing to it"
                )
            try:
                check()  # another process may just have made it
                _empty(temporary, but=lock)
                yield temporary
                for entry in (*temporary.rglob("*"), temporary):
                    if entry != lock:
                        _flush(entry)
                shutil.rmtree(earlier, ignore_errors=True)
                if path.exists():  # a folder cannot be replaced in one step: it steps aside first
                    os.rename(path, earlier)
                os.rename(temporary, path)  # with its lock: without it, another process would take it for a leftover
            except BaseException:
                with suppress(OSError):  # a disk that cannot be written: the error is on its way
                    _empty(temporary, but=lock)
                    lock.unlink()
                    temporary.rmdir()
                raise
            (path / _FOLDER_LOCK).unlink()
            _flush(path.parent)
            shutil.rmtree(earlier, ignore_errors=True)


def check_folder(path: Path) -> None:
    """Refuse the name of a file whose folder does not exist, or that is a folder itself."""
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist: create it first")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder: choose another name")


def _empty(folder: Path, *, but: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry != but:
            entry.unlink()


def _flush(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":  # Windows cannot open a folder, and does not need to
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- locks -----------------------------------------------------------------------------------------------------------

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def lock_file(path: Path, *, what: str) -> Iterator[bool]:
    """Hold a lock while the block runs; one that is held elsewhere is refused at once, naming its holder.

    The system frees the lock when its holder ends, even by `kill -9`. Windows and some network file systems have no
    such locks: the block runs without one, and False is yielded.
    """
    with os_errors(f"{what} cannot be written to"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        with os_errors(f"{what} cannot be written to"):
            try:
                is_locked = _lock(file, wait=False)
            except BlockingIOError as error:
                holder = file.read(200).strip() or "another process"
                raise InputError(f"{what} is in use by {holder}: wait for it, or stop it") from error
            if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
                raise InputError(f"{what} was in use until a moment ago: start again")
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            if not is_locked:
                file.close()  # Windows moves no folder with an open file in it
        yield is_locked


def _lock(file: IO[Any], *, wait: bool) -> bool:
    """Lock an open file until it is closed; False where there are no locks. BlockingIOError: another holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


# ---- lines of JSON ---------------------------------------------------------------------------------------------------


def append_lines(path: Path, records: Iterable[Mapping[str, Any]], *, flush: bool = False) -> None:
    """Append objects, one a line, while other processes may append theirs; with `flush`, wait until they are on disk.

    Half a line at the end, left by a power cut, is dropped first.
    """
    if path.is_fifo():
        raise InputError(f"{path} cannot be written: it is a pipe, which nobody reads")
    with os_errors(f"{path} cannot be written"), path.open("ab+") as file:
        _lock(file, wait=True)
        _end_last_line(file)
        file.write("".join(json.dumps(record) + "\n" for record in records).encode())
        if flush:
            file.flush()
            os.fsync(file.fileno())


def _end_last_line(file: IO[bytes]) -> None:
    """Drop half a line at the end; a whole one that an editor left without its end gets one."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    if size == 0 or file.read(1) == b"\n":
        return
    file.seek(0)
    last = file.read().rpartition(b"\n")[2]
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        file.truncate(size - len(last))
    else:
        file.write(b"\n")


def flush_lines(path: Path) -> None:
    """Wait until everything that was appended is on the disk."""
    with os_errors(f"{path} cannot be written"):
        if path.exists():
            _flush(path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file; lines that hold none are left out. A file that does not exist has none."""
    if not path.exists():
        return []
    records = []
    for line in read_text(path).splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


# ---- arrays that are filled in any order -----------------------------------------------------------------------------


def make_array_file(path: Path, shape: tuple[int, int]) -> np.memmap[Any, Any]:
    """A new memory-mapped float32 array of zeros, with all of its room taken on the disk: where a write through a map
    finds none, the system ends the process."""
    try:
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        if hasattr(os, "posix_fallocate"):  # not on every system
            with path.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    return array


@dataclass(frozen=True)
class DoneBlocks:
    """Which blocks of an array on disk are computed, so that a cut run goes on with the others."""

    folder: Path
    number: int  # of the array; every worker has a file of its own for it
    identity: list[Any]  # what must not have changed since the array was begun, as JSON

    def is_begun(self, array: Path) -> bool:
        """Whether an earlier run of the same model on the same graph made the array."""
        try:
            return array.exists() and bool(json.loads(self._head.read_text(encoding="utf-8")) == self.identity)
        except (OSError, ValueError):
            return False

    def begin(self) -> None:
        for old in self._lists():
            old.unlink()
        with atomic_write(self._head) as temporary:
            temporary.write_text(json.dumps(self.identity), encoding="utf-8")

    def add(self, rank: int, first: int, last: int) -> None:
        path = self.folder / f"done-{self.number}-{rank}.jsonl"
        append_lines(path, [{"first": first, "last": last}])

    def blocks(self) -> set[tuple[int, int]]:
        return {(one["first"], one["last"]) for path in self._lists() for one in read_lines(path)}

    @property
    def _head(self) -> Path:
        return self.folder / f"table-{self.number}.json"

    def _lists(self) -> list[Path]:
        return list(self.folder.glob(f"done-{self.number}-*.jsonl"))


# ---- many open files -------------------------------------------------------------------------------------------------

_FILES_FOR_OTHER_USES = 512


@contextmanager
def room_for_files(number: int, *, what: str) -> Iterator[None]:
    """Let this process open that many files, as every mapped array keeps one open; refuse beyond the system's limit."""
    try:
        import resource
    except ImportError:  # Windows
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = number + _FILES_FOR_OTHER_USES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        needed = soft
    elif hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(f"{what} needs {needed} open files, and this system allows {hard}: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
