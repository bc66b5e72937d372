"""Random choices that are functions of hashes: the same on every device, in every order, at every time.

`choose_positions` picks k of d without replacement by Floyd's algorithm: in O(k) however long the row is, and every
subset is equally likely (to one part in 2**32 / d). Row by row, for i = 0 .. k - 1, with j = d - k + i:

    t = uniform on 0 .. j          choose t, or j if t is chosen already

`permuted` is a random order of 0 .. size - 1 that can be asked for any place without being made: a Feistel network on
pairs of digits, in which a result beyond the end is sent through again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.keep import LOW_32_BITS, child_seed, hash32, mix

GOLDEN = 0x9E3779B9
_NUM_ROUNDS = 6


def choose_positions(degree: Tensor, fan_out: Tensor, word: Tensor, *, width: int) -> Tensor:
    """(width, C) different numbers below `degree` for each column, which has `fan_out` <= min(degree, width) of them.

    Args:
        degree, fan_out: (C,) int64, below 2**31.
        word: (C,) 32-bit words, one for each column; the draws are hashes of them.
        width: the largest fan-out; what lies below a column's own is to be left unread.
    """
    slot = torch.arange(width, device=degree.device)[:, None]
    last = degree - fan_out + slot  # (width, C): j
    draws: Tensor = (mix((word + slot * GOLDEN) & LOW_32_BITS) * (last + 1)) >> 32  # t
    chosen, last = draws.int(), last.int()
    for i in range(1, width):
        taken = (chosen[:i] == chosen[i]).view(torch.uint8).amax(0)  # `any` takes three times as long on a CPU
        torch.where(taken != 0, last[i], chosen[i], out=chosen[i])
    return chosen


def permuted(places: Tensor, *, size: int, seed: int) -> Tensor:
    """The numbers at these places of a random order of 0 .. size - 1."""
    high = max(1, int(size**0.5))
    low = -(-size // high)  # high * low >= size, by less than `high`
    keys = [child_seed(seed, number) for number in range(_NUM_ROUNDS)]
    result = _feistel(places, high, low, keys)
    beyond = result >= size
    while bool(beyond.any()):
        result = torch.where(beyond, _feistel(result, high, low, keys), result)
        beyond = result >= size
    return result


def _feistel(numbers: Tensor, high: int, low: int, keys: list[int]) -> Tensor:
    """A bijection of 0 .. high * low - 1."""
    a, b = numbers // low, numbers % low
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        a = (a + hash32(b, first)) % high
        b = (b + hash32(a, second)) % low
    return a * low + b
