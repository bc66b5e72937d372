"""Laws of the GCN encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import make_random_graph

from graphstrap.api.estimator import Embedder
from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.io.generate.arxiv import arxiv_like
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.encoders.gcn import GCN, glorot, standardize
from graphstrap.ops import _torch, project, propagate
from graphstrap.run.recipe import ENCODERS, Recipe


def make_gcn(*, norm: str = "batch", sizes: tuple[int, ...] = (16, 8), standard: bool = False) -> GCN:
    return GCN((12,), sizes, norm=norm, weight_standardization=standard, generator=torch.Generator().manual_seed(0))


def permuted(graph: Graph, order: torch.Tensor) -> Graph:
    """Node i of the result is node order[i] of the graph."""
    new_number = torch.argsort(order)
    assert graph.x is not None
    return Graph.from_edges(
        new_number[graph.indices.long()],
        new_number[graph.targets],
        num_nodes=graph.num_nodes,
        directed=True,
        x=graph.x.to_dense()[order],
    )


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("sizes", [(8,), (16, 8), (16, 12, 8)])
def test_permuting_nodes_permutes_embeddings(norm: str, sizes: tuple[int, ...]) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=1)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(3))
    encoder = make_gcn(norm=norm, sizes=sizes)
    torch.testing.assert_close(encoder(permuted(graph, order)), encoder(graph)[order], rtol=1e-4, atol=1e-5)


def test_forward_equals_numpy() -> None:
    """One layer without normalisation, written out with dense matrices."""
    graph = make_random_graph(num_nodes=20, num_edges=60, seed=2)
    encoder = make_gcn(norm="none", sizes=(8,))
    adjacency = np.eye(20, dtype=np.float32)
    adjacency[graph.targets, graph.indices] += 1.0
    degree = adjacency.sum(1)
    normalised = adjacency / np.sqrt(degree[:, None] * degree[None, :])
    assert graph.x is not None
    z = normalised @ graph.x.to_dense().numpy() @ encoder.input_weights[0].detach().numpy()
    expected = np.where(z > 0, z, 0.25 * z)
    np.testing.assert_allclose(encoder(graph).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_view_equals_the_graph_with_its_edges_and_columns_removed() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=120, seed=4)
    view = View(ViewSpec(edge_drop_prob=0.4, feature_mask_prob=0.3), 17)
    from graphstrap.ops._torch import kept_columns, kept_edges

    kept = kept_edges(graph, view)
    columns = kept_columns(view, num_columns=12, block=0, device=torch.device("cpu"))
    assert kept is not None
    assert columns is not None
    assert graph.x is not None
    removed = Graph.from_edges(
        graph.indices[kept], graph.targets[kept], num_nodes=30, directed=True, x=graph.x.to_dense() * columns
    )
    encoder = make_gcn()
    torch.testing.assert_close(encoder(graph, view), encoder(removed, CLEAN), rtol=1e-4, atol=1e-5)


def test_gradients_equal_those_of_the_reference_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=120, seed=4, weighted=True)
    view = View(ViewSpec(edge_drop_prob=0.4, feature_mask_prob=0.3), 17)
    encoder = make_gcn(norm="layer", standard=True)
    upstream = torch.randn(30, 8)

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(encoder(graph, view), list(encoder.parameters()), upstream)

    fast = gradients()
    monkeypatch.setattr("graphstrap.ops._backend_of", lambda tensor: _torch)
    for ours, reference in zip(fast, gradients(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-3, atol=1e-4)


def test_node_types_have_their_own_weights_and_a_type_without_features_a_learned_vector() -> None:
    graph = Graph.from_edges(
        [0, 1, 2],
        [3, 3, 4],
        num_nodes=5,
        features=(torch.rand(3, 4), None),
        type_offsets=(0, 3, 5),
        node_types=("a", "b"),
    )
    encoder = GCN((4, 0), (6,), generator=torch.Generator().manual_seed(0))
    assert [tuple(weight.shape) for weight in encoder.input_weights] == [(4, 6), (1, 6)]
    encoder(graph).sum().backward()
    assert all(weight.grad is not None for weight in encoder.input_weights)


def test_target_gets_no_gradient_and_online_does() -> None:
    graph = make_random_graph(num_nodes=20, num_edges=60, seed=2)
    h, t = make_gcn().encode_all([make_gcn()], graph, CLEAN)
    assert h.requires_grad
    assert not t.requires_grad


def test_recalibrated_batch_norm_gives_the_training_statistics_of_the_clean_graph() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=160, seed=5)
    encoder = make_gcn()
    before = [module.momentum for module in encoder.modules() if isinstance(module, torch.nn.BatchNorm1d)]
    encoder.train()
    expected = encoder(graph)
    recalibrate_batch_norm(encoder, [graph])
    encoder.eval()
    # Training normalises by the biased variance, evaluation by the unbiased one: they differ by 1 / N.
    torch.testing.assert_close(encoder(graph), expected, rtol=0.05, atol=0.05)
    assert before == [module.momentum for module in encoder.modules() if isinstance(module, torch.nn.BatchNorm1d)]


def test_batch_norm_decay_has_the_papers_meaning() -> None:
    norms = [m for m in GCN((3,), (4,), batch_norm_decay=0.99).modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert norms[0].momentum == pytest.approx(0.01)


def test_glorot_bound_and_standardized_columns() -> None:
    weight = glorot(50, 30, torch.Generator().manual_seed(0))
    assert float(weight.detach().abs().max()) <= (6 / 80) ** 0.5
    assert float(weight.detach().std()) == pytest.approx((2 / 80) ** 0.5, rel=0.1)
    standard = standardize(weight).detach()
    torch.testing.assert_close(standard.mean(0), torch.zeros(30), atol=1e-6, rtol=0)
    torch.testing.assert_close(standard.square().sum(0), torch.ones(30), atol=1e-3, rtol=0)


def test_wrong_norm_is_named() -> None:
    with pytest.raises(ValueError, match="batch, layer, graph or none"):
        GCN((3,), (4,), norm="group")


@pytest.mark.parametrize("norm", ["layer", "graph", "none"])
@pytest.mark.parametrize("name", ["gcn", "mean-pooling"])
def test_without_a_bias_nothing_is_learned_in_front_of_the_norm(norm: str, name: str) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=1)
    sizes, make = (8, 8), ENCODERS.get(name)
    with_bias, without = (
        make((12,), sizes, norm=norm, bias=bias, generator=torch.Generator().manual_seed(0)) for bias in (True, False)
    )
    torch.testing.assert_close(with_bias(graph), without(graph))  # it starts from 0
    names = [{key for key, _ in encoder.named_parameters()} for encoder in (with_bias, without)]
    assert names[0] - names[1] == {"layers.0.bias", "layers.1.bias"}
    torch.autograd.backward(without(graph).square().sum())
    assert not any(key.endswith("s.0.bias") for key in without.state_dict())


def test_the_recipe_for_arxiv_does_not_draw_nodes_together() -> None:
    """A bias in front of layer norm, at a rate of 0.01, outgrows features of 0.1: all nodes become alike."""
    graph = arxiv_like(num_nodes=500, num_classes=5)
    more = {"encoder.hidden_sizes": [64, 64], "encoder.embedding_size": 64, "train.steps": 100}
    spreads = []
    for bias in (True, False):
        settings = {**more, "encoder.bias": bias}
        model = Embedder(recipe="ogbn-arxiv", settings=settings, device="cpu").fit(graph)
        spreads.append(model.metrics_[-1]["spread"])
    assert spreads[0] < 0.3
    assert spreads[1] > 0.5


def test_a_linear_end_is_a_convolution_and_a_bias() -> None:
    graph = make_random_graph(num_nodes=20, num_edges=60, seed=2)
    encoder, usual = (
        GCN((12,), (16, 8), norm="batch", linear_end=end, generator=torch.Generator().manual_seed(0))
        for end in (True, False)
    )
    encoder.layers[-1].bias.data.fill_(0.5)  # type: ignore[operator]
    inner = usual.layers[0](propagate(graph, CLEAN, project(graph, CLEAN, usual.input_weights[0])))
    expected = propagate(graph, CLEAN, inner @ usual.weights[0]) + 0.5
    torch.testing.assert_close(encoder(graph), expected, rtol=1e-4, atol=1e-5)
    h, t = encoder.encode_all([encoder], graph, CLEAN)
    torch.testing.assert_close(h, t)
    with pytest.raises(InputError, match="linear_end is a setting of gcn, not of gat"):
        Recipe().with_settings({"encoder.name": "gat", "encoder.linear_end": True})


def test_one_node_leaves_batch_norms_statistics_alone_and_recalibration_heals_them() -> None:
    lonely, graph = (make_random_graph(num_nodes=n, num_edges=90 * (n > 1), seed=0) for n in (1, 30))
    encoder = GCN(graph.num_features, (8, 4))
    encoder.train()(lonely)
    assert all(bool(buffer.isfinite().all()) for buffer in encoder.buffers())
    for buffer in encoder.buffers():
        buffer.fill_(torch.nan if buffer.is_floating_point() else 0)
    recalibrate_batch_norm(encoder, [graph])
    assert all(bool(buffer.isfinite().all()) for buffer in encoder.buffers())


def test_recalibration_over_batches_takes_the_mean_of_their_statistics() -> None:
    graphs = [make_random_graph(num_nodes=30, num_edges=90, seed=seed) for seed in range(3)]
    encoder, found = GCN(graphs[0].num_features, (4,)), []
    for part in ([graphs[0]], [graphs[1]], [graphs[2]], graphs):
        recalibrate_batch_norm(encoder, part)
        found.append([buffer.clone() for buffer in encoder.buffers() if buffer.is_floating_point()])
    for *each, mean in zip(*found, strict=True):
        torch.testing.assert_close(mean, torch.stack(each).mean(0))
