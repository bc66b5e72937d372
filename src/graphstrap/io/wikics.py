"""WikiCS as its authors publish it: one data.json with features, labels, links and 20 splits.

Mernyei and Cangea, Wiki-CS: A Wikipedia-Based Benchmark for Graph Neural Networks, 2020.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io._splits import splits_from_masks
from graphstrap.plain import read_plain_bytes

KEYS = ("features", "labels", "links", "train_masks", "val_masks", "test_mask")


def read_wikics(path: str | os.PathLike[str]) -> Graph:
    """Read data.json, or the folder that holds it. Links become undirected; `stopping_masks` are not used."""
    path = Path(path) / "data.json" if Path(path).is_dir() else Path(path)
    data = _read_json(path)
    try:
        return _build(data)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path} does not hold a consistent WikiCS graph ({error}): download it again") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_plain_bytes(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a readable JSON file ({error}): download data.json again") from error
    missing = [key for key in KEYS if not isinstance(data, dict) or key not in data]
    if missing:
        raise InputError(f"{path}: {missing[0]} is missing: WikiCS's data.json has it")
    found: dict[str, Any] = data
    return found


def _build(data: dict[str, Any]) -> Graph:
    labels = np.array(data["labels"], dtype=np.int64)
    targets = [np.array(row, dtype=np.int64).reshape(-1) for row in data["links"]]
    if len(targets) != len(labels):
        raise ValueError(f"links has {len(targets)} rows for {len(labels)} labels")
    source = np.repeat(np.arange(len(targets)), [len(row) for row in targets])
    train, val = (np.array(data[key], dtype=bool).T for key in ("train_masks", "val_masks"))
    return Graph.from_edges(
        source,
        np.concatenate([np.zeros(0, dtype=np.int64), *targets]),
        num_nodes=len(labels),
        x=_features(data["features"]),
        labels=labels,
        splits=splits_from_masks(train, val, np.array(data["test_mask"], dtype=bool), num_nodes=len(labels)),
        name="wikics",
    )


def _features(rows: Any) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        x = np.array(rows, dtype=np.float64).astype(np.float32)
    if not np.isfinite(x).all():
        raise ValueError("a feature is NaN, infinite or too large")
    return x
