"""Epilogues, the elementwise work after a product: norm and PReLU, bias and PReLU, row cosine, moving average."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.graph import Graph
from graphstrap.ops._torch import apply, widened


def batch_norm_prelu(x: Tensor, norm: nn.BatchNorm1d, slope: Tensor) -> Tensor:
    """PReLU after batch norm in training; only x is kept for the backward pass."""
    return apply(_BatchNormPReLU, x, norm.weight, norm.bias, slope, norm)


def layer_norm_prelu(x: Tensor, norm: nn.LayerNorm, slope: Tensor, shift: Tensor) -> Tensor:
    """PReLU after layer norm of x + shift."""
    shifted = widened(x) + shift
    return prelu(F.layer_norm(shifted, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(x.dtype), slope)


def graph_norm_prelu(x: Tensor, graph: Graph, norm: nn.LayerNorm, slope: Tensor, shift: Tensor) -> Tensor:
    """PReLU after the norm over each graph's nodes and columns; two numbers a graph are summed up, row by row first."""
    shifted = widened(x) + shift
    normed = apply(_GraphNorm, shifted, graph.graph_starts, graph.graph_ids, norm.eps)
    return prelu((normed * norm.weight + norm.bias).to(x.dtype), slope)


def bias_prelu(x: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x + bias."""
    return prelu(x + bias.to(x.dtype), slope)


def linear_prelu(x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x W + bias."""
    return prelu(torch.addmm(bias, x, weight), slope)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x where positive, slope times x elsewhere. PyTorch's own backward pass on a CPU takes five times as long."""
    if x.device.type != "cpu":
        return F.prelu(x, slope)
    return apply(_PReLU, x, slope)


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """cos(q_i, t_i) of every row, with the gradient for q in one pass."""
    return apply(_RowCosine, widened(q), widened(t))


class _BatchNormPReLU(torch.autograd.Function):
    """The normalised values are made again in the backward pass: that costs less than writing and keeping them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor, norm: nn.BatchNorm1d) -> Tensor:
        assert norm.momentum is not None
        statistics = (norm.running_mean, norm.running_var) if len(x) > 1 else (None, None)  # one row has no variance
        normed, mean, rstd = torch.native_batch_norm(x, weight, bias, *statistics, True, norm.momentum, norm.eps)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.slope, ctx.eps = float(slope), norm.eps
        return F.leaky_relu(normed, ctx.slope, inplace=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        x, weight, bias, mean, rstd = ctx.saved_tensors
        variance = rstd.square().reciprocal() - ctx.eps
        normed = F.batch_norm(x, mean, variance, weight, bias, training=False, eps=ctx.eps)
        inner = torch.ops.aten.leaky_relu_backward(gradient, normed, ctx.slope, False)
        for_slope = _slope_gradient(gradient, normed.clamp_(max=0))
        for_x, for_weight, for_bias = torch.ops.aten.native_batch_norm_backward(
            inner, x, weight, None, None, mean, rstd, True, ctx.eps, [True, True, True]
        )
        return for_x, for_weight, for_bias, for_slope, None


def _slope_gradient(gradient: Tensor, below: Tensor) -> Tensor:
    """The sum of products. PyTorch's dot of bfloat16 takes fifteen times as long as a product and a sum."""
    if gradient.dtype == torch.bfloat16:
        return (gradient * below).sum(0).float().sum().reshape(1)
    return torch.dot(gradient.reshape(-1), below.reshape(-1)).reshape(1)


class _PReLU(torch.autograd.Function):
    """For one shared slope."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope = float(slope)
        return F.leaky_relu(x, ctx.slope)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        (x,) = ctx.saved_tensors
        for_x = torch.ops.aten.leaky_relu_backward(gradient, x, ctx.slope, False)
        return for_x, _slope_gradient(gradient, x.clamp(max=0))


class _GraphNorm(torch.autograd.Function):
    """y = (x - mean) * scale for each graph; dx = scale * (dy - mean dy - y * mean(dy * y)). No atomics."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, starts: Tensor, ids: Tensor, eps: float) -> Tensor:
        centred = x - _graph_mean(x, starts, ids)
        scale = (_graph_mean(centred.square(), starts, ids) + eps).rsqrt()  # (N, 1)
        y = centred.mul_(scale)
        ctx.save_for_backward(y, scale, starts, ids)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        y, scale, starts, ids = ctx.saved_tensors
        mean, slope = _graph_mean(gradient, starts, ids), _graph_mean(gradient * y, starts, ids)
        return (gradient - mean).addcmul_(y, slope, value=-1).mul_(scale), None, None, None


def _graph_mean(x: Tensor, starts: Tensor, ids: Tensor) -> Tensor:
    """(N, 1) the mean over all nodes and columns of each node's graph."""
    means = torch.segment_reduce(x.mean(1), "mean", offsets=starts, unsafe=True)
    return means.index_select(0, ids)[:, None]


class _RowCosine(torch.autograd.Function):
    """d cos / d q = (t / |t| - cos * q / |q|) / |q|."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, t: Tensor) -> Tensor:
        q_length, t_length = q.norm(dim=1).clamp(min=1e-8), t.norm(dim=1).clamp(min=1e-8)
        with torch.autocast(q.device.type, enabled=False):  # a sum of products, but not one to round
            cosine: Tensor = torch.einsum("nd,nd->n", q, t) / (q_length * t_length)
        cosine = torch.where(q_length == 1e-8, cosine * 0.0, cosine)  # a row of zeros, or nearly: see the reference
        ctx.save_for_backward(q, t, q_length, t_length, cosine)
        return cosine

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        q, t, q_length, t_length, cosine = ctx.saved_tensors
        for_t = gradient / (q_length * t_length)
        for_t = torch.where(q_length > 1e-8, for_t, 0.0)  # a row of zeros: see the reference
        for_q = -gradient * cosine / q_length.square()
        return torch.addcmul(t * for_t[:, None], q, for_q[:, None]), None
