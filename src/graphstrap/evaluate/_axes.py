"""Principal axes: an orthonormal basis in which a regularised linear model is the same, and easier to solve.

    w = V u,  V^T V = I      =>      ||w|| = ||u||   and   X w = (X V) u

The axes V are eigenvectors of X^T X when there are at least as many rows as columns. Otherwise the solution lies in the
span of the rows, w = X^T a, and N axes are enough: with X X^T = U S^2 U^T they are V = X^T U / S, and X V = U S. That
makes thousands of sparse columns as cheap as a few hundred dense ones, and it is exact.

Any orthonormal V will do: the axes of similar rows, another random part of the same nodes, are nearly as good.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

Block = Any  # (N, D) float64: a dense tensor, or a SciPy CSR matrix (which has no types)

NEGLIGIBLE = 1e-12  # axes with less than this part of the largest eigenvalue: beyond the precision of X X^T


class Axes(NamedTuple):
    coordinates: Tensor  # (N, R) X V
    directions: Tensor  # (D, R) V


def principal_axes(x: Block, *, directions: Tensor | None = None) -> Axes:
    """The axes of `x`; or, where it has at least as many rows as columns, those `directions` that are known already."""
    num_rows, num_columns = x.shape
    if num_columns <= num_rows:
        if directions is None:
            directions = torch.linalg.eigh(_dense(x.T @ x)).eigenvectors
        return Axes(multiply(x, directions), directions)
    eigenvalues, vectors = torch.linalg.eigh(_dense(x @ x.T))
    kept = eigenvalues > NEGLIGIBLE * eigenvalues[-1]
    scales, vectors = eigenvalues[kept].sqrt(), vectors[:, kept]
    return Axes(vectors * scales, multiply(x.T, vectors / scales))


def multiply(x: Block, y: Tensor) -> Tensor:
    """x @ y as a dense tensor, whether or not x is sparse."""
    return x @ y if isinstance(x, Tensor) else torch.from_numpy(x @ y.cpu().numpy())


def _dense(x: Block) -> Tensor:
    return x if isinstance(x, Tensor) else torch.from_numpy(x.toarray())
