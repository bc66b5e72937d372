"""What lies in the folder `$GRAPHSTRAP_DATA`: .npz files and stores, by name."""

from __future__ import annotations

import os
from pathlib import Path

from graphstrap.io.store import is_store


def data_folder() -> Path | None:
    folder = os.environ.get("GRAPHSTRAP_DATA")
    return Path(folder).expanduser() if folder else None


def data_files() -> dict[str, Path]:
    folder = data_folder()
    paths = [] if folder is None else sorted(folder.glob("*.npz"), reverse=True)  # of two names alike the first wins
    return {as_name(path.stem): path for path in paths}


def data_stores() -> dict[str, Path]:
    folder = data_folder()
    found = [] if folder is None else sorted(folder.glob("*.store"))
    return {as_name(path.stem): path for path in found if is_store(str(path))}


def find_file(stem: str) -> Path | None:
    return data_files().get(as_name(stem))


def as_name(text: str) -> str:
    return text.lower().replace("_", "-")
