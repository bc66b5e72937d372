"""Published splits from masks, one column per split."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Splits


def splits_from_masks(train: Any, val: Any, test: Any, *, num_nodes: int) -> Splits | None:
    """Masks of shape (N,) or (N, S), any of which may be None, as (N, S); None when all are."""
    given = {
        name: _columns(name, mask, num_nodes)
        for name, mask in (("train", train), ("val", val), ("test", test))
        if mask is not None
    }
    if not given:
        return None
    num_splits = max(mask.shape[1] for mask in given.values())
    absent = torch.zeros(num_nodes, 1, dtype=torch.bool)
    return Splits(*[_widened(name, given.get(name, absent), num_splits) for name in ("train", "val", "test")])


def _columns(name: str, mask: Any, num_nodes: int) -> Tensor:
    tensor = torch.as_tensor(mask).cpu()
    if tensor.dim() not in (1, 2) or len(tensor) != num_nodes:
        raise InputError(
            f"{name}_mask has shape {tuple(tensor.shape)}, expected one row for each of the {num_nodes} nodes"
        )
    return tensor.bool().reshape(num_nodes, -1)


def _widened(name: str, mask: Tensor, num_splits: int) -> Tensor:
    """One mask for every split where only one was given."""
    if mask.shape[1] not in (1, num_splits):
        raise InputError(
            f"{name}_mask has {mask.shape[1]} splits where another mask has {num_splits}: give as many or one"
        )
    return mask.expand(-1, num_splits).contiguous()
