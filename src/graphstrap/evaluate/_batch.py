"""A rectangle of problems: B data sets with P problems each, of which those that are done are masked, then leave.

All tensors are (B, P, ...), so that a step is a few products for all of the problems. A problem that is done stands
still by its mask, whatever its neighbours do. The rectangle becomes narrower as soon as the busiest data set has a
fifth fewer problems at work than it has room for; to know that the host must wait for the device, so it asks rarely.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORTH_LEAVING = 0.8  # of the width: leaving has a cost, so only in groups


def count_at_work(at_work: Tensor) -> int:
    """Problems at work in the busiest data set, of a mask (B, P). Waits for the device."""
    return int(at_work.sum(1).max())


def narrow(at_work: Tensor, number: int) -> Tensor | None:
    """(B, number) places of problems to go on with, those at work first; None where it is not worth it."""
    num_sets, width = at_work.shape
    if number >= WORTH_LEAVING * width:
        return None
    columns = at_work.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :number]
    return columns + torch.arange(0, num_sets * width, width, device=columns.device)[:, None]


def all_places(tensor: Tensor) -> Tensor:
    """(B, P) the places of the problems of a tensor (B, P, ...): b P + p."""
    num_sets, width = tensor.shape[:2]
    return torch.arange(num_sets * width, device=tensor.device).view(num_sets, width)


def take(tensor: Tensor, places: Tensor) -> Tensor:
    """The problems at these places, (B, P, ...) -> (B, number, ...)."""
    return tensor.flatten(0, 1).index_select(0, places.flatten()).view(*places.shape, *tensor.shape[2:])


def put(answer: Tensor, places: Tensor, values: Tensor) -> None:
    """Write (B, number, ...) values to these places, all of them different, of an answer (B, P, ...)."""
    answer.view(-1, *answer.shape[2:]).index_copy_(0, places.flatten(), values.flatten(0, 1))
