"""Views and the hashes behind them: which edges and features survive, seeds of seeds, the fingerprint of a graph.

A View is a description of an augmented graph, not a copy of it: a ViewSpec says how strongly to perturb, and a View is
one draw: the spec and a seed. It costs nothing to make, to store or to send.

An id survives where a counter-based hash reaches an integer threshold:

    keep(id, seed)  =  hash32(id, seed) >= drop_prob * 2**32

Nothing is stored and nothing is drawn in order, so any edge can be asked at any time, on any device, and always gives
the same answer. Only integer operators are used and every product is cut to 32 bits, so one function serves Python
integers, NumPy int64 arrays and PyTorch int64 tensors with the same bits. (PyTorch's uint32 lacks operations: hence
int64.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

LOW_32_BITS = 0xFFFF_FFFF
_IN_CACHE = 1 << 16  # ids: 512 kB
_HASHED_AT_ONCE = 1 << 24

# Integers, NumPy int64 arrays or PyTorch int64 tensors: all have the operators that the hash needs.
Integers = Any


def mix(x: Integers) -> Integers:
    """A bijection of 32-bit words: every input bit flips every output bit with probability close to one half."""
    x = x ^ (x >> 16)  # a new array, which the rest is written over
    x *= 0x7FEB352D
    x &= LOW_32_BITS
    x ^= x >> 15
    x *= 0x846CA68B
    x &= LOW_32_BITS
    x ^= x >> 16
    return x


def hash32(ids: Integers, seed: Integers) -> Integers:
    """Hash non-negative 64-bit ids with a 64-bit seed to words in [0, 2**32)."""
    first_key = mix((seed & LOW_32_BITS) ^ 0x9E3779B9)
    second_key = mix(((seed >> 32) & LOW_32_BITS) ^ first_key ^ 0x85EBCA6B)
    low = mix((ids & LOW_32_BITS) ^ first_key)
    return mix(((low + second_key) & LOW_32_BITS) ^ mix(ids >> 32))


def drop_threshold(drop_prob: Any) -> Integers:
    """The integer below which a hash means "dropped": drop_prob * 2**32, exact at 0 and at 1."""
    if isinstance(drop_prob, Tensor):
        return (drop_prob.double() * 2.0**32).round().long()
    if isinstance(drop_prob, np.ndarray):
        return np.round(drop_prob.astype(np.float64) * 2.0**32).astype(np.int64)
    return round(float(drop_prob) * 2**32)


def keep(ids: Integers, seed: Integers, threshold: Integers) -> Any:
    """Whether each id survives; `threshold` comes from `drop_threshold` and may hold one value per id."""
    if not isinstance(ids, Tensor) or ids.device.type != "cpu" or ids.numel() <= _IN_CACHE:
        return hash32(ids, seed) >= threshold
    # Slice by slice, so that all between ids and answers stays in the processor's cache: many times as fast.
    kept = torch.empty(ids.shape, dtype=torch.bool)
    slices, answers = torch.split(ids.reshape(-1), _IN_CACHE), torch.split(kept.view(-1), _IN_CACHE)
    thresholds: Iterable[Integers] = repeat(threshold)
    if isinstance(threshold, Tensor):
        thresholds = torch.split(threshold.expand_as(ids).reshape(-1), _IN_CACHE)
    for some_ids, answer, bound in zip(slices, answers, thresholds, strict=False):
        torch.ge(_hash32_of_slice(some_ids, seed), bound, out=answer)
    return kept


def _hash32_of_slice(ids: Tensor, seed: Integers) -> Any:
    """`hash32` with fewer passes over memory. High words are few: mix(0) is 0."""
    first_key = mix((seed & LOW_32_BITS) ^ 0x9E3779B9)
    second_key = mix(((seed >> 32) & LOW_32_BITS) ^ first_key ^ 0x85EBCA6B)
    x = mix((ids & LOW_32_BITS) ^ first_key)
    x += second_key
    x &= LOW_32_BITS
    high = ids >> 32
    if bool(high.any()):
        x ^= mix(high)
    return mix(x)


def child_seed(seed: int, *path: int) -> int:
    """A new 63-bit seed for a place in a tree of seeds, such as (step, view): children of one seed are unrelated."""
    for branch in path:
        high, low = int(hash32(branch, seed)), int(hash32(branch, seed ^ 0x5851F42D4C957F2D))
        seed = ((high << 32) | low) & 0x7FFF_FFFF_FFFF_FFFF
    return seed


def fingerprint_of(offsets: Sequence[tuple[int, ...]], ids: np.ndarray[Any, Any], tensors: Iterable[Tensor]) -> str:
    """A hash of offsets, of ids as text, and of tensors: the same for the same numbers on every machine, on every
    device, in int32 or int64. Slice by slice, since any of them may be larger than memory."""
    digest = hashlib.blake2b(digest_size=16)
    for row in offsets:
        digest.update(repr(row).encode())
    for first in range(0, len(ids), _HASHED_AT_ONCE):
        lines = map(str, ids[first : first + _HASHED_AT_ONCE].tolist())
        digest.update(("\n" if first else "").encode() + "\n".join(lines).encode())
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        step = max(1, _HASHED_AT_ONCE // max(1, tensor[:1].numel()))
        for first in range(0, len(tensor), step):
            numbers = tensor[first : first + step].detach().cpu().contiguous()
            if numbers.dtype == torch.int32:
                numbers = numbers.long()
            if numbers.dtype == torch.bfloat16:
                numbers = numbers.view(torch.int16)
            digest.update(numbers.numpy().tobytes())
    return digest.hexdigest()


# ---- views -----------------------------------------------------------------------------------------------------------

Probability = float | Tensor


@dataclass(frozen=True, eq=False)
class ViewSpec:
    """How to perturb a graph.

    Args:
        edge_drop_prob: probability that an edge is dropped; or one per edge, shape (E,), indexed by global edge id.
        feature_mask_prob: probability that a feature is masked; or one per column, shape (F,).
        mask_elements: draw a mask for every node's every feature instead of one for each column (the paper's choice).
        drop_directions_together: drop u->v and v->u together, of whatever types; the paper's code drops each direction
            on its own.
        shuffle_nodes: permute the rows of the features within each node type: a corrupted graph, as in DGI.
    """

    edge_drop_prob: Probability = 0.0
    feature_mask_prob: Probability = 0.0
    mask_elements: bool = False
    drop_directions_together: bool = False
    shuffle_nodes: bool = False

    def __post_init__(self) -> None:
        for name in ("edge_drop_prob", "feature_mask_prob"):
            value = getattr(self, name)
            if isinstance(value, Tensor) and value.numel() == 0:
                continue
            low, high = (float(value.min()), float(value.max())) if isinstance(value, Tensor) else (value, value)
            if not 0.0 <= low <= high <= 1.0:
                raise ValueError(f"{name} must lie between 0 and 1, got {value}")

    @property
    def drops_edges(self) -> bool:
        return isinstance(self.edge_drop_prob, Tensor) or self.edge_drop_prob > 0

    @property
    def masks_features(self) -> bool:
        return isinstance(self.feature_mask_prob, Tensor) or self.feature_mask_prob > 0


@dataclass(frozen=True, eq=False)
class View:
    """One draw of a spec. The seed is an integer, or an int64 tensor on the device that is to use it."""

    spec: ViewSpec
    seed: int | Tensor = 0

    @property
    def masks(self) -> View:
        """What says which edges and features survive: this view, or CLEAN where all do, which backends draw once."""
        return self if self.spec.drops_edges or self.spec.masks_features else CLEAN


CLEAN = View(ViewSpec())
"""The graph as it is."""
