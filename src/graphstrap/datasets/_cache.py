"""Graphs kept in the user's cache folder, so that what was built or downloaded once is there the next time.

The folder is `$GRAPHSTRAP_CACHE`, or `graphstrap` in `$XDG_CACHE_HOME`, or `~/.cache/graphstrap`. It is a convenience:
a damaged file is built anew, and where nothing can be written nothing is kept.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.npz import read_npz, write_npz


def cache_folder() -> Path:
    """The user's cache folder, which may not exist yet."""
    if own := os.environ.get("GRAPHSTRAP_CACHE"):
        return Path(own).expanduser()
    general = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(general) if general else Path.home() / ".cache") / "graphstrap"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / "graphstrap"


def kept_path(stem: str) -> Path:
    return cache_folder() / f"{stem}.npz"


def read_or_build(stem: str, build: Callable[[], Graph]) -> Graph:
    """The graph kept under a name; else it is built, and kept if that is possible."""
    if (kept := read_kept(stem)) is not None:
        return kept
    graph = build()
    path = kept_path(stem)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npz(path, graph)
    except (OSError, InputError):
        return graph  # a cache that cannot be written is no error
    return graph


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, whatever happens: inside the cache folder, or else the system's."""
    parent: Path | None
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        parent = cache_folder() if os.access(cache_folder(), os.W_OK) else None
    except OSError:
        parent = None
    with tempfile.TemporaryDirectory(prefix="download-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def read_kept(stem: str) -> Graph | None:
    """The graph kept under a name, or None where there is none that can be read."""
    try:
        return read_npz(kept_path(stem))
    except (OSError, InputError):
        return None
