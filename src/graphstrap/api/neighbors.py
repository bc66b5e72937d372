"""The nodes most like a given one, by cosine similarity."""

from __future__ import annotations

import difflib
import re
from typing import Any

import numpy as np
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.ops.nearest import search, unit_rows

_MOST_COMPARED, _MOST_ALIGNED = 1_000_000, 50_000  # ids that a misspelt one is compared with, a second or two each


def find_node(graph: Graph, text: str) -> int:
    """The number of the node with this external id, given as text."""
    ids = graph.external_ids
    matches = np.flatnonzero(ids.astype(np.str_) == text)
    if len(matches) == 0:
        close = _closest(text, ids[:_MOST_COMPARED].astype(np.str_).tolist())
        raise InputError(f"there is no node {text!r}{f'; did you mean {close!r}?' if close else ': check the id'}")
    return int(matches[0])


def _closest(text: str, ids: list[str]) -> str | None:
    """The id that was meant: the one that differs in capitals, spaces and leading zeros alone, else a similar one."""
    wanted = _simplified(text)
    same = next((id_ for id_ in ids if _simplified(id_) == wanted), None)
    return same or next(iter(difflib.get_close_matches(text, ids[:_MOST_ALIGNED], n=1)), None)


def _simplified(id_: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)|\s", "", id_.lower())


def find_neighbors(h: np.ndarray[Any, Any], node: int, *, k: int) -> list[tuple[int, float]]:
    """The k nodes nearest to `node`, the nearest first, each with its cosine similarity."""
    unit = unit_rows(h)
    nodes, similarities = search(unit[[node]], unit, k=min(k, len(unit) - 1), own=torch.tensor([node]))
    return list(zip(nodes[0].tolist(), similarities[0].tolist(), strict=True))
