"""Drawing without a generator: every draw is a hash of what it is for, so any part of a graph can be made alone.

Uniform numbers become skewed ones by products and square roots only, which have the same bits on every device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.keep import child_seed, hash32

Table = np.ndarray[Any, Any]


def uniform(ids: Tensor, seed: int) -> Tensor:
    """float64 in (0, 1), one for each non-negative id."""
    word: Tensor = hash32(ids, seed)
    return (word.double() + 0.5) * 2.0**-32


def skewed(u: Tensor, power: float) -> Tensor:
    """u ** power for a multiple of one half."""
    whole, root = divmod(power, 1.0)
    result = torch.ones_like(u)
    for _ in range(int(whole)):
        result = result * u
    return result * u.sqrt() if root else result


def below(u: Tensor, count: Tensor | int) -> Tensor:
    """u in (0, 1) to an integer from 0 up to, but without, `count`."""
    return torch.minimum((u * count).long(), torch.as_tensor(count, device=u.device) - 1)


def by_quantile(u: Tensor, table: Tensor) -> Tensor:
    """The entry of a table of equally likely values."""
    return table[below(u, len(table))]


def signs(seed: int, *shape: int) -> Table:
    """An array of +1 and -1."""
    word: Table = hash32(np.arange(math.prod(shape), dtype=np.int64), seed)
    result: Table = ((word >> 7) & 1).reshape(shape) * 2.0 - 1.0
    return result


@dataclass(frozen=True)
class Shuffle:
    """A bijection of each of several ranges onto itself that scatters neighbours: i -> (a i + b) mod n in a range."""

    starts: Tensor  # (ranges + 1,)
    counts: Tensor  # (ranges,) at least 1
    factors: Tensor
    inverses: Tensor
    shifts: Tensor

    @classmethod
    def of(cls, starts: Table, seed: int, *, device: torch.device) -> Shuffle:
        counts = np.maximum(1, np.diff(starts)).tolist()
        factors = [_coprime(count) for count in counts]
        inverses = [pow(factor, -1, count) if count > 1 else 0 for factor, count in zip(factors, counts, strict=True)]
        shifts = [child_seed(seed, number) % count for number, count in enumerate(counts)]
        return cls(
            *(torch.tensor(values, device=device) for values in (starts.tolist(), counts, factors, inverses, shifts))
        )

    def forth(self, numbers: Tensor, ranges: Tensor) -> Tensor:
        start, count = self.starts[ranges], self.counts[ranges]
        return start + ((numbers - start) * self.factors[ranges] + self.shifts[ranges]) % count

    def back(self, numbers: Tensor, ranges: Tensor) -> Tensor:
        start, count = self.starts[ranges], self.counts[ranges]
        return start + ((numbers - start - self.shifts[ranges]) % count * self.inverses[ranges]) % count


def _coprime(count: int) -> int:
    factor = max(1, int(count * 0.6180339887))
    while math.gcd(factor, count) != 1:
        factor += 1
    return factor
