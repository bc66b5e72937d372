"""What a protocol is given: the vectors of nodes, their labels, and which nodes are fitted on, chosen on and tested on.

    row_i  ->  row_i / ||row_i||          a row of zeros stays as it is

Vectors come from a NumPy array (memory-mapped too), a tensor on any device, a SparseMatrix or a SciPy matrix. They are
converted to float64 and normalised block by block, never as a whole. Nearly empty sparse rows stay sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import SparseMatrix

Array = np.ndarray[Any, Any]
Index = np.ndarray[Any, np.dtype[np.int64]]
Embeddings = Array | Tensor | SparseMatrix
Block = Any  # (M, D) float64: a dense tensor, or a SciPy CSR matrix (which has no types)

BLOCK_ENTRIES = 2**22
SPARSE_DENSITY = 0.05  # sparse products win below: at the 35 % of Amazon's words they are three times slower
MIN_NODES = 10


def multiply(x: Block, y: Tensor) -> Tensor:
    """x @ y as a dense tensor, whether or not x is sparse."""
    return x @ y if isinstance(x, Tensor) else torch.from_numpy(x @ y.cpu().numpy())


def as_dense(x: Block) -> Tensor:
    return x if isinstance(x, Tensor) else torch.from_numpy(x.toarray())


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of N nodes; `source` is a NumPy array, a tensor or a SciPy CSR matrix of shape (N, D)."""

    source: Any

    @classmethod
    def of(cls, h: Any) -> Self:
        """Check `h` and wrap it: two dimensions, real numbers, all of them finite."""
        source = h.to_scipy() if isinstance(h, SparseMatrix) else h
        if hasattr(source, "tocsr"):
            source = source.tocsr()
        elif not isinstance(source, Tensor):
            source = np.asarray(source)
        if len(source.shape) != 2 or 0 in source.shape:
            raise InputError(f"h must have one row per node and a column at least, got shape {tuple(source.shape)}")
        vectors = cls(source)
        values = source.data if vectors.is_stored_sparse else source
        if not isinstance(values, Tensor) and values.dtype.kind not in "fiub":
            raise InputError(f"h must hold real numbers, got {values.dtype}")
        size = max(1, BLOCK_ENTRIES // vectors.num_columns)
        for start in range(0, len(values), size):
            block = values[start : start + size]
            if not (block.isfinite() if isinstance(block, Tensor) else np.isfinite(block)).all():
                raise InputError("h holds NaN or infinite values: no protocol can use them; did the training diverge?")
        return vectors

    @property
    def is_stored_sparse(self) -> bool:
        return hasattr(self.source, "tocsr")

    @property
    def is_sparse(self) -> bool:
        """Whether `take` gives sparse rows."""
        return self.is_stored_sparse and bool(self.source.nnz < SPARSE_DENSITY * self.num_nodes * self.num_columns)

    @property
    def num_nodes(self) -> int:
        return int(self.source.shape[0])

    @property
    def num_columns(self) -> int:
        return int(self.source.shape[1])

    @property
    def device(self) -> torch.device:
        return self.source.device if isinstance(self.source, Tensor) else torch.device("cpu")

    def take(self, nodes: Index) -> Block:
        """Rows of length 1, (M, D) float64: a dense tensor, or SciPy CSR of a nearly empty source."""
        if self.is_sparse:
            from scipy.sparse import diags_array

            rows = self.source[nodes].astype(np.float64)
            lengths = np.asarray(np.sqrt(rows.multiply(rows).sum(axis=1))).reshape(-1)
            return diags_array(1 / np.where(lengths > 0, lengths, 1.0)).tocsr() @ rows
        taken = self.take_as_given(nodes)
        norms = taken.norm(dim=1, keepdim=True)
        return taken / torch.where(norms > 0, norms, 1.0)

    def take_as_given(self, nodes: Index) -> Tensor:
        """Rows that are not normalised, (M, D) float64, dense."""
        if isinstance(self.source, Tensor):
            return self.source.detach()[torch.from_numpy(nodes).to(self.device)].double()
        chosen = self.source[nodes]
        return torch.from_numpy((chosen.toarray() if self.is_stored_sparse else chosen).astype(np.float64))

    def take_with_constant(self, nodes: Index) -> Block:
        """Rows of length 1 and a last column of ones, (M, D + 1): the intercept of a linear model."""
        taken = self.take(nodes)
        if isinstance(taken, Tensor):
            return torch.cat([taken, taken.new_ones(len(taken), 1)], dim=1)
        from scipy.sparse import hstack

        return hstack([taken, np.ones((taken.shape[0], 1))], format="csr")

    def blocks(self, nodes: Index, *, width: int) -> Iterator[Index]:
        """Cut `nodes` so that neither the rows of a block nor a result of `width` columns outgrows the memory."""
        size = max(1, BLOCK_ENTRIES // max(width, 1 if self.is_sparse else self.num_columns))
        for start in range(0, len(nodes), size):
            yield nodes[start : start + size]


def label_numbers(labels: Any) -> Index:
    """(N,) int64 on the CPU; several labels a node are refused."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim == 2:
        raise InputError(
            f"labels has {array.shape[1]} columns, several labels a node: take the protocol 'adamw' (micro-F1) or "
            "'adamw-reference'; this one wants one class number per node, -1 for none"
        )
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"labels must be one integer per node, got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


class Split(NamedTuple):
    """Node numbers, disjoint. An empty `val` means: choose on random halves of `train`."""

    train: Index
    val: Index
    test: Index


@dataclass(frozen=True, eq=False)
class Task:
    """One array of embeddings to evaluate."""

    vectors: Vectors
    labels: Array  # (N,) -1 for none, or (N, C) of 0 and 1
    nodes: Index  # those with a label
    num_classes: int
    splits: Splits | None  # that came with the graph
    num_runs: int
    seed: int
    solver: str

    @classmethod
    def of(
        cls,
        h: Embeddings | None,
        graph: Graph,
        *,
        num_runs: int = 1,
        seed: int = 0,
        solver: str = "newton",
        several_labels: bool = False,
    ) -> Self:
        """Check that the graph has labels and `h` a row for each node; None where the splits alone are of interest.
        `several_labels`: a node may have several."""
        if graph.labels is None:
            raise InputError(f"graph {graph.name!r} has no labels: there is nothing to evaluate against")
        several = several_labels and graph.labels.dim() == 2
        labels: Array = graph.labels.cpu().numpy() if several else label_numbers(graph.labels)
        vectors = Vectors.of(np.zeros((graph.num_nodes, 1), dtype=np.float32) if h is None else h)
        if vectors.num_nodes != len(labels):
            raise InputError(
                f"h has {vectors.num_nodes} rows, graph {graph.name!r} has {len(labels)} nodes: one row per node"
            )
        nodes, num_classes = np.arange(len(labels)), labels.shape[-1]
        if not several:
            nodes, num_classes = np.flatnonzero(labels >= 0), int(labels.max()) + 1
            seen = len(np.unique(labels[nodes]))
            if seen < 2:
                raise InputError(f"graph {graph.name!r} has labels of {seen} classes: an evaluation needs at least two")
        return cls(vectors, labels, nodes, num_classes, graph.splits, num_runs, seed, solver)

    def random_splits(self, draw: Callable[[Index, np.random.Generator], Split]) -> list[Split]:
        """One split a run by `tenths` or `fifths`."""
        return [draw(self.nodes, run_generator(self.seed, run)) for run in range(self.num_runs)]

    def published_splits(self, protocol: str) -> list[Split]:
        """The splits that came with the graph, of its labelled nodes."""
        if self.splits is None:
            raise InputError(
                f"the protocol {protocol!r} needs published splits and this graph has none: give the node table a "
                "column `split` of train, val and test (docs/tables.md), or in Python Graph(splits=...); or use "
                "'paper' or 'reference', which draw random splits"
            )
        masks, found = (self.splits.train, self.splits.val, self.splits.test), []
        for column in range(self.splits.num_splits):
            split = Split(*[_members(mask, self.nodes, column) for mask in masks])
            if len(split.train) == 0 or len(split.test) == 0:
                raise InputError(f"published split {column} has no labelled training or test node")
            for name, nodes in (("train", split.train), ("val", split.val)):
                num_shared = len(np.intersect1d(nodes, split.test))
                if num_shared:
                    raise InputError(
                        f"published split {column} has {num_shared:,} labelled nodes both in {name} and in test: give "
                        "masks that share no node"
                    )
            found.append(split)
        return found


def run_generator(seed: int, run: int) -> np.random.Generator:
    """What draws a run's split: it is the same for every method, solver and number of runs."""
    return np.random.default_rng((seed, run))


def tenths(nodes: Index, generator: np.random.Generator) -> Split:
    """A random 10 / 10 / 80 split, as the paper describes."""
    tenth = _share(nodes, 10)
    return Split(*np.split(generator.permutation(nodes), [tenth, 2 * tenth]))


def fifths(nodes: Index, generator: np.random.Generator) -> Split:
    """A random 20 / 80 split without validation nodes, as the reference code does."""
    train, test = np.split(generator.permutation(nodes), [_share(nodes, 5)])
    return Split(train, train[:0], test)


def _share(nodes: Index, divisor: int) -> int:
    if len(nodes) < MIN_NODES:
        raise InputError(f"a random split needs at least {MIN_NODES} labelled nodes, the graph has {len(nodes)}")
    return len(nodes) // divisor


def has_published_splits(graph: Graph) -> bool:
    """Whether each of the graph's splits has labels to learn from and to be tested on: those of test nodes may be
    kept secret."""
    if graph.splits is None or graph.labels is None:
        return False
    if graph.labels.dim() != 1:  # several labels a node, of which none is missing
        return True
    nodes = np.flatnonzero(graph.labels.cpu().numpy() >= 0)
    masks = (graph.splits.train, graph.splits.test)
    return all(len(_members(mask, nodes, column)) for column in range(graph.splits.num_splits) for mask in masks)


def _members(mask: Tensor, nodes: Index, column: int) -> Index:
    """A mask of one column serves all splits, as the test mask of WikiCS does."""
    columns = mask.detach().cpu().numpy().reshape(len(mask), -1)
    if columns.shape[1] == 0:
        return nodes[:0]
    members: Index = nodes[columns[nodes, min(column, columns.shape[1] - 1)].astype(bool)]
    return members
