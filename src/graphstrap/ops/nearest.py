"""Nearest neighbours by cosine similarity: the k rows of one matrix nearest to each row of another.

search           all pairs, in blocks of bounded memory; of equally similar rows the smaller number comes first
nearest_nodes    every row of a matrix against all others. Up to EXACT_NODES rows by `search`. Beyond, k-means cells
                 of about sqrt(N) rows: a row is compared with those of the NUM_PROBED cells whose centres are
                 nearest to it, O(N^1.5 D) time instead of O(N^2 D). The k-th best of a row's first cells is a bound
                 that few rows of its other cells pass: only those few are sorted. `recall` measures what is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]

EXACT_NODES = 30_000
NUM_PROBED = 24
_NUM_FIRST = 2  # cells that give the bound
_MAX_CELL = 16  # times sqrt(N); of a larger cell, as of nodes that are all alike, an even choice is compared
_BLOCK_ENTRIES = 2**21  # similarities at a time
_KMEANS_ROUNDS = 6
_KMEANS_SAMPLE = 64  # nodes a cell


def search(
    queries: Any, known: Any, *, k: int, own: Tensor | None = None, order_ties: bool = True
) -> tuple[Tensor, Tensor]:
    """The k rows of `known` (N, D) nearest to each of the `queries` (Q, D), the nearest first.

    Args:
        queries: rows of length 1, a dense tensor or a SciPy matrix.
        known: rows of length 1, of the same kind.
        k: at most N, or N - 1 with `own`.
        own: (Q,) for each query the row of `known` that it is itself, which is left out.
        order_ties: of equally similar rows take the smaller number first. Without it any may come first, as `topk`
            happens to find them.

    Returns:
        Row numbers and cosine similarities, both (Q, k).
    """
    num_queries, size = queries.shape[0], max(1, _BLOCK_ENTRIES // known.shape[0])
    if num_queries == 0 or k == 0:
        return torch.zeros(num_queries, k, dtype=torch.int64), torch.zeros(num_queries, k)
    found = []
    for start in range(0, num_queries, size):
        product = queries[start : start + size] @ known.T
        cosines = product if isinstance(product, Tensor) else torch.from_numpy(product.toarray())
        if own is not None:
            block = own[start : start + size]
            cosines[torch.arange(len(block), device=cosines.device), block] = -2.0
        found.append(_largest(cosines, k) if order_ties else cosines.topk(k, dim=1)[::-1])
    return torch.cat([places for places, _ in found]), torch.cat([values for _, values in found])


def _largest(cosines: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Places and values of the k largest of each row, of equal values the first."""
    values, places = cosines.topk(min(k + 1, cosines.shape[1]), dim=1)
    if values.shape[1] > k:
        bound = values[:, k - 1 : k]
        crowded = (values[:, k:] == bound)[:, 0].nonzero()[:, 0]  # more rows equal the k-th than have room
        values, places = values[:, :k], places[:, :k].clone()
        if len(crowded):
            rows, least = cosines[crowded], bound[crowded]
            level = rows == least
            num_free = k - (rows > least).sum(1, keepdim=True)
            is_taken = (rows > least) | (level & (level.cumsum(1) <= num_free))
            places[crowded] = is_taken.nonzero()[:, 1].view(-1, k)
    places = places.sort(dim=1).values
    order = cosines.gather(1, places).sort(dim=1, descending=True, stable=True)
    return places.gather(1, order.indices), order.values


class Nearest(NamedTuple):
    """(N, k) node numbers, the most similar first, and their cosine similarities."""

    nodes: Array  # int32
    similarities: Array  # float32
    is_exact: bool = True
    recall: float = 1.0  # the share of the true ones that are here, measured on a sample


def nearest_nodes(h: Array, *, k: int, seed: int = 0, exact_nodes: int = EXACT_NODES) -> Nearest:
    """The k nearest of every row of h; fewer where there are fewer other nodes."""
    unit = unit_rows(h)
    k = min(k, len(unit) - 1)
    if k < 1:
        return Nearest(np.zeros((len(unit), 0), np.int32), np.zeros((len(unit), 0), np.float32))
    if len(unit) > exact_nodes:
        return _search_cells(unit, k, seed)
    nodes, similarities = search(unit, unit, k=k, own=torch.arange(len(unit)))
    return Nearest(nodes.int().numpy(), similarities.numpy())


def recall(found: Array, unit: Tensor, *, seed: int = 0, num_nodes: int = 500) -> float:
    """The share of the true nearest nodes that was found, over a sample of nodes. `unit`: see `unit_rows`."""
    chosen = np.random.default_rng((seed, 1)).permutation(len(unit))[:num_nodes]  # not those that cells grew around
    queries = torch.from_numpy(chosen)
    true = search(unit[queries], unit, k=found.shape[1], own=queries)[0].numpy()
    hits = (found[chosen][:, :, None] == true[:, None, :]).any(1)
    return float(hits.mean())


def unit_rows(h: Array) -> Tensor:
    """Rows of length 1, float32; a row of zeros stays as it is."""
    return torch.nn.functional.normalize(torch.from_numpy(np.ascontiguousarray(h, dtype=np.float32)))


def _search_cells(unit: Tensor, k: int, seed: int) -> Nearest:
    centres = _centres(unit, round(len(unit) ** 0.5), seed)
    blocks, num_probed = torch.split(unit, _BLOCK_ENTRIES // len(centres)), min(NUM_PROBED, len(centres))
    probed = torch.cat([(block @ centres.T).topk(num_probed, dim=1).indices for block in blocks])  # (N, P)
    members = _members(probed[:, 0], len(centres))
    nodes, similarities = _first_best(unit, members, probed[:, :_NUM_FIRST], k)
    bound = similarities[:, -1].contiguous()
    there = nodes >= 0
    first = there.nonzero()[:, 0], nodes[there], similarities[there]
    pairs = [first, *_above(unit, members, probed[:, _NUM_FIRST:], bound)]
    nodes, similarities = _best(pairs, len(unit), k)
    few = (nodes[:, -1] < 0).nonzero()[:, 0]  # fewer than k others in all of their cells
    if len(few):
        nodes[few], similarities[few] = search(unit[few], unit, k=k, own=few)
    found = nodes.int().numpy()
    return Nearest(found, similarities.numpy(), False, recall(found, unit, seed=seed))


def _first_best(unit: Tensor, members: list[Tensor], probed: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of a few cells (N, P): nodes and similarities (N, k), -1 and -2 where there are fewer."""
    num_nodes, width = len(unit), probed.shape[1]
    nodes = torch.full((num_nodes * width, k), -1)
    similarities = torch.full((num_nodes * width, k), -2.0)
    for places, queries, own, cosines in _products(unit, members, probed):
        cosines.masked_fill_(queries[:, None] == own, -2.0)
        best = cosines.topk(min(k, len(own)), dim=1)
        similarities[places, : best.values.shape[1]] = best.values
        nodes[places, : best.values.shape[1]] = own[best.indices].masked_fill_(best.values == -2.0, -1)
    best = similarities.view(num_nodes, -1).topk(k, dim=1)
    return nodes.view(num_nodes, -1).gather(1, best.indices), best.values


Pairs = tuple[Tensor, Tensor, Tensor]  # a node, another, how similar they are; each (M,)


def _above(unit: Tensor, members: list[Tensor], probed: Tensor, bound: Tensor) -> Iterator[Pairs]:
    """Pairs of a node and one of its probed cells (N, P) that are more similar than the node's bound (N,)."""
    for _, queries, own, cosines in _products(unit, members, probed):
        at = (cosines > bound.index_select(0, queries)[:, None]).view(-1).nonzero()[:, 0]
        nodes, others = queries[at // len(own)], own[at % len(own)]
        is_other = nodes != others
        yield nodes[is_other], others[is_other], cosines.view(-1)[at[is_other]]


def _products(unit: Tensor, members: list[Tensor], probed: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Cell by cell: places in the flattened `probed` that name it, their nodes, the cell's nodes, similarities."""
    flat = probed.reshape(-1)
    order = torch.sort(flat, stable=True).indices
    groups = torch.split(order, torch.bincount(flat, minlength=len(members)).tolist())
    for own, group in zip(members, groups, strict=True):
        if len(own) == 0:
            continue
        known = unit.index_select(0, own).T.contiguous()
        for places in torch.split(group, max(1, _BLOCK_ENTRIES // len(own))):
            queries = places // probed.shape[1]
            yield places, queries, own, unit.index_select(0, queries) @ known


def _best(pairs: list[Pairs], num_nodes: int, k: int) -> tuple[Tensor, Tensor]:
    """The k most similar of every node's pairs: (N, k) each, -1 and -2 where there are fewer."""
    queries, others, similarities = (torch.cat(columns) for columns in zip(*pairs, strict=True))
    order = torch.sort(similarities, descending=True, stable=True).indices
    order = order[torch.sort(queries[order], stable=True).indices]
    counts = torch.bincount(queries, minlength=num_nodes)
    ranks = torch.arange(k)
    places = order[((counts.cumsum(0) - counts)[:, None] + ranks).clamp_(max=len(order) - 1)]
    missing = ranks >= counts[:, None]
    return others[places].masked_fill_(missing, -1), similarities[places].masked_fill_(missing, -2.0)


def _centres(unit: Tensor, num_cells: int, seed: int) -> Tensor:
    """Of cells, by spherical k-means on a sample."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(unit)))
    sample = unit[order[: num_cells * _KMEANS_SAMPLE]]
    centres = sample[:num_cells].clone()
    for _ in range(_KMEANS_ROUNDS):
        sums = torch.zeros_like(centres).index_add_(0, (sample @ centres.T).argmax(1), sample)
        empty = sums.norm(dim=1) == 0
        centres = torch.where(empty[:, None], centres, torch.nn.functional.normalize(sums))
    return centres


def _members(cell_of: Tensor, num_cells: int) -> list[Tensor]:
    """The nodes of each cell; an even choice of those of a cell that is far too large."""
    order = torch.sort(cell_of, stable=True).indices
    most = _MAX_CELL * round(len(cell_of) ** 0.5)
    cells = torch.split(order, torch.bincount(cell_of, minlength=num_cells).tolist())
    return [nodes[:: 1 + len(nodes) // most] for nodes in cells]
