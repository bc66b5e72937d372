"""The reference: every product written out over the edge list, gradients by autograd. Read this one; run the others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.graph import Graph
from graphstrap.ops._masks import kept_columns, kept_edges, kept_elements, missing_degrees
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
    missing = missing_degrees(graph, view)
    if missing is not None:
        degree = degree + missing.to(h.dtype)
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
    x = features if isinstance(features, Tensor) else features.to_dense()  # (N_t, F)
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


def propagate_both(graph: Graph, view: View, h: Tensor, t: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """A_hat h and A_hat t; see `graphstrap.ops.propagate_both`."""
    return propagate(graph, view, h, norm), propagate(graph, view, t, norm)


def project_both(graph: Graph, view: View, weight: Tensor, other: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(X o mask) W for two weights; see `graphstrap.ops.project_both`."""
    return project(graph, view, weight, block), project(graph, view, other, block)


def batch_norm_prelu(x: Tensor, norm: nn.BatchNorm1d, slope: Tensor) -> Tensor:
    """PReLU after batch norm; in training, the running statistics move."""
    assert norm.momentum is not None
    normed = F.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.training, norm.momentum, norm.eps
    )
    return prelu(normed, slope)


def layer_norm_prelu(x: Tensor, norm: nn.LayerNorm, slope: Tensor, shift: Tensor) -> Tensor:
    """PReLU after layer norm of x + shift."""
    normed = F.layer_norm((x + shift).to(norm.weight.dtype), norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    return prelu(normed.to(x.dtype), slope)


def bias_prelu(x: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x + bias."""
    return prelu(x + bias, slope)


def linear_prelu(x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x W + bias."""
    return prelu(x @ weight + bias, slope)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x where positive, slope times x elsewhere."""
    return torch.where(x > 0, x, slope.to(x.dtype) * x)


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """cos(q_i, t_i) of every row; 0, with no gradient, where q_i is 0: there the true gradient has no bound."""
    q, t = q.float() if q.dtype == torch.bfloat16 else q, t.detach().to(q.dtype)
    cosine = F.cosine_similarity(q, t.to(q.dtype), dim=-1)
    return torch.where(q.detach().norm(dim=-1) > 1e-8, cosine, 0.0)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + bias."""
    return torch.addmm(bias, x, weight)


def move_average(averages: list[Tensor], news: list[Tensor], weight: float | Tensor) -> None:
    """averages += weight * (news - averages)."""
    for average, new in zip(averages, news, strict=True):
        average.lerp_(new, weight)


def global_rows(graph: Graph, block: int) -> Tensor:
    """(N_t,) the global id of each row of a feature block."""
    first, last = graph.type_offsets[block], graph.type_offsets[block + 1]
    if graph.node_ids is not None:
        return graph.node_ids[first:last]
    return torch.arange(first, last, device=graph.device)
