"""QuantisedMatrix: dense features in one byte each, as a frozen value.

    value[i, j]  =  offset[j] + scale[j] * code[i, j]          code in 0..255, offset and scale of each column

A column runs from its least to its largest value, so no value is off by more than half a step of its column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_CODE = 255


@dataclass(frozen=True, eq=False)
class QuantisedMatrix:
    codes: Tensor  # (R, F) uint8
    scale: Tensor  # (F,) float32, the step of each column; 0 where a column is constant
    offset: Tensor  # (F,) float32, the least value of each column

    @classmethod
    def from_dense(cls, x: Tensor) -> QuantisedMatrix:
        x = x.float()
        low = x.amin(0) if len(x) else x.new_zeros(x.shape[1])
        high = x.amax(0) if len(x) else low
        scale, offset = find_steps(low, high)
        return cls(encode(x, scale=scale, offset=offset), scale, offset)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.codes.shape[0]), int(self.codes.shape[1])

    @property
    def device(self) -> torch.device:
        return self.codes.device

    @property
    def values(self) -> Tensor:
        """What makes a value finite or not."""
        return torch.cat([self.scale, self.offset])

    def take(self, rows: Tensor | slice) -> Tensor:
        """Some rows as float32."""
        return torch.addcmul(self.offset, self.codes[rows].float(), self.scale)

    def to_dense(self) -> Tensor:
        return self.take(slice(None))

    def map(self, move: Callable[[Tensor], Tensor]) -> QuantisedMatrix:
        return QuantisedMatrix(move(self.codes), move(self.scale), move(self.offset))


def find_steps(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The scale and the offset of columns that run from `low` to `high`."""
    return ((high.double() - low.double()) / MAX_CODE).float(), low.float()


def encode(x: Tensor, *, scale: Tensor, offset: Tensor) -> Tensor:
    """uint8 codes of float32 rows."""
    step = torch.where(scale > 0, scale, torch.ones_like(scale)).double()
    return ((x.double() - offset.double()) / step).round_().clamp_(0, MAX_CODE).to(torch.uint8)
