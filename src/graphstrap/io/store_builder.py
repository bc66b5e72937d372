"""StoreBuilder: the arrays of a store on their way into a folder that is there as a whole, or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.io.arrays import Array, ArrayInfo, ArrayWriter, dtype_name, open_array
from graphstrap.io.files import atomic_folder, atomic_write

STORE_FILE = "store.json"
FORMAT, VERSION = "graphstrap-store", 1
Report = Callable[[str, float], None]  # told of a stage and how much of it is done, from 0 to 1


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

    def check() -> None:
        if not final.parent.is_dir():
            raise InputError(f"cannot write {final}: the folder {final.parent} does not exist: create it first")
        if not os.path.lexists(final):
            return
        if not overwrite:
            raise InputError(f"{final} exists: choose another name, or replace it with --overwrite")
        if final.is_symlink() or not (final / file_name).is_file():
            raise InputError(f"{final} is not a store (no {file_name}), so it is not replaced: choose another name")

    with atomic_folder(final, check=check) as folder:
        builder = StoreBuilder(folder, file_name=file_name, kind=kind)
        with builder.open_files:
            yield builder
        assert (folder / file_name).exists(), "finish() makes it a store"
