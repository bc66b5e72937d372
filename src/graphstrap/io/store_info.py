"""StoreInfo: what `store.json` says, checked field by field. It names arrays, never files: no path leads elsewhere.

`parts.json` and `part.json` of a partitioned store (see `parts.py`) say the same things, of the whole and of a part.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from graphstrap.errors import InputError
from graphstrap.graph.edge_list import Cleaning
from graphstrap.io.arrays import ArrayInfo
from graphstrap.io.store_builder import FORMAT, STORE_FILE, VERSION

_MAX_JSON_BYTES = 1 << 26
_MAX_SIZE = 1 << 48
_DTYPES = r"\|b1|\|u1|\|i1|<i[248]|<u[248]|<f[248]|<U[1-9][0-9]{0,5}|bfloat16"
_ARRAY_NAMES = (
    r"indptr|indices|out_indptr|out_indices|out_positions|labels|train|val|test|node_times|ids"
    r"|edge_types|edge_weights|edge_times|edge_columns"
    r"|part_of|hot|nodes|first_edges|time_codes|source_time_codes"  # of partitioned stores
    r"|(features|sample)\.[0-9]{1,3}(\.(indptr|indices|values|scale|offset|pca_mean|pca_components))?"
)
KINDS = ("dense", "sparse", "quantised")


@dataclass(frozen=True)
class StoreInfo:
    folder: Path
    name: str
    type_offsets: tuple[int, ...]
    graph_offsets: tuple[int, ...]  # none: one graph
    node_types: tuple[str, ...]
    blocks: tuple[tuple[str, int] | None, ...]  # kind and width of each type's features
    class_names: tuple[str, ...] | None
    feature_names: tuple[str, ...] | None
    edge_type_names: tuple[str, ...]
    edge_column_names: tuple[str, ...]
    cleaning: Cleaning
    arrays: dict[str, ArrayInfo]
    about: dict[str, Any]  # what else is said, unchecked

    @property
    def num_nodes(self) -> int:
        return self.type_offsets[-1]

    @property
    def num_edges(self) -> int:
        return self.arrays["indices"].shape[0]

    def refuse(self, problem: str) -> NoReturn:
        refuse(self.folder, problem)


def is_store(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(os.path.join(path, STORE_FILE))


def read_info(path: str | os.PathLike[str], *, file_name: str = STORE_FILE, kind: str = FORMAT) -> StoreInfo:
    """Read and check `store.json`, in time and memory bounded by its own size."""
    folder = Path(path)
    described = _read_json(folder, file_name)
    if described.get("format") != kind:
        refuse(folder, f"is no store: format is {described.get('format')!r:.100}")
    if described.get("version") != VERSION:
        refuse(
            folder,
            f"has version {described.get('version')!r:.100} where this program reads {VERSION}: prepare it again",
        )
    take = Taker(folder, described, file_name)
    return StoreInfo(
        folder=folder,
        name=take("name", lambda v: isinstance(v, str)),
        type_offsets=tuple(take("type_offsets", _are_offsets)),
        graph_offsets=tuple(take("graph_offsets", lambda v: v is None or _are_offsets(v)) or ()),
        node_types=tuple(take("node_types", _are_names)),
        blocks=tuple(None if b is None else (b["kind"], b["columns"]) for b in take("features", _are_blocks)),
        class_names=_tuple(take("class_names", lambda v: v is None or _are_names(v))),
        feature_names=_tuple(take("feature_names", lambda v: v is None or _are_names(v))),
        edge_type_names=tuple(take("edge_type_names", _are_names)),
        edge_column_names=tuple(take("edge_column_names", _are_names)),
        cleaning=Cleaning(**take("cleaning", _is_cleaning)),
        arrays={
            name: ArrayInfo(a["dtype"], tuple(a["shape"]), a["sha256"])
            for name, a in take("arrays", _are_arrays).items()
        },
        about=described,
    )


def refuse(folder: Path, problem: str) -> NoReturn:
    raise InputError(f"the store {folder} {problem}")


@dataclass(frozen=True)
class Taker:
    """Values that pass a check, by key."""

    folder: Path
    described: dict[str, Any]
    file_name: str

    def __call__(self, key: str, is_good: Callable[[Any], bool]) -> Any:
        value = self.described.get(key)
        if not is_good(value):
            refuse(self.folder, f"is damaged: {key} in {self.file_name} is missing or wrong: copy or prepare it again")
        return value


def _read_json(folder: Path, file_name: str) -> dict[str, Any]:
    path = folder / file_name
    try:
        if path.is_symlink() or not path.is_file():
            refuse(folder, f"is no store: it has no {file_name}")
        if path.stat().st_size > _MAX_JSON_BYTES:
            refuse(folder, f"is damaged: {file_name} is larger than {_MAX_JSON_BYTES:,} bytes")
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the store {folder} is damaged: {file_name} cannot be read ({error})") from error
    if not isinstance(described, dict):
        refuse(folder, f"is damaged: {file_name} is not an object")
    return described


def is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_SIZE


def _are_offsets(value: Any) -> bool:
    good = isinstance(value, list) and len(value) >= 2 and all(map(is_size, value))
    return good and value[0] == 0 and value == sorted(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_blocks(value: Any) -> bool:
    def is_block(block: Any) -> bool:
        return block is None or (
            isinstance(block, dict) and block.get("kind") in KINDS and is_size(block.get("columns"))
        )

    return isinstance(value, list) and all(map(is_block, value))


def _is_cleaning(value: Any) -> bool:
    names = {field.name for field in fields(Cleaning)}
    return isinstance(value, dict) and set(value) <= names and all(map(is_size, value.values()))


def _are_arrays(value: Any) -> bool:
    def is_array(name: str, array: Any) -> bool:
        return (
            re.fullmatch(_ARRAY_NAMES, name) is not None
            and isinstance(array, dict)
            and isinstance(array.get("dtype"), str)
            and re.fullmatch(_DTYPES, array["dtype"]) is not None
            and isinstance(array.get("shape"), list)
            and 1 <= len(array["shape"]) <= 2
            and all(map(is_size, array["shape"]))
            and isinstance(array.get("sha256"), str)
        )

    return isinstance(value, dict) and all(is_array(name, array) for name, array in value.items())


def _tuple(value: list[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


# The type and the shape of every array of a store, by what `store.json` says: nothing is opened for it.


def check_sizes(info: StoreInfo, *, num_ids: int | None = None) -> None:
    """The type and shape of every array, before any of them is mapped. `num_ids` is how many nodes edges may come from,
    if that is not the number of rows."""
    if "indptr" not in info.arrays or "indices" not in info.arrays:
        info.refuse("is damaged: it has no edges: copy or prepare it again")
    num_nodes, num_edges = info.num_nodes, info.num_edges
    index_type = "<i4" if (num_nodes if num_ids is None else num_ids) < 2**31 else "<i8"
    rows: dict[str, tuple[int, str, int]] = {  # number of rows, type, dimensions
        "indptr": (num_nodes + 1, "<i8", 1),
        "out_indptr": (num_nodes + 1, "<i8", 1),
        "indices": (num_edges, index_type, 1),
        "out_indices": (num_edges, index_type, 1),
        "out_positions": (num_edges, "<i8", 1),
        "train": (num_nodes, "|b1", 2),
        "val": (num_nodes, "|b1", 2),
        "test": (num_nodes, "|b1", 2),
        "edge_weights": (num_edges, "<f4", 1),
        "edge_columns": (num_edges, "<f4", 2),
    }
    for name, (count, dtype, dimensions) in rows.items():
        array = info.arrays.get(name)
        if array is not None and (array.dtype, array.shape[0], len(array.shape)) != (dtype, count, dimensions):
            info.refuse(f"is damaged: {name} is {array.dtype} {array.shape}, expected {dtype} and {count:,} rows")
    for name, count, kinds in (
        ("labels", num_nodes, ("<i8", "|u1")),
        ("node_times", num_nodes, ("<i", "<f")),
        ("ids", num_nodes, ("<i8", "<U")),
        ("edge_types", num_edges, ("|u1", "<i8")),
        ("edge_times", num_edges, ("<i", "<f")),
    ):
        array = info.arrays.get(name)
        if array is not None and (array.shape[0] != count or not array.dtype.startswith(kinds)):
            info.refuse(f"is damaged: {name} is {array.dtype} {array.shape}, expected {count:,} rows")
    if len(info.node_types) != len(info.blocks) or len(info.type_offsets) != len(info.blocks) + 1:
        info.refuse("is damaged: names, sizes and features of its node types differ in number")
    for number, block in enumerate(info.blocks):
        if block is not None:
            check_block(
                info, f"features.{number}", *block, rows=info.type_offsets[number + 1] - info.type_offsets[number]
            )


def check_block(info: StoreInfo, name: str, kind: str, columns: int, *, rows: int) -> None:
    floats = ("<f4", "<f2", "bfloat16")
    parts: dict[str, dict[str, tuple[tuple[int, ...] | None, tuple[str, ...]]]] = {
        "dense": {name: ((rows, columns), floats)},
        "quantised": {
            name: ((rows, columns), ("|u1",)),
            f"{name}.scale": ((columns,), ("<f4",)),
            f"{name}.offset": ((columns,), ("<f4",)),
        },
        "sparse": {
            f"{name}.indptr": ((rows + 1,), ("<i8",)),
            f"{name}.indices": (None, ("<i4",)),
            f"{name}.values": (None, ("<f4",)),
        },
    }
    for part, (shape, dtypes) in parts[kind].items():
        array = info.arrays.get(part)
        if array is None or array.dtype not in dtypes or shape not in (None, array.shape):
            info.refuse(f"is damaged: {part} is missing, or not the features of {rows:,} nodes and {columns} columns")
