"""The reference: every product written out over the edge list, gradients by autograd. Read this one; run the others."""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.ops._masks import kept_columns, kept_edges, kept_elements
from graphstrap.sparse import SparseMatrix
from graphstrap.view import View


def propagate(graph: Graph, view: View, h: Tensor, norm: str) -> Tensor:
    """A_hat h over the view's edges and self-loops; see `graphstrap.ops.propagate`."""
    source, target = graph.indices.long(), graph.targets
    weight = torch.ones(graph.num_edges, dtype=h.dtype, device=h.device)  # (E,)
    if graph.edge_weights is not None:
        weight = graph.edge_weights.to(h.dtype)
    kept = kept_edges(graph, view)
    if kept is not None:
        weight = weight * kept
    if norm == "sum":
        return h.index_add(0, target, weight[:, None] * h[source])
    degree = torch.ones(graph.num_nodes, dtype=h.dtype, device=h.device).index_add(0, target, weight)  # (N,)
    if norm == "mean":
        return h.index_add(0, target, weight[:, None] * h[source]) / degree[:, None]
    scale = degree.rsqrt()
    scaled = scale[:, None] * h
    return scale[:, None] * scaled.index_add(0, target, weight[:, None] * scaled[source])


def project(graph: Graph, view: View, weight: Tensor, block: int) -> Tensor:
    """(X o mask) W for one feature block; see `graphstrap.ops.project`."""
    features = graph.features[block]
    if features is None:
        raise ValueError(f"node type {graph.node_types[block]!r} has no features to project")
    x = features.to_dense() if isinstance(features, SparseMatrix) else features  # (N_t, F)
    x = x.to(weight.dtype)
    columns = kept_columns(view, num_columns=x.shape[1], block=block, device=x.device)
    if columns is not None:
        x = x * columns
    rows = global_rows(graph, block)[:, None].expand(x.shape)
    every_column = torch.arange(x.shape[1], device=x.device).expand(x.shape)
    elements = kept_elements(view, rows=rows, columns=every_column, num_columns=x.shape[1], block=block)
    if elements is not None:
        x = x * elements
    return x @ weight


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x where positive, slope times x elsewhere."""
    return torch.where(x > 0, x, slope * x)


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """cos(q_i, t_i) of every row; 0, with no gradient, where q_i is 0: there the true gradient has no bound."""
    cosine = torch.nn.functional.cosine_similarity(q, t.detach(), dim=-1)
    return torch.where(q.detach().norm(dim=-1) > 1e-8, cosine, 0.0)


def global_rows(graph: Graph, block: int) -> Tensor:
    """(N_t,) the global id of each row of a feature block."""
    first, last = graph.type_offsets[block], graph.type_offsets[block + 1]
    if graph.node_ids is not None:
        return graph.node_ids[first:last]
    return torch.arange(first, last, device=graph.device)
