"""A fingerprint: the same numbers have the same one on every machine, on every device, in int32 or int64."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

_HASHED_AT_ONCE = 1 << 24


def fingerprint_of(offsets: Sequence[tuple[int, ...]], ids: np.ndarray[Any, Any], tensors: Iterable[Tensor]) -> str:
    """A hash of offsets, of ids as text, and of tensors; part by part, since any of them may be larger than memory."""
    digest = hashlib.blake2b(digest_size=16)
    for row in offsets:
        digest.update(repr(row).encode())
    for first in range(0, len(ids), _HASHED_AT_ONCE):
        part = ids[first : first + _HASHED_AT_ONCE].tolist()
        digest.update(("\n" if first else "").encode() + "\n".join(map(str, part)).encode())
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        step = max(1, _HASHED_AT_ONCE // max(1, tensor[:1].numel()))
        for first in range(0, len(tensor), step):
            digest.update(_bytes(tensor[first : first + step].detach().cpu().contiguous()))
    return digest.hexdigest()


def _bytes(part: Tensor) -> bytes:
    if part.dtype == torch.int32:
        part = part.long()
    return (part.view(torch.int16) if part.dtype == torch.bfloat16 else part).numpy().tobytes()
