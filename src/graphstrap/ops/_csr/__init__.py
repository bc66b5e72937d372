"""The fast path on a CPU: each sparse product is one pass over CSR; what follows keeps little for its backward pass."""

from __future__ import annotations

from graphstrap.ops._csr.finish import (
    batch_norm_prelu,
    bias_prelu,
    graph_norm_prelu,
    layer_norm_prelu,
    linear,
    linear_prelu,
    log_total_others,
    move_average,
    prelu,
    row_cosine,
)
from graphstrap.ops._csr.products import project, project_both, propagate, propagate_both

__all__ = [
    "batch_norm_prelu",
    "bias_prelu",
    "graph_norm_prelu",
    "layer_norm_prelu",
    "linear",
    "linear_prelu",
    "log_total_others",
    "move_average",
    "prelu",
    "project",
    "project_both",
    "propagate",
    "propagate_both",
    "row_cosine",
]
