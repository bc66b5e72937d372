"""Rows: embeddings or raw features from which protocols take l2-normalised float64 rows.

    row_i  ->  row_i / ||row_i||          a row of zeros stays as it is

A NumPy array (memory-mapped too), a tensor on any device, a SparseMatrix or a SciPy matrix. Nothing of the size of
the whole is copied: what is taken is converted when it is taken. Sparse rows stay sparse when they are nearly empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import SparseMatrix

# Principal axes: an orthonormal basis in which a regularised linear model is the same, and easier to solve.
#
# w = V u,  V^T V = I      =>      ||w|| = ||u||   and   X w = (X V) u
#
# The axes V are eigenvectors of X^T X when there are at least as many rows as columns. Otherwise the solution lies in
# the span of the rows, w = X^T a, and N axes are enough: with X X^T = U S^2 U^T they are V = X^T U / S, and X V = U S.
# That makes thousands of sparse columns as cheap as a few hundred dense ones, and it is exact.
#
# Any orthonormal V will do: the axes of similar rows, another random part of the same nodes, are nearly as good.


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


Embeddings = np.ndarray[Any, Any] | Tensor | SparseMatrix
Index = np.ndarray[Any, np.dtype[np.int64]]

BLOCK_ENTRIES = 2**22
SPARSE_DENSITY = 0.05  # sparse products win below: at the 35 % of Amazon's words they are three times slower


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows by number; `source` is a NumPy array, a tensor or a SciPy CSR matrix of shape (N, D)."""

    source: Any

    @classmethod
    def of(cls, h: Any) -> Rows:
        """Check `h` and wrap it: two dimensions, real numbers, all of them finite."""
        source = h.to_scipy() if isinstance(h, SparseMatrix) else h
        if hasattr(source, "tocsr"):
            source = source.tocsr()
        elif not isinstance(source, Tensor):
            source = np.asarray(source)
        if len(source.shape) != 2 or 0 in source.shape:
            raise InputError(
                f"h must have one row per node and at least one column, got the shape {tuple(source.shape)}"
            )
        rows = cls(source)
        rows._check_finite(source.data if rows.is_stored_sparse else source)
        return rows

    @property
    def is_stored_sparse(self) -> bool:
        return hasattr(self.source, "tocsr")

    @property
    def is_sparse(self) -> bool:
        """Whether `take` gives sparse rows."""
        return self.is_stored_sparse and bool(self.source.nnz < SPARSE_DENSITY * self.num_rows * self.num_columns)

    @property
    def num_rows(self) -> int:
        return int(self.source.shape[0])

    @property
    def num_columns(self) -> int:
        return int(self.source.shape[1])

    @property
    def device(self) -> torch.device:
        return self.source.device if isinstance(self.source, Tensor) else torch.device("cpu")

    def take(self, index: Index) -> Block:
        """Normalised rows, (len(index), D) float64: a dense tensor, or SciPy CSR of a nearly empty source."""
        if self.is_sparse:
            return _normalise_sparse(self.source[index])
        taken = self.take_as_given(index)
        norms = taken.norm(dim=1, keepdim=True)
        return taken / torch.where(norms > 0, norms, 1.0)

    def take_as_given(self, index: Index) -> Tensor:
        """Rows that are not normalised, (len(index), D) float64, dense."""
        if isinstance(self.source, Tensor):
            return self.source.detach()[torch.from_numpy(index).to(self.device)].double()
        chosen = self.source[index]
        return torch.from_numpy((chosen.toarray() if self.is_stored_sparse else chosen).astype(np.float64))

    def take_with_constant(self, index: Index) -> Block:
        """The same with a last column of ones, (len(index), D + 1): the intercept of a linear model."""
        taken = self.take(index)
        if isinstance(taken, Tensor):
            return torch.cat([taken, taken.new_ones(len(taken), 1)], dim=1)
        from scipy.sparse import hstack

        return hstack([taken, np.ones((taken.shape[0], 1))], format="csr")

    def blocks(self, index: Index, *, width: int) -> Iterator[Index]:
        """Cut `index` so that neither a block of its rows nor a result of `width` columns outgrows the memory."""
        size = max(1, BLOCK_ENTRIES // max(width, 1 if self.is_sparse else self.num_columns))
        for start in range(0, len(index), size):
            yield index[start : start + size]

    def _check_finite(self, values: Any) -> None:
        if not isinstance(values, Tensor) and values.dtype.kind not in "fiub":
            raise InputError(f"h must hold real numbers, got {values.dtype}")
        size = max(1, BLOCK_ENTRIES // self.num_columns)
        for start in range(0, len(values), size):
            block = values[start : start + size]
            finite = block.isfinite().all() if isinstance(block, Tensor) else np.isfinite(block).all()
            if not finite:
                raise InputError("h holds NaN or infinite values: no protocol can use them; did the training diverge?")


def _normalise_sparse(matrix: Any) -> Any:
    from scipy.sparse import diags_array

    matrix = matrix.astype(np.float64)
    norms = np.sqrt(matrix.multiply(matrix).sum(axis=1)).reshape(-1)
    scales = 1 / np.where(norms > 0, norms, 1.0)
    return diags_array(np.asarray(scales).reshape(-1)).tocsr() @ matrix


# Splits: which nodes a run fits on, chooses on and is tested on.
#
# A run's split depends on (seed, run) and on nothing else: the same for every method, solver and number of runs.


MIN_NODES = 10


class Split(NamedTuple):
    """Node numbers, disjoint. An empty `val` means: choose on random halves of `train`."""

    train: Index
    val: Index
    test: Index


def run_generator(seed: int, run: int) -> np.random.Generator:
    return np.random.default_rng((seed, run))


def tenths(nodes: Index, generator: np.random.Generator) -> Split:
    """A random 10 / 10 / 80 split, as the paper describes."""
    tenth = _part(nodes, 10)
    return Split(*np.split(generator.permutation(nodes), [tenth, 2 * tenth]))


def fifths(nodes: Index, generator: np.random.Generator) -> Split:
    """A random 20 / 80 split without validation nodes, as the reference code does."""
    train, test = np.split(generator.permutation(nodes), [_part(nodes, 5)])
    return Split(train, train[:0], test)


def published(splits: Splits | None, nodes: Index, *, protocol: str = "public") -> list[Split]:
    """The splits that come with the graph, of its labelled `nodes`."""
    if splits is None:
        raise InputError(
            f"the protocol {protocol!r} needs published splits and this graph has none: give the node table a column "
            "`split` of train, val and test (docs/tables.md), or in Python Graph(splits=...); or use 'paper' or "
            "'reference', which draw random splits"
        )
    return [_published(splits, nodes, column) for column in range(splits.num_splits)]


def has_published_splits(graph: Graph) -> bool:
    """Whether each of the graph's splits has labels to learn from and to be tested on: those of test nodes may be
    kept secret."""
    if graph.splits is None or graph.labels is None:
        return False
    if graph.labels.dim() != 1:  # several labels a node, of which none is missing
        return True
    nodes = np.flatnonzero(graph.labels.cpu().numpy() >= 0)
    parts = [
        (mask, column) for column in range(graph.splits.num_splits) for mask in (graph.splits.train, graph.splits.test)
    ]
    return all(len(_members(mask, nodes, column)) for mask, column in parts)


def _published(splits: Splits, nodes: Index, column: int) -> Split:
    split = Split(*[_members(mask, nodes, column) for mask in (splits.train, splits.val, splits.test)])
    if len(split.train) == 0 or len(split.test) == 0:
        raise InputError(f"published split {column} has no labelled training or test node")
    for name, nodes_of in (("train", split.train), ("val", split.val)):
        num_shared = len(np.intersect1d(nodes_of, split.test))
        if num_shared:
            raise InputError(
                f"published split {column} has {num_shared:,} labelled nodes both in {name} and in test: give masks "
                "that share no node"
            )
    return split


def _members(mask: Tensor, nodes: Index, column: int) -> Index:
    """A mask of one column serves all splits, as the test mask of WikiCS does."""
    columns = mask.detach().cpu().numpy().reshape(len(mask), -1)
    if columns.shape[1] == 0:
        return nodes[:0]
    members: Index = nodes[columns[nodes, min(column, columns.shape[1] - 1)].astype(bool)]
    return members


def _part(nodes: Index, parts: int) -> int:
    if len(nodes) < MIN_NODES:
        raise InputError(f"a random split needs at least {MIN_NODES} labelled nodes, the graph has {len(nodes)}")
    return len(nodes) // parts
