"""How alike each row is to all others, in blocks of rows: nothing of size M x M is ever held.

    forward     t_i  =  log sum over j != i of e^(k_i . k_j)
    backward    dL/dk_i  =  sum over j != i of (g_i e^(s_ij - t_i) + g_j e^(s_ij - t_j)) k_j      s_ij = k_i . k_j

The similarities are symmetric, so the backward pass computes each block of them once more, and one product of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphstrap.ops._torch import apply

NUMBERS_PER_BLOCK = 2**23  # similarities at once: 32 MB


def log_total_others(keys: Tensor, *, bound: float | None = None) -> Tensor:
    """See `graphstrap.ops.log_total_others`; a bound changes nothing here."""
    return apply(_LogTotalOthers, keys)


class _LogTotalOthers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor) -> Tensor:
        total = keys.new_empty(len(keys), dtype=torch.promote_types(keys.dtype, torch.float32))
        for rows in _blocks(keys):
            total[rows] = torch.logsumexp(_similarities(keys, rows), dim=1)
        ctx.save_for_backward(keys, total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        keys, total = ctx.saved_tensors
        result = torch.empty_like(keys)
        for rows in _blocks(keys):
            similarity = _similarities(keys, rows)
            weight = gradient[rows, None] * (similarity - total[rows, None]).exp_()
            weight += gradient * similarity.sub_(total).exp_()
            torch.mm(weight.to(keys.dtype), keys, out=result[rows])
        return result


def _blocks(keys: Tensor) -> list[slice]:
    size = max(1, NUMBERS_PER_BLOCK // max(1, len(keys)))
    return [slice(first, first + size) for first in range(0, len(keys), size)]


def _similarities(keys: Tensor, rows: slice) -> Tensor:
    """(B, M) of a block of rows with all; -inf with itself."""
    similarity = (keys[rows] @ keys.T).to(torch.promote_types(keys.dtype, torch.float32))
    return similarity.diagonal_scatter(similarity.new_full((len(similarity),), -torch.inf), rows.start)
