"""What follows a product, fused into Triton kernels: normalisation with PReLU, bias with PReLU, and the row cosine."""

from graphstrap.ops._finish.batch_norm import batch_norm_prelu
from graphstrap.ops._finish.bias import bias_prelu
from graphstrap.ops._finish.cosine import row_cosine
from graphstrap.ops._finish.layer_norm import layer_norm_prelu
from graphstrap.ops._finish.tiles import IS_AVAILABLE

__all__ = ["IS_AVAILABLE", "batch_norm_prelu", "bias_prelu", "layer_norm_prelu", "row_cosine"]
