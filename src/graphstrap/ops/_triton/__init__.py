"""The backend for CUDA: masked sparse products and fused epilogues as Triton kernels, dense products by cuBLAS."""

from __future__ import annotations

from graphstrap.ops._csr.epilogues import graph_norm_prelu as graph_norm_prelu
from graphstrap.ops._torch import move_average as move_average
from graphstrap.ops._triton.attention import attend as attend
from graphstrap.ops._triton.attention import attend_features as attend_features
from graphstrap.ops._triton.batch_norm import batch_norm_prelu as batch_norm_prelu
from graphstrap.ops._triton.launch import IS_AVAILABLE as IS_AVAILABLE
from graphstrap.ops._triton.messages import edges_from_nodes as edges_from_nodes
from graphstrap.ops._triton.messages import nodes_from_edges as nodes_from_edges
from graphstrap.ops._triton.products import linear as linear
from graphstrap.ops._triton.products import project as project
from graphstrap.ops._triton.products import propagate as propagate
from graphstrap.ops._triton.row_epilogues import bias_prelu as bias_prelu
from graphstrap.ops._triton.row_epilogues import layer_norm_prelu as layer_norm_prelu
from graphstrap.ops._triton.row_epilogues import linear_prelu as linear_prelu
from graphstrap.ops._triton.row_epilogues import row_cosine as row_cosine
from graphstrap.ops._triton.similarities import log_total_others as log_total_others
