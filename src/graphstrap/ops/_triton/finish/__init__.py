"""What follows a product, fused into Triton kernels: normalisation with PReLU, bias with PReLU, and the row cosine."""

from graphstrap.ops._triton.finish.batch_norm import batch_norm_prelu
from graphstrap.ops._triton.finish.bias import bias_prelu
from graphstrap.ops._triton.finish.cosine import row_cosine
from graphstrap.ops._triton.finish.layer_norm import layer_norm_prelu

__all__ = ["batch_norm_prelu", "bias_prelu", "layer_norm_prelu", "row_cosine"]
