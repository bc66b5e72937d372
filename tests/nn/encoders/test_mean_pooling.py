"""The mean-pooling encoder is the paper's equations, and its whole-graph norm PyG's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import make_random_graph
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.io.pyg import import_pyg
from graphstrap.nn.encoders.gcn import Epilogue
from graphstrap.nn.encoders.mean_pooling import MeanPooling
from graphstrap.run.recipe import Recipe


def make_encoder(*, norm: str = "none", root_weight: bool = False) -> MeanPooling:
    generator = torch.Generator().manual_seed(0)
    return MeanPooling((12,), (8, 8, 6), norm=norm, root_weight=root_weight, generator=generator)


def prelu(z: Tensor) -> Tensor:
    return torch.where(z > 0, z, 0.25 * z)


@pytest.mark.parametrize("root_weight", [False, True])
def test_forward_is_the_papers_equations(root_weight: bool) -> None:
    graph, encoder = make_random_graph(num_nodes=20, num_edges=60, seed=2), make_encoder(root_weight=root_weight)
    adjacency = torch.eye(20)
    adjacency[graph.targets, graph.indices.long()] += 1.0
    mean = adjacency / adjacency.sum(1, keepdim=True)
    x: Tensor = graph.x.to_dense()  # type: ignore[union-attr]

    def pool(z: Tensor, weight: Tensor, root: Tensor | None) -> Tensor:
        return mean @ z @ weight + (0.0 if root is None else z @ root)

    roots = [None] * 3 if not root_weight else [encoder.input_roots[0], *encoder.roots]  # type: ignore[index, misc]
    skips = [skip[0] for skip in encoder.skips]  # type: ignore[index]
    h_1 = prelu(pool(x, encoder.input_weights[0], roots[0]))
    h_2 = prelu(pool(h_1 + x @ skips[0], encoder.weights[0], roots[1]))
    h_3 = prelu(pool(h_2 + h_1 + x @ skips[1], encoder.weights[1], roots[2]))
    torch.testing.assert_close(encoder(graph), h_3, rtol=1e-4, atol=1e-5)


def test_whole_graph_layer_norm_is_pygs() -> None:
    graph, h = make_random_graph(num_nodes=20, num_edges=60, seed=2), 3 * torch.randn(20, 5) + 1
    finish, norm = Epilogue(5, "graph", 0.99), import_pyg("nn").LayerNorm(5, mode="graph")
    ours: Any = finish.norm
    with torch.no_grad():
        ours.weight.copy_(torch.rand(5))
        ours.bias.copy_(torch.rand(5))
        norm.weight.copy_(ours.weight)
        norm.bias.copy_(ours.bias)
    torch.testing.assert_close(finish(h, graph), prelu(norm(h)), rtol=1e-4, atol=1e-4)


def test_hidden_layers_must_be_alike() -> None:
    with pytest.raises(InputError, match="all alike"):
        MeanPooling((12,), (8, 9, 6))
    with pytest.raises(InputError, match="all be the same"):
        Recipe().with_settings({"encoder.name": "mean-pooling", "encoder.hidden_sizes": [8, 9]})
    with pytest.raises(InputError, match=r"encoder\.norm must be one of batch, layer, none, got 'graph'"):
        Recipe().with_settings({"encoder.norm": "graph", "encoder.name": "gat"})
