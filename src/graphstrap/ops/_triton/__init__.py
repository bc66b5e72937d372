"""The backend for CUDA: masked sparse products and fused finishes as Triton kernels, dense products by cuBLAS."""

from __future__ import annotations

from graphstrap.ops._torch import move_average
from graphstrap.ops._triton.finishes import (
    batch_norm_prelu,
    bias_prelu,
    graph_norm_prelu,
    layer_norm_prelu,
    linear_prelu,
    row_cosine,
)
from graphstrap.ops._triton.launch import IS_AVAILABLE
from graphstrap.ops._triton.others import log_total_others
from graphstrap.ops._triton.products import linear, project, project_both, propagate, propagate_both

__all__ = [
    "IS_AVAILABLE",
    "batch_norm_prelu",
    "bias_prelu",
    "graph_norm_prelu",
    "layer_norm_prelu",
    "linear",
    "linear_prelu",
    "log_total_others",
    "move_average",
    "project",
    "project_both",
    "propagate",
    "propagate_both",
    "row_cosine",
]
