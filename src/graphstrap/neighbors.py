"""The nodes most like a given one, by cosine similarity."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.graph import Graph


def find_node(graph: Graph, text: str) -> int:
    """The number of the node with this external id, given as text."""
    ids = graph.external_ids
    matches = np.flatnonzero(ids.astype(np.str_) == text)
    if len(matches) == 0:
        close = difflib.get_close_matches(text, ids[:50_000].astype(np.str_).tolist(), n=1)
        raise InputError(f"there is no node {text!r}{f'; did you mean {close[0]!r}?' if close else ': check the id'}")
    return int(matches[0])


def find_neighbors(h: np.ndarray[Any, Any], node: int, *, k: int) -> list[tuple[int, float]]:
    """The k nodes nearest to `node`, the nearest first, each with its cosine similarity."""
    norms = np.maximum(np.linalg.norm(h, axis=1), 1e-12)
    similarity = (h @ h[node]) / (norms * norms[node])
    similarity[node] = -np.inf
    k = min(k, len(h) - 1)
    nearest = np.argpartition(-similarity, k - 1)[:k] if k else np.array([], dtype=int)
    nearest = nearest[np.lexsort((nearest, -similarity[nearest]))]
    return [(int(i), float(similarity[i])) for i in nearest]
