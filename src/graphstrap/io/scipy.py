"""SciPy sparse matrices: `from_scipy` and `to_scipy`. The entry in row u and column v is the edge u -> v."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.graph import Graph


def from_scipy(
    adjacency: Any,
    *,
    x: Any = None,
    labels: Any = None,
    directed: bool = True,
    weighted: bool | None = None,
    self_loops: str = "drop",
    **rest: Any,
) -> Graph:
    """A graph from a square sparse matrix (or dense array), which is left as it is.

    Args:
        adjacency: every stored entry is an edge; entries given twice add up, as SciPy has it.
        x: features, dense or sparse.
        labels: (N,) with -1 for "none", or (N, C).
        directed: True takes the edges as they stand; False adds the reverse of every edge that has none.
        weighted: whether the entries are edge weights; None: unless all are 1.
        self_loops: "drop" or "keep".
        rest: further fields of Graph, such as ids, splits or class_names.
    """
    from scipy.sparse import csr_array, issparse

    matrix = adjacency if issparse(adjacency) else csr_array(np.asarray(adjacency))
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"adjacency has shape {matrix.shape}: give a square matrix, one row and one column for each node"
        )
    if matrix.dtype.kind not in "buif":
        raise InputError(f"adjacency has type {matrix.dtype}: give real numbers or true/false")
    matrix = matrix.tocsr(copy=True)
    matrix.sum_duplicates()
    matrix = matrix.tocoo()
    if weighted is None:
        weighted = bool((matrix.data != 1).any())
    return Graph.from_edges(
        matrix.row,
        matrix.col,
        num_nodes=matrix.shape[0],
        directed=directed,
        self_loops=self_loops,
        x=x.tocsr(copy=True) if hasattr(x, "tocsr") else x,
        labels=labels,
        edge_weights=np.asarray(matrix.data, dtype=np.float32) if weighted else None,
        **rest,
    )


def to_scipy(graph: Graph) -> Any:
    """The (N, N) CSR array of a graph: its edge weights, or ones. Parallel edges (of two types, say) add up."""
    from scipy.sparse import csr_array

    graph = graph.to("cpu")
    weights = np.ones(graph.num_edges, dtype=np.float32) if graph.edge_weights is None else graph.edge_weights.numpy()
    incoming = csr_array((weights, graph.indices.numpy(), graph.indptr.numpy()), shape=(graph.num_nodes,) * 2)
    return incoming.T.tocsr()
