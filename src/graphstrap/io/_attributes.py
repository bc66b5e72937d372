"""Attributes of nodes or edges, held as one dictionary each, as arrays; complaints name the node or edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch

from graphstrap.errors import InputError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Attributes:
    """`records[i]` holds the attributes of `places[i]`: a node's name, or an edge's two ends."""

    what: str  # "node" or "edge"
    places: list[Any]
    records: list[dict[str, Any]]

    def part(self, begin: int, end: int) -> Attributes:
        return Attributes(self.what, self.places[begin:end], self.records[begin:end])

    def find(self, name: str | None, usual: str | None) -> str | None:
        """The attribute asked for, which must be there; or the usual one, where it is there."""
        wanted = usual if name is None else name
        if wanted is None or any(wanted in record for record in self.records):
            return wanted
        if name is None:
            return None
        present = sorted({str(key) for record in self.records for key in record})
        raise InputError(f"no {self.what} has the attribute {name!r}: choose from {', '.join(present) or 'none'}")

    def column(self, name: str) -> Array:
        """An attribute that every record has, as one array of numbers or true/false values."""
        for place, record in zip(self.places, self.records, strict=True):
            if name not in record:
                raise InputError(f"{self.what} {place!r} lacks the attribute {name!r} that others have: set it for all")
        try:
            values = np.array([record[name] for record in self.records])
        except ValueError as error:
            raise InputError(f"the attribute {name!r} has different lengths in different {self.what}s") from error
        if values.dtype.kind not in "buif":
            raise InputError(f"the attribute {name!r} of {self.what}s must be numbers: got {values.dtype}")
        return values

    def numbers(self, name: str | None, *, filling: float) -> Array | None:
        """One number for each record, with a filling where it lacks the attribute."""
        if name is None:
            return None
        filled = [{name: record.get(name, filling)} for record in self.records]
        return Attributes(self.what, self.places, filled).column(name).astype(np.float32)

    def vectors(self, name: str | tuple[str, ...] | None) -> torch.Tensor | None:
        """(N, F) features from a vector attribute or from several numbers; None where no record has any."""
        if isinstance(name, tuple):
            stacked = np.stack([self.column(one) for one in name], axis=1)
        elif name is None or not any(name in record for record in self.records):
            return None
        else:
            stacked = self.column(name).reshape(len(self.records), -1)
        return torch.from_numpy(stacked.astype(np.float32))

    def categories(self, name: str | None, known: Sequence[str] | None) -> tuple[Array | None, tuple[str, ...]]:
        """Numbers for text values, and the names: the known ones first, others in the order of the alphabet."""
        if name is None:
            return None, ()
        for place, record in zip(self.places, self.records, strict=True):
            if name not in record:
                raise InputError(f"{self.what} {place!r} lacks the attribute {name!r} that others have: set it for all")
        values = [str(record[name]) for record in self.records]
        names = tuple(dict.fromkeys([*(known or ()), *sorted(set(values))]))
        number = {text: place for place, text in enumerate(names)}
        return np.array([number[value] for value in values], dtype=np.int64), names

    def labels(self, name: str | None, known: Sequence[str] | None) -> tuple[Array | None, tuple[str, ...] | None]:
        """Labels and class names. Whole numbers stay; text is numbered; lists of 0 and 1 are several labels a node."""
        names = None if known is None else tuple(known)
        if name is None:
            return None, names
        given = [record.get(name) for record in self.records]
        present = [label for label in given if label is not None]
        if all(isinstance(label, Integral) for label in present):
            return np.array([-1 if label is None else int(label) for label in given], dtype=np.int64), names
        if all(isinstance(label, list | tuple | np.ndarray) for label in present):
            empty = [0] * len(present[0])
            return np.array([empty if label is None else label for label in given], dtype=np.uint8), names
        if not all(isinstance(label, str) for label in present):
            raise InputError(
                f"the label {name!r} must be whole numbers, text or lists of 0 and 1, and the same everywhere"
            )
        names = tuple(dict.fromkeys([*(names or ()), *sorted(set(present))]))
        number = {text: place for place, text in enumerate(names)}
        return np.array([-1 if label is None else number[label] for label in given], dtype=np.int64), names


def as_ids(names: list[Any]) -> Array | None:
    """External ids from node names: None for 0, 1, 2, ...; integers; or text, which must tell the nodes apart."""
    if all(isinstance(name, Integral) for name in names):
        ids = np.array(names, dtype=np.int64)
        return None if np.array_equal(ids, np.arange(len(ids))) else ids
    texts = [str(name) for name in names]
    if len(set(texts)) < len(texts):
        raise InputError("two node names look the same as text: relabel the nodes with integers or distinct strings")
    return np.array(texts)
