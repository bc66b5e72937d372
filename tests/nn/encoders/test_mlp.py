"""Laws of the MLP encoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_communities, make_random_graph

from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.encoders.mlp import MLP
from graphstrap.nn.methods import build_method
from graphstrap.run.recipe import Recipe


def make_mlp(*, norm: str = "none", sizes: tuple[int, ...] = (16, 8)) -> MLP:
    return MLP((12,), sizes, norm=norm, generator=torch.Generator().manual_seed(0))


def test_forward_equals_numpy() -> None:
    graph, encoder = make_random_graph(num_nodes=20, num_edges=60, seed=2), make_mlp()
    assert graph.x is not None
    h = graph.x.to_dense().numpy()
    for weight in (encoder.input_weights[0], encoder.weights[0]):
        z = h @ weight.detach().numpy()
        h = np.where(z > 0, z, 0.25 * z)
    np.testing.assert_allclose(encoder(graph).detach().numpy(), h, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_edges_do_not_matter(norm: str) -> None:
    graph, encoder = make_random_graph(num_nodes=30, num_edges=90, seed=1), make_mlp(norm=norm)
    without = replace(graph, indptr=torch.zeros_like(graph.indptr), indices=graph.indices[:0])
    assert torch.equal(encoder(graph), encoder(without))
    view = View(ViewSpec(edge_drop_prob=0.5), 3)
    assert torch.equal(encoder(graph), encoder(graph, view))


def test_masked_features_count_as_zero() -> None:
    from graphstrap.ops._torch import kept_columns

    graph, encoder = make_random_graph(num_nodes=30, num_edges=90, seed=1), make_mlp()
    view = View(ViewSpec(feature_mask_prob=0.4), 17)
    columns = kept_columns(view, num_columns=12, block=0, device=torch.device("cpu"))
    assert graph.x is not None
    assert columns is not None
    masked = graph.with_features(graph.x.to_dense() * columns)
    torch.testing.assert_close(encoder(graph, view), encoder(masked))


def test_a_type_without_features_gets_a_learned_vector() -> None:
    graph = Graph.from_edges(
        [0, 1], [3, 4], num_nodes=5, features=(torch.rand(3, 4), None), type_offsets=(0, 3, 5), node_types=("a", "b")
    )
    h = MLP((4, 0), (6,), norm="none", generator=torch.Generator().manual_seed(0))(graph)
    assert h.shape == (5, 6)
    assert torch.equal(h[3], h[4])


def test_it_serves_where_a_gcn_does() -> None:
    graph = make_communities(num_nodes=60, num_classes=3, seed=0)
    recipe = Recipe().with_settings({"encoder.name": "mlp", "encoder.hidden_sizes": [16], "encoder.embedding_size": 8})
    method = build_method(recipe, input_sizes=graph.num_features, seed=0)
    assert isinstance(method.online, MLP)
    torch.autograd.backward(method.loss(graph, [CLEAN, CLEAN])[0])
    recalibrate_batch_norm(method.online, [graph])
    assert method.embed(graph).shape == (60, 8)
    h, t = method.online.encode_all([method.target], graph, CLEAN)
    assert h.requires_grad
    assert not t.requires_grad
