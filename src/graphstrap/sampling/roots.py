"""Which roots a step gets: a function of (seed, step), so that a resumed run sees the batches of the uninterrupted one.

Every epoch visits all candidates once, in an order of its own; the rest that does not fill a batch begins the next one,
so every batch has the same size. No order is ever made: see `_draw.permuted`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.keep import child_seed
from graphstrap.sampling._draw import permuted

_ROOTS_BRANCH = 1_000_037


def roots_at(step: int, *, candidates: Tensor | int, batch_size: int, seed: int) -> Tensor:
    """The roots of a step (from 1 up), all different.

    Args:
        candidates: the nodes to choose from, or their number for 0, 1, 2, ...
    """
    size = candidates if isinstance(candidates, int) else len(candidates)
    if size == 0:
        raise InputError(
            "there are no nodes to be roots: choose other sampling.root_types, or give nodes of these types"
        )
    batch_size = min(batch_size, size)
    places = torch.arange((step - 1) * batch_size, step * batch_size)
    epochs = places // size
    chosen = torch.empty_like(places)
    for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
        is_now = epochs == epoch
        chosen[is_now] = permuted(places[is_now] % size, size=size, seed=child_seed(seed, _ROOTS_BRANCH, epoch))
    chosen = _without_repeats(chosen, size=size, seed=child_seed(seed, _ROOTS_BRANCH, step, 1))
    return chosen if isinstance(candidates, int) else candidates.cpu().index_select(0, chosen)


def _without_repeats(chosen: Tensor, *, size: int, seed: int) -> Tensor:
    """Where the end of one epoch and the beginning of the next have a node in common, another takes its place."""
    ordered, order = torch.sort(chosen, stable=True)
    repeated = order[1:][ordered[1:] == ordered[:-1]]
    if len(repeated) == 0:
        return chosen
    substitutes = permuted(torch.arange(min(size, len(chosen) + len(repeated))), size=size, seed=seed)
    unused = substitutes[~torch.isin(substitutes, chosen)]
    return chosen.index_copy(0, repeated, unused[: len(repeated)])
