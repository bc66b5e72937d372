"""MLP: a GCN that looks at no edge. What it reaches says how much features tell without the graph.

    H_0  = X                                                  one feature block per node type
    H_i  = prelu(norm(H_{i-1} W_i))

Cost of a pass: time O(N F D), or O(nnz(X) D) with sparse features; memory O(N D).
"""

from __future__ import annotations

from dataclasses import dataclass

from graphstrap.nn.encoders.gcn import GCN
from graphstrap.run.recipe import ENCODERS, EncoderSettings
from graphstrap.run.settings import setting


@dataclass(frozen=True)
class MLPSettings(EncoderSettings):
    name: str = "mlp"
    weight_standardization: bool = setting(False)


@ENCODERS.register("mlp")
class MLP(GCN):
    """A stack of dense layers; the arguments are those of `GCN`."""

    Settings = MLPSettings
    follows_edges = uses_up_hops = False
