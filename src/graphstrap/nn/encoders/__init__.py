"""Encoders map (Graph, View) to embeddings. Each is a torch module called as `encoder(graph, view)`, giving (N, D)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor, nn

from graphstrap.graph import CLEAN, Graph, View
from graphstrap.nn.encoders import gcn
from graphstrap.nn.encoders.edges import KnownEdges as KnownEdges
from graphstrap.nn.encoders.edges import edge_size as edge_size
from graphstrap.nn.encoders.gat import GAT
from graphstrap.nn.encoders.gcn import GCN
from graphstrap.nn.encoders.mean_pooling import MeanPooling
from graphstrap.nn.encoders.mlp import MLP
from graphstrap.nn.encoders.mpnn import MPNN

ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "gcn": GCN,
    "mean-pooling": MeanPooling,
    "gat": GAT,
    "mpnn": MPNN,
    "mlp": MLP,
}


class Encoder(Protocol):
    """What methods ask of an encoder."""

    embedding_size: int

    def __call__(self, graph: Graph, view: View = CLEAN) -> Tensor: ...


def encode_both(online: nn.Module, target: nn.Module, graph: Graph, view: View) -> tuple[Tensor, Tensor]:
    """Both networks' embeddings of one view, the target's without gradient: (h, t).

    Two GCNs share each pass over the edges; other encoders share the view's masked adjacency.
    """
    if isinstance(online, GCN) and isinstance(target, GCN):
        h, t = gcn.encode_both(online, target, graph, view)
        return h, t.detach()
    h = online(graph, view)
    with torch.no_grad():
        t = target(graph, view)
    return h, t


def recalibrate_batch_norm(encoder: nn.Module, graphs: Iterable[Graph]) -> None:
    """Set batch-norm statistics to those of the clean graph that embeddings are made of, or to the mean over batches.

    The running averages of training describe augmented views, whose degrees and features are thinned out.
    """
    norms = [module for module in encoder.modules() if isinstance(module, nn.BatchNorm1d)]
    new_batch_weights = [norm.momentum for norm in norms]  # PyTorch's `momentum` is the weight of the NEW batch
    was_training = encoder.training
    encoder.eval()  # no dropout: what embeds has none
    for norm in norms:
        norm.train()
        norm.reset_running_stats()
    for number, graph in enumerate(graphs, start=1):
        for norm in norms:
            norm.momentum = 1.0 / number
        with torch.no_grad():
            encoder(graph, CLEAN)
    for norm, weight in zip(norms, new_batch_weights, strict=True):
        norm.momentum = weight
    encoder.train(was_training)
