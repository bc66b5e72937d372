"""room_for_files: an array that is mapped keeps a file open, and a process may have only so many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphstrap.errors import InputError

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
