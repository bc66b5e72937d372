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
        known, wanted = ids[:_MOST_COMPARED].astype(np.str_).tolist(), _simplified(text)
        close = [one for one in known if _simplified(one) == wanted]
        close = close or difflib.get_close_matches(text, known[:_MOST_ALIGNED], n=1)
        raise InputError(f"there is no node {text!r}{f'; did you mean {close[0]!r}?' if close else ': check the id'}")
    return int(matches[0])


def _simplified(id_: str) -> str:
    """Without capitals, spaces and leading zeros."""
    return re.sub(r"(?<!\d)0+(?=\d)|\s", "", id_.lower())


def find_neighbors(h: np.ndarray[Any, Any], node: int, *, k: int) -> list[tuple[int, float]]:
    """The k nodes nearest to `node`, the nearest first, each with its cosine similarity."""
    unit = unit_rows(h)
    nodes, similarities = search(unit[[node]], unit, k=min(k, len(unit) - 1), own=torch.tensor([node]))
    return list(zip(nodes[0].tolist(), similarities[0].tolist(), strict=True))
