"""Arrays in a page: what goes in comes out."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np

from graphstrap.report.embedding_map import Packer, quantise, shorten_floats


def unpack(packer: Packer, name: str) -> Any:
    """What data.js does."""
    entry = packer.entries[name]
    data = zlib.decompress(base64.b64decode(packer.block()))[entry["start"] : entry["start"] + entry["size"]]
    if entry["kind"] == "json":
        return json.loads(data)
    kind = np.dtype(entry["kind"])
    planes = np.frombuffer(data, dtype=np.uint8).reshape(kind.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(kind.newbyteorder("<")).reshape(-1)


def test_arrays_and_values_come_back() -> None:
    random = np.random.default_rng(0)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "uint8": random.integers(256, size=7).astype(np.uint8),
        "uint16": random.integers(65536, size=(5, 2)).astype(np.uint16),
        "int32": random.integers(-(2**31), 2**31, size=9).astype(np.int32),
        "float32": random.normal(size=4).astype(np.float32),
        "empty": np.zeros(0, dtype=np.int32),
    }
    packer = Packer()
    for name, array in arrays.items():
        packer.add(name, array)
    packer.add_json("texts", ["ä", "</script>", "\u2028"])
    for name, array in arrays.items():
        assert np.array_equal(unpack(packer, name), array.reshape(-1)), name
    assert unpack(packer, "texts") == ["ä", "</script>", "\u2028"]
    assert "<" not in packer.block()


def test_positions_keep_their_shape() -> None:
    positions = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 5.0]])
    assert quantise(positions).tolist() == [[0, 16384], [65535, 16384], [65535, 49151]]
    assert quantise(np.zeros((3, 2))).tolist() == [[32768, 32768]] * 3


def test_floats_lose_little_and_whole_numbers_nothing() -> None:
    random = np.random.default_rng(0)
    values = (random.normal(size=1000) * 10.0 ** random.integers(-20, 20, size=1000)).astype(np.float32)
    assert np.allclose(shorten_floats(values), values, rtol=2**-16, atol=0)
    whole = random.integers(2**24, size=100).astype(np.float32)
    assert np.array_equal(shorten_floats(whole), whole)
    odd = np.array([np.nan, np.inf, -np.inf, 0.1], dtype=np.float32)
    assert np.array_equal(np.isfinite(shorten_floats(odd)), [False, False, False, True])
