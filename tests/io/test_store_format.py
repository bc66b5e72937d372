"""Hostile and damaged stores: one clear sentence, at once, whatever they claim."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphstrap.errors import InputError
from graphstrap.io.store import open_store, verify_store, write_store
from same_graph import make_full_graph


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(make_full_graph(seed=0), tmp_path / "store")
    return tmp_path / "store"


def change(store: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    described = json.loads((store / "store.json").read_text())
    edit(described)
    (store / "store.json").write_text(json.dumps(described))


BAD_JSON: dict[str, Callable[[dict[str, Any]], Any]] = {
    "version": lambda d: d.update(version=99),
    "no version": lambda d: d.pop("version"),
    "format": lambda d: d.update(format="zip"),
    "parent": lambda d: d["arrays"].update({"../../etc/passwd": d["arrays"]["indptr"]}),
    "absolute": lambda d: d["arrays"].update({"/etc/passwd": d["arrays"]["indptr"]}),
    "no arrays": lambda d: d.pop("arrays"),
    "array list": lambda d: d.update(arrays=[1, 2]),
    "huge": lambda d: d["arrays"]["indices"].update(shape=[2**62]),
    "large": lambda d: d["arrays"]["indices"].update(shape=[2**40]),
    "negative": lambda d: d["arrays"]["indices"].update(shape=[-1]),
    "true": lambda d: d["arrays"]["indices"].update(shape=[True]),
    "scalar": lambda d: d["arrays"]["indices"].update(shape=[]),
    "pickle": lambda d: d["arrays"]["ids"].update(dtype="|O"),
    "endian": lambda d: d["arrays"]["indptr"].update(dtype=">i8"),
    "dtype": lambda d: d["arrays"]["indptr"].update(dtype="<f8"),
    "wide": lambda d: d["arrays"]["ids"].update(dtype="<U999999999"),
    "offsets": lambda d: d.update(type_offsets=[0, 7]),
    "falling": lambda d: d.update(type_offsets=[0, 40, 30], node_types=["a", "b"]),
    "no offsets": lambda d: d.update(type_offsets=[]),
    "names": lambda d: d.update(node_types=[1]),
    "kind": lambda d: d["features"][0].update(kind="pickle"),
    "list of kinds": lambda d: d["features"][0].update(kind=[]),
    "columns": lambda d: d["features"][0].update(columns="x"),
    "dense": lambda d: d["features"][0].update(kind="dense"),
    "no block": lambda d: d.update(features=[]),
    "missing": lambda d: d["arrays"].pop("out_indices"),
    "part of splits": lambda d: d["arrays"].pop("val"),
    "cleaning": lambda d: d.update(cleaning={"__class__": 1}),
    "name": lambda d: d.update(name=3),
}


@pytest.mark.parametrize("edit", BAD_JSON.values(), ids=BAD_JSON)
def test_a_wrong_description_is_refused(store: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    change(store, edit)
    with pytest.raises(InputError, match="store"):
        open_store(store)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000, '{"format": "graphstrap-store"}', "\udcff"])
def test_a_description_that_is_no_json_is_refused(store: Path, text: str) -> None:
    (store / "store.json").write_text(text, errors="surrogateescape")
    with pytest.raises(InputError, match="store"):
        open_store(store)


def test_what_is_no_folder_or_no_regular_file_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no store\.json"):
        open_store(tmp_path / "nothing")
    os.rename(store / "indices.npy", tmp_path / "elsewhere.npy")
    with pytest.raises(InputError, match="cannot be opened"):
        open_store(store)
    os.symlink(tmp_path / "elsewhere.npy", store / "indices.npy")
    with pytest.raises(InputError, match="regular file"):
        open_store(store)
    os.unlink(store / "indices.npy")
    os.mkfifo(store / "indices.npy")
    with pytest.raises(InputError, match="regular file"):
        open_store(store)
    os.unlink(store / "indices.npy")
    os.mkdir(store / "indices.npy")
    with pytest.raises(InputError, match="regular file"):
        open_store(store)


def test_a_linked_description_is_refused(store: Path, tmp_path: Path) -> None:
    os.rename(store / "store.json", tmp_path / "other.json")
    os.symlink(tmp_path / "other.json", store / "store.json")
    with pytest.raises(InputError, match="no store"):
        open_store(store)


@pytest.mark.parametrize("name", ["indptr", "indices", "features.0.values", "ids", "out_positions", "train"])
@pytest.mark.parametrize("size", [0, 5, 64, -1, 1])
def test_truncated_and_padded_arrays_are_refused(store: Path, name: str, size: int) -> None:
    path = store / f"{name}.npy"
    data = path.read_bytes()
    path.write_bytes(data + b"x" if size == 1 else data[:size])
    with pytest.raises(InputError, match="store"):
        open_store(store)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '|O', 'fortran_order': False, 'shape': (31,), }",
        b"{'descr': '<i8', 'fortran_order': True, 'shape': (31,), }",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (2305843009213693952,), }",
        b"__import__('os').system('true')",
        b"(" * 5000,
        b"",
    ],
)
def test_a_wrong_header_is_refused(store: Path, header: bytes) -> None:
    header += b" " * (118 - len(header)) + b"\n"
    data = (store / "indptr.npy").read_bytes()[128:]
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    (store / "indptr.npy").write_bytes(start + header + data)
    with pytest.raises(InputError, match="store"):
        open_store(store)


def test_one_changed_byte_fails_verification(store: Path) -> None:
    for path in sorted(store.glob("*.npy")):
        data = bytearray(path.read_bytes())
        if len(data) == 128:
            continue
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(InputError, match="damaged"):
            verify_store(store)
        data[-1] ^= 1
        path.write_bytes(data)
    verify_store(store)


@pytest.mark.parametrize("name", ["indptr", "indices", "out_indptr", "out_indices", "out_positions", "edge_types"])
def test_numbers_out_of_range_fail_verification_even_with_checksums(store: Path, name: str) -> None:
    """A store made by somebody who computes checksums too."""
    import hashlib

    path = store / f"{name}.npy"
    values = np.load(path)
    for place, value in ((2, 100), (len(values) // 2, -7 % 256), (len(values) - 2, values[-2] ^ 1)):
        wrong = values.copy()
        wrong[place] = value
        np.save(path, wrong)
        digest = hashlib.sha256(wrong.tobytes()).hexdigest()
        change(store, lambda d, digest=digest: d["arrays"][name].update(sha256=digest))  # type: ignore[misc]
        if name == "edge_types" and value in (0, 1):
            continue
        with pytest.raises(InputError, match="does not hold a graph"):
            verify_store(store)
