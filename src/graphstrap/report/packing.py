"""Typed arrays in a page: one compressed block of bytes as base64, and a list that says where each array is.

    array  ->  its first bytes, its second bytes, ... (numbers of like size compress well so)  ->  zlib  ->  base64

`data.js` does the reverse.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Packer:
    """Takes arrays and JSON values; gives the list and the block."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, name: str, array: Array) -> None:
        """An array of uint8, uint16, int32 or float32."""
        assert array.dtype.name in {"uint8", "uint16", "int32", "float32"}, array.dtype
        little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        planes = little.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T
        self._append(name, array.dtype.name, np.ascontiguousarray(planes).tobytes())

    def add_json(self, name: str, value: Any) -> None:
        self._append(name, "json", json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())

    def block(self) -> str:
        """Everything as text that may stand in HTML."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), 6)).decode()

    def _append(self, name: str, kind: str, data: bytes) -> None:
        assert name not in self.entries
        self.entries[name] = {"kind": kind, "start": self._size, "size": len(data)}
        self._parts.append(data)
        self._size += len(data)


def quantise(values: Array, *, levels: int = 65_535) -> Array:
    """(N, 2) positions as uint16, both axes by the same scale, centred in the square."""
    low, high = values.min(0), values.max(0)
    extent = max(float((high - low).max()), 1e-12)
    centred = (values - (low + high) / 2) / extent + 0.5
    whole: Array = np.clip(np.rint(centred * levels), 0, levels).astype(np.uint16)
    return whole


def shorten_floats(values: Array) -> Array:
    """float32 rounded to 16 bits of precision (about 5 digits), which saves a quarter; whole numbers stay exact."""
    values = values.astype(np.float32)
    if bool((np.isnan(values) | (values == np.rint(values))).all()):
        return values
    bits = values.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x80) & 0xFFFFFF00).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)
