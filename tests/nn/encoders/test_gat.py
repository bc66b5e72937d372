"""The GAT encoder is PyG's GATConv stack, skips, ELU and edge features included; its attention can be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import make_random_graph
from torch import Tensor

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.io.pyg import import_pyg
from graphstrap.nn.encoders.gat import GAT
from graphstrap.ops._torch import kept_edges


def make_gat(*, edge_size: int = 0, sizes: tuple[int, ...] = (5, 4, 6)) -> GAT:
    generator = torch.Generator().manual_seed(0)
    return GAT((12,), sizes, num_heads=2, num_output_heads=3, edge_size=edge_size, generator=generator)


def pyg_layer(layer: Any, *, edge_size: int) -> Any:
    """A GATConv with the layer's weights."""
    heads, size = layer.source.shape
    edge_dim = edge_size or None
    conv = import_pyg("nn").GATConv(
        layer.weights[0].shape[0], size, heads=heads, concat=not layer.is_last, edge_dim=edge_dim
    )
    with torch.no_grad():
        conv.lin.weight.copy_(layer.weights[0].T)
        conv.att_src.copy_(layer.source[None])
        conv.att_dst.copy_(layer.target[None])
        conv.bias.copy_(layer.bias)
        if edge_size:
            # d_k . x is written there as a_k . (V_k x): with a_k = (1, 0, ...) the first row of V_k is d_k.
            conv.att_edge.zero_()[..., 0] = 1.0
            conv.lin_edge.weight.view(heads, size, edge_size)[:, 0].copy_(layer.edge.T)
    return conv


@pytest.mark.parametrize("edge_size", [0, 2])
def test_it_is_pygs_stack_on_what_the_view_keeps(edge_size: int) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=150, seed=2)
    columns = torch.randn(graph.num_edges, 2)
    graph = replace(graph, edge_columns=columns) if edge_size else graph
    view = View(ViewSpec(edge_drop_prob=0.4), 5)
    encoder = make_gat(edge_size=edge_size)
    kept = kept_edges(graph, view)
    assert kept is not None
    edges = torch.stack([graph.indices.long(), graph.targets])[:, kept]
    h: Tensor = graph.x.to_dense()  # type: ignore[union-attr]
    for layer in encoder.layers:
        z = pyg_layer(layer, edge_size=edge_size)(h, edges, columns[kept].asinh() if edge_size else None)
        skips: Any = layer.skips
        h = F.elu(z + h @ skips[0] if len(skips) else z)
    torch.testing.assert_close(encoder(graph, view), h, rtol=1e-4, atol=1e-5)


def test_sizes_are_the_papers() -> None:
    encoder = GAT((50,), (256, 256, 512), generator=torch.Generator().manual_seed(0))
    layers: list[Any] = list(encoder.layers)
    shapes = [(tuple(layer.weights[0].shape), tuple(layer.bias.shape)) for layer in layers]
    assert shapes == [((50, 1024), (1024,)), ((1024, 1024), (1024,)), ((1024, 3072), (512,))]
    assert [len(layer.skips) for layer in layers] == [1, 1, 0]
    assert encoder.embedding_size == 512


def test_attention_adds_up_to_one_and_is_uniform_without_scores() -> None:
    graph, encoder = make_random_graph(num_nodes=30, num_edges=150, seed=2), make_gat()
    found = encoder.attention(graph)
    assert [tuple(edges.shape) for edges, _ in found] == [(graph.num_edges, heads) for heads in (2, 2, 3)]
    for edges, loops in found:
        torch.testing.assert_close(loops.index_add(0, graph.targets, edges), torch.ones_like(loops))
    with torch.no_grad():
        for layer in encoder.layers:
            layer.source.zero_()  # type: ignore[operator]
            layer.target.zero_()  # type: ignore[operator]
    uniform = 1.0 / (graph.in_degrees + 1.0)
    for _, loops in encoder.attention(graph):
        torch.testing.assert_close(loops, uniform[:, None].expand_as(loops))


def test_wrong_norm_is_named() -> None:
    with pytest.raises(ValueError, match="batch, layer or none"):
        GAT((3,), (4,), norm="graph")


def test_edges_of_another_kind_are_refused() -> None:
    from graphstrap.errors import InputError

    graph: Graph = make_random_graph(num_nodes=10, num_edges=30, seed=2)
    with pytest.raises(InputError, match="edges of 2 numbers"):
        make_gat(edge_size=2)(graph, CLEAN)
