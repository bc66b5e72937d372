"""What follows a product, fused into Triton kernels: normalisation with PReLU, bias with PReLU, and the row cosine."""

from __future__ import annotations

from graphstrap.ops._triton.finish.batch_norm import batch_norm_prelu
from graphstrap.ops._triton.finish.rows import bias_prelu, layer_norm_prelu, row_cosine

__all__ = ["batch_norm_prelu", "bias_prelu", "layer_norm_prelu", "row_cosine"]
