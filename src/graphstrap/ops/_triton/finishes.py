"""What follows a product, by the fused kernels of `finish/`; float64 goes to the reference."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphstrap.graph import Graph
from graphstrap.ops import _csr, _torch
from graphstrap.ops._triton import finish


def batch_norm_prelu(x: Tensor, norm: nn.BatchNorm1d, slope: Tensor) -> Tensor:
    """PReLU after batch norm in training, fused; see `graphstrap.ops.batch_norm_prelu`."""
    if x.dtype == torch.float64:
        return _torch.batch_norm_prelu(x, norm, slope)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    return finish.batch_norm_prelu(
        x,
        slope,
        weight=norm.weight,
        bias=norm.bias,
        running_mean=norm.running_mean,
        running_var=norm.running_var,
        new_batch_weight=norm.momentum,
        eps=norm.eps,
    )


def layer_norm_prelu(x: Tensor, norm: nn.LayerNorm, slope: Tensor, shift: Tensor) -> Tensor:
    """PReLU after layer norm of x + shift, fused."""
    if x.dtype == torch.float64:
        return _torch.layer_norm_prelu(x, norm, slope, shift)
    return finish.layer_norm_prelu(x, slope, shift=shift, weight=norm.weight, bias=norm.bias, eps=norm.eps)


def graph_norm_prelu(x: Tensor, graph: Graph, norm: nn.LayerNorm, slope: Tensor, shift: Tensor) -> Tensor:
    """PReLU after the norm over each graph's nodes and columns: the other backend's, which fits CUDA as well."""
    return _csr.graph_norm_prelu(x, graph, norm, slope, shift)


def bias_prelu(x: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x + bias, fused."""
    if x.dtype == torch.float64 or not len(x):  # no rows: a graph without edges
        return _torch.bias_prelu(x, bias.to(x.dtype), slope)
    return finish.bias_prelu(x, slope, bias=bias)


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """cos(q_i, t_i) of every row, fused; see `graphstrap.ops.row_cosine`."""
    if q.dtype == torch.float64:
        return _torch.row_cosine(q, t)
    return finish.row_cosine(q, t.to(q.dtype))


def linear_prelu(x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x W + bias, what follows the product fused."""
    return bias_prelu(x @ weight, bias, slope)
