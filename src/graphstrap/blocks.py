"""Feature blocks: the features of one node type, in any of the forms that they are kept in."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from graphstrap.edge_table import as_numbers
from graphstrap.errors import InputError
from graphstrap.quantised import QuantisedMatrix
from graphstrap.scaled import ScaledMatrix, sample_rows
from graphstrap.sparse import SparseMatrix

Features = Tensor | SparseMatrix
Block = Features | QuantisedMatrix | ScaledMatrix


def as_features(x: Any) -> Features | None:
    """Dense or sparse features from a tensor, an array or a SciPy matrix."""
    if x is None or isinstance(x, SparseMatrix):
        return x
    if hasattr(x, "tocsr"):
        return SparseMatrix.from_scipy(x)
    dense = as_numbers("x", x, fix="turn text into numbers, or leave its columns out", dtype=torch.float32)
    if dense.dim() != 2:
        raise InputError(f"x takes a row of numbers for each node, got shape {tuple(dense.shape)}")
    return dense


def readable(block: Block | None) -> Features | None:
    """A block as an encoder of whole graphs takes it."""
    if isinstance(block, ScaledMatrix):
        return block.apply(block.raw)
    return block.to_dense() if isinstance(block, QuantisedMatrix) else block


def is_bag(block: Block) -> bool:
    """Whether features are non-negative and mostly zero, as counts of words are."""
    x = sample_rows(block)
    if isinstance(x, SparseMatrix):
        return x.density < 0.5 and bool((x.values >= 0).all())
    return bool((x >= 0).all()) and float((x != 0).float().mean()) < 0.5


def block_tensors(block: Block | None) -> list[Tensor]:
    """The tensors that a block is kept as; of one that is scaled when it is read, those of its raw table."""
    if isinstance(block, ScaledMatrix):
        block = block.raw
    if block is None or isinstance(block, Tensor):
        return [] if block is None else [block]
    values = [getattr(block, field.name) for field in fields(block)]
    return [value for value in values if isinstance(value, Tensor)]
