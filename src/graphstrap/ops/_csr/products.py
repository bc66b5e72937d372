"""Sparse products with a view's adjacency and features; the backward pass is the same product with the transpose."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.ops._csr.adjacency import adjacency
from graphstrap.ops._csr.bag import Bag, times
from graphstrap.ops._csr.features import best_form, product_dtype
from graphstrap.ops._masks import kept_columns, kept_elements
from graphstrap.ops._torch import global_rows
from graphstrap.view import View


def propagate(graph: Graph, view: View, h: Tensor, norm: str) -> Tensor:
    """A_hat h over the view's edges and self-loops; see `graphstrap.ops.propagate`."""
    return times(*adjacency(graph, view, norm), h)


def project(graph: Graph, view: View, weight: Tensor, block: int) -> Tensor:
    """(X o mask) W for one feature block; see `graphstrap.ops.project`."""
    num_columns = graph.num_features[block]
    columns = kept_columns(view, num_columns=num_columns, block=block, device=weight.device)
    if columns is not None:
        weight = weight * columns[:, None]  # (X o m) W = X (m o W)
    features = best_form(graph, block, weight)
    if isinstance(features, Tensor):
        if view.spec.masks_features and view.spec.mask_elements:
            rows = global_rows(graph, block)[:, None]
            every_column = torch.arange(num_columns, device=weight.device)[None, :]
            kept = kept_elements(view, rows=rows, columns=every_column, num_columns=num_columns, block=block)
            assert kept is not None
            features = features[:, :num_columns] * kept
        filled = F.pad(weight, (0, 0, 0, features.shape[1] - num_columns))
        return features @ filled.to(features.dtype)
    forward = Bag.of(features)
    backward = Bag.of(features.transpose)
    if view.spec.masks_features and view.spec.mask_elements:
        rows, every_column = global_rows(graph, block)[features.rows], features.indices.long()
        kept = kept_elements(view, rows=rows, columns=every_column, num_columns=num_columns, block=block)
        assert kept is not None
        forward = forward.with_values(features.values * kept)
        backward = backward.with_values((features.values * kept)[features.transpose_order])
    return times(forward, backward, weight.to(product_dtype(weight)))


def propagate_both(graph: Graph, view: View, h: Tensor, t: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """A_hat h and A_hat t. On a CPU a second pass costs no more than a wider one."""
    return propagate(graph, view, h, norm), propagate(graph, view, t, norm)


def project_both(graph: Graph, view: View, weight: Tensor, other: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(X o mask) W for two weights."""
    return project(graph, view, weight, block), project(graph, view, other, block)
