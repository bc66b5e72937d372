"""The k nearest nodes of every node, by cosine similarity.

    up to EXACT_NODES    all pairs, in blocks
    beyond               k-means cells of about sqrt(N) nodes; a node is compared with its own cell and the
                         NUM_PROBED - 1 cells nearest to that one: O(N^1.5 D) time instead of O(N^2 D)

The cells lose some neighbours at their borders: `recall` measures how many.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]

EXACT_NODES = 30_000
NUM_PROBED = 16
_BLOCK_ENTRIES = 2**24
_KMEANS_ROUNDS = 6
_KMEANS_SAMPLE = 64  # nodes a cell


class Nearest(NamedTuple):
    """(N, k) node numbers, the most similar first, and their cosine similarities."""

    nodes: Array  # int32
    similarities: Array  # float32
    is_exact: bool = True
    recall: float = 1.0  # the part of the true ones that are here, measured on a sample


def nearest_nodes(h: Array, *, k: int, seed: int = 0, exact_nodes: int = EXACT_NODES) -> Nearest:
    """The k nearest of every row of h; fewer where there are fewer other nodes."""
    unit = unit_rows(h)
    k = min(k, len(unit) - 1)
    if k < 1:
        return Nearest(np.zeros((len(unit), 0), np.int32), np.zeros((len(unit), 0), np.float32))
    if len(unit) <= exact_nodes:
        found = _search(unit, torch.arange(len(unit)), torch.arange(len(unit)), k)
        return Nearest(found[0].int().numpy(), found[1].numpy())
    return _search_cells(unit, k, seed)


def recall(found: Array, unit: Tensor, *, seed: int = 0, num_nodes: int = 500) -> float:
    """The part of the true nearest nodes that was found, over a sample of nodes. `unit`: see `unit_rows`."""
    chosen = np.random.default_rng(seed).permutation(len(unit))[:num_nodes]
    true = _search(unit, torch.from_numpy(chosen), torch.arange(len(unit)), found.shape[1])[0].numpy()
    hits = (found[chosen][:, :, None] == true[:, None, :]).any(1)
    return float(hits.mean())


def unit_rows(h: Array) -> Tensor:
    """Rows of length 1, float32; a row of zeros stays as it is."""
    return torch.nn.functional.normalize(torch.from_numpy(np.ascontiguousarray(h, dtype=np.float32)))


def _search(unit: Tensor, queries: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k candidates nearest to each query, itself left out. Both (Q, k)."""
    known = unit[candidates].T.contiguous()
    nodes, similarities = [], []
    for block in torch.split(queries, max(1, _BLOCK_ENTRIES // len(candidates))):
        cosines = unit[block] @ known
        cosines.masked_fill_(block[:, None] == candidates[None, :], -2.0)
        best = cosines.topk(k, dim=1)
        nodes.append(candidates[best.indices])
        similarities.append(best.values)
    return torch.cat(nodes), torch.cat(similarities)


def _search_cells(unit: Tensor, k: int, seed: int) -> Nearest:
    centres, cell_of = _cells(unit, round(len(unit) ** 0.5), seed)
    members = _members(cell_of, len(centres))
    probed = (centres @ centres.T).topk(min(NUM_PROBED, len(centres)), dim=1).indices
    nodes, similarities = torch.zeros(len(unit), k, dtype=torch.int64), torch.zeros(len(unit), k)
    for cell, own in enumerate(members):
        if len(own) == 0:
            continue
        candidates = torch.cat([members[other] for other in probed[cell].tolist()])
        if len(candidates) <= k:
            candidates = torch.arange(len(unit))
        nodes[own], similarities[own] = _search(unit, own, candidates, k)
    found = nodes.int().numpy()
    return Nearest(found, similarities.numpy(), False, recall(found, unit, seed=seed))


def _cells(unit: Tensor, num_cells: int, seed: int) -> tuple[Tensor, Tensor]:
    """Spherical k-means on a sample; the cell of every row."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(unit)))
    sample = unit[order[: num_cells * _KMEANS_SAMPLE]]
    centres = sample[:num_cells].clone()
    for _ in range(_KMEANS_ROUNDS):
        sums = torch.zeros_like(centres).index_add_(0, (sample @ centres.T).argmax(1), sample)
        empty = sums.norm(dim=1) == 0
        centres = torch.where(empty[:, None], centres, torch.nn.functional.normalize(sums))
    cell_of = torch.cat([(rows @ centres.T).argmax(1) for rows in torch.split(unit, _BLOCK_ENTRIES // num_cells)])
    return centres, cell_of


def _members(cell_of: Tensor, num_cells: int) -> list[Tensor]:
    order = torch.sort(cell_of, stable=True).indices
    return list(torch.split(order, torch.bincount(cell_of, minlength=num_cells).tolist()))
