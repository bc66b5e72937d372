"""What `parts.json` and every `part.json` of a graph in parts say, checked field by field, and the sizes of arrays.

The first has the checksums of the others, which have those of their arrays: a part of another graph, or of another
number, is none.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.io._arrays import as_tensor, open_array
from graphstrap.io._store_info import StoreInfo, Taker, is_size, read_info
from graphstrap.io._store_sizes import check_block, check_sizes

PARTS_FILE, PART_FILE = "parts.json", "part.json"
PARTS_FORMAT, PART_FORMAT = "graphstrap-parts", "graphstrap-part"
MAX_PARTS = 1 << 15


@dataclass(frozen=True)
class PartsInfo:
    """What `parts.json` says beside what a store's does."""

    info: StoreInfo
    num_edges: int
    num_classes: int
    num_relations: int
    fingerprint: str
    training_classes: tuple[int, ...] | None  # none where there are no labels
    digests: tuple[str, ...]  # of every part's JSON
    cut: dict[str, Any]  # how it was cut

    @property
    def num_parts(self) -> int:
        return len(self.digests)

    def folder_of(self, number: int) -> Path:
        return self.info.folder / part_name(number)


def part_name(number: int) -> str:
    return f"part-{number:05}"


def read_parts_info(path: str | os.PathLike[str]) -> PartsInfo:
    """Read and check `parts.json`, and the sizes of the arrays beside it."""
    info = read_info(path, file_name=PARTS_FILE, kind=PARTS_FORMAT)
    take = Taker(info.folder, info.about, PARTS_FILE)
    classes = take("training_classes", lambda v: v is None or (isinstance(v, list) and all(map(is_size, v))))
    found = PartsInfo(
        info,
        num_edges=take("num_edges", is_size),
        num_classes=take("num_classes", is_size),
        num_relations=take("num_relations", lambda v: is_size(v) and v > 0),
        fingerprint=take("fingerprint", lambda v: isinstance(v, str) and re.fullmatch(r"[0-9a-f]{32}", v) is not None),
        training_classes=None if classes is None else tuple(classes),
        digests=tuple(take("parts", _are_digests)),
        cut=take("cut", lambda v: isinstance(v, dict)),
    )
    _check_whole(found)
    return found


def read_part_info(found: PartsInfo, number: int) -> StoreInfo:
    """Read and check a part's JSON, which must be the one that `parts.json` knows, and the sizes of its arrays."""
    folder, whole = found.folder_of(number), found.info
    if folder.is_symlink():
        raise InputError(f"{folder} is a link: copy the part itself to its place")
    info = read_info(folder, file_name=PART_FILE, kind=PART_FORMAT)
    if digest_of(folder) != found.digests[number]:
        info.refuse(f"is damaged: it is not the part that {PARTS_FILE} speaks of: copy or prepare it again")
    if (info.blocks, len(info.type_offsets)) != (whole.blocks, len(whole.type_offsets)):
        info.refuse(f"is damaged: its features are not those of {PARTS_FILE}: copy or prepare it again")
    check_sizes(info, num_ids=whole.num_nodes)
    for name, count, dtypes in (
        ("nodes", info.num_nodes, ("<i8",)),
        ("first_edges", info.num_nodes, ("<i8",)),
        ("time_codes", info.num_nodes, ("|u1", "<i2", "<i4")),
        ("source_time_codes", info.num_edges, ("|u1", "<i2", "<i4")),
    ):
        is_needed = name in ("nodes", "first_edges") or "node_times" in info.arrays
        _check_vector(info, name, count, dtypes, is_needed=is_needed)
    return info


def open_tensor(info: StoreInfo, name: str) -> Tensor:
    if name not in info.arrays:
        info.refuse(f"is damaged: it has no array {name}: copy or prepare it again")
    return as_tensor(open_array(info.folder, name, info.arrays[name]), info.arrays[name].dtype)


def digest_of(folder: Path) -> str:
    """The checksum of a part's JSON, which has those of all its arrays."""
    try:
        return hashlib.sha256((folder / PART_FILE).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{folder / PART_FILE} cannot be read: {error.strerror or error}") from error


def _are_digests(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= MAX_PARTS
        and all(isinstance(one, str) and re.fullmatch(r"[0-9a-f]{64}", one) is not None for one in value)
    )


def _check_whole(found: PartsInfo) -> None:
    info = found.info
    if len(info.node_types) != len(info.blocks) or len(info.type_offsets) != len(info.blocks) + 1:
        info.refuse("is damaged: names, sizes and features of its node types differ in number")
    _check_vector(info, "part_of", info.num_nodes, ("|u1" if found.num_parts <= 256 else "<i2",), is_needed=True)
    _check_vector(info, "hot", None, ("<i8",), is_needed=True)
    for number, block in enumerate(info.blocks):
        if block is not None:
            name, kind = f"sample.{number}", "sparse" if block[0] == "sparse" else "dense"
            array = info.arrays.get(f"{name}.indptr" if kind == "sparse" else name)
            rows = 0 if array is None else array.shape[0] - (kind == "sparse")
            check_block(info, name, kind, block[1], rows=rows)


def _check_vector(info: StoreInfo, name: str, count: int | None, dtypes: tuple[str, ...], *, is_needed: bool) -> None:
    array = info.arrays.get(name)
    if array is None and not is_needed:
        return
    if array is None or array.dtype not in dtypes or count not in (None, array.shape[0]) or len(array.shape) != 1:
        info.refuse(f"is damaged: {name} is missing, or not of its type and size: copy or prepare it again")
