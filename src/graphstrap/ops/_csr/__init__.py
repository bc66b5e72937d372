"""The fast path on a CPU: each sparse product is one pass over CSR; epilogues keep little for their backward pass."""

from __future__ import annotations

from graphstrap.ops._csr.attention import attend as attend
from graphstrap.ops._csr.attention import attend_features as attend_features
from graphstrap.ops._csr.epilogues import batch_norm_prelu as batch_norm_prelu
from graphstrap.ops._csr.epilogues import bias_prelu as bias_prelu
from graphstrap.ops._csr.epilogues import graph_norm_prelu as graph_norm_prelu
from graphstrap.ops._csr.epilogues import layer_norm_prelu as layer_norm_prelu
from graphstrap.ops._csr.epilogues import linear_prelu as linear_prelu
from graphstrap.ops._csr.epilogues import prelu as prelu
from graphstrap.ops._csr.epilogues import row_cosine as row_cosine
from graphstrap.ops._csr.messages import edges_from_nodes as edges_from_nodes
from graphstrap.ops._csr.messages import nodes_from_edges as nodes_from_edges
from graphstrap.ops._csr.products import project as project
from graphstrap.ops._csr.products import propagate as propagate
from graphstrap.ops._csr.similarities import log_total_others as log_total_others
from graphstrap.ops._torch import linear as linear
from graphstrap.ops._torch import move_average as move_average
