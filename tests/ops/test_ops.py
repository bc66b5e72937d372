"""Every backend equals the reference, forward and gradient, on hostile graphs and every kind of view."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from conftest import make_random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstrap import ops
from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.io.pyg import import_pyg
from graphstrap.ops import _csr, _torch
from graphstrap.ops._csr import products as adjacency
from graphstrap.ops._csr import products as features
from graphstrap.ops._torch import kept_edges

graphs = st.builds(
    make_random_graph,
    num_nodes=st.integers(2, 40),
    num_edges=st.integers(0, 200),
    seed=st.integers(0, 1000),
    weighted=st.booleans(),
)


@st.composite
def views(draw: st.DrawFn) -> ViewSpec:
    return ViewSpec(
        edge_drop_prob=draw(st.sampled_from([0.0, 0.3, 0.9, 1.0])),
        feature_mask_prob=draw(st.sampled_from([0.0, 0.4, 1.0])),
        mask_elements=draw(st.booleans()),
        drop_directions_together=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(graph=graphs, spec=views(), seed=st.integers(0, 2**62), norm=st.sampled_from(ops.NORMS))
def test_propagate_equals_the_reference(graph: Graph, spec: ViewSpec, seed: int, norm: str) -> None:
    view = View(spec, seed)
    h = torch.randn(graph.num_nodes, 5, requires_grad=True)
    upstream = torch.randn(graph.num_nodes, 5)
    results = [backend.propagate(graph, view, [h], norm)[0] for backend in (_torch, _csr)]
    gradients = [torch.autograd.grad(result, h, upstream)[0] for result in results]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ops.NORMS)
@pytest.mark.parametrize("spec", [ViewSpec(), ViewSpec(edge_drop_prob=0.4)])
def test_edges_that_a_batch_lacks_count_in_its_degrees(spec: ViewSpec, norm: str) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=80, seed=3, weighted=True)
    lacking = replace(graph, missing_degrees=torch.arange(30).float())
    h, view = torch.randn(30, 5), View(spec, 4)
    results = [backend.propagate(lacking, view, [h], norm)[0] for backend in (_torch, _csr)]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert torch.allclose(results[0], _torch.propagate(graph, view, [h], norm)[0]) == (norm == "sum")


@settings(max_examples=60, deadline=None)
@given(graph=graphs, spec=views(), seed=st.integers(0, 2**62), dense=st.booleans())
def test_project_equals_the_reference(graph: Graph, spec: ViewSpec, seed: int, dense: bool) -> None:
    if dense:
        graph = graph.with_features(graph.x.to_dense())  # type: ignore[union-attr]
    view = View(spec, seed)
    weight = torch.randn(12, 7, requires_grad=True)
    upstream = torch.randn(graph.num_nodes, 7)
    results = [backend.project(graph, view, [weight], 0)[0] for backend in (_torch, _csr)]
    gradients = [torch.autograd.grad(result, weight, upstream)[0] for result in results]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


def test_dense_form_of_dense_enough_sparse_features_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=60, seed=1)
    view = View(ViewSpec(feature_mask_prob=0.3), 5)
    weight = torch.randn(12, 4)
    sparse = _csr.project(graph, view, [weight], 0)
    monkeypatch.setitem(features.DENSE_FROM, "cpu", 0.0)
    torch.testing.assert_close(_csr.project(graph, view, [weight], 0), sparse)


def test_prelu_equals_the_reference() -> None:
    x, slope = torch.randn(40, 7, requires_grad=True), torch.tensor([0.3], requires_grad=True)
    upstream = torch.randn(40, 7)
    results = [backend.prelu(x, slope) for backend in (_torch, _csr)]
    gradients = [torch.autograd.grad(result, (x, slope), upstream) for result in results]
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_row_cosine_equals_the_reference_and_gives_the_target_no_gradient() -> None:
    q, t = torch.randn(40, 7, requires_grad=True), torch.randn(40, 7, requires_grad=True)
    upstream = torch.randn(40)
    results = [backend.row_cosine(q, t) for backend in (_torch, _csr)]
    gradients = [torch.autograd.grad(result, (q, t), upstream, allow_unused=True) for result in results]
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(gradients[1][0], gradients[0][0])
    assert [gradient[1] for gradient in gradients] == [None, None]


def test_a_row_of_zeros_has_cosine_zero_and_a_finite_gradient() -> None:
    q = torch.zeros(3, 4, requires_grad=True)
    for backend in (_torch, _csr):
        cosine = backend.row_cosine(q, torch.ones(3, 4))
        assert cosine.tolist() == [0.0, 0.0, 0.0]
        assert torch.equal(torch.autograd.grad(cosine.sum(), q)[0], torch.zeros(3, 4))


def test_propagate_against_a_dense_matrix() -> None:
    """Independent of both implementations: the textbook formula on a dense adjacency matrix."""
    graph = make_random_graph(num_nodes=15, num_edges=40, seed=3, weighted=True)
    assert graph.edge_weights is not None
    dense = torch.eye(15)
    dense[graph.targets, graph.indices.long()] += graph.edge_weights
    degree = dense.sum(1)
    h = torch.randn(15, 3)
    expected = {
        "symmetric": torch.diag(degree**-0.5) @ dense @ torch.diag(degree**-0.5) @ h,
        "mean": dense @ h / degree[:, None],
        "sum": dense @ h,
    }
    for norm in ops.NORMS:
        torch.testing.assert_close(ops.propagate(graph, CLEAN, h, norm=norm), expected[norm])


def test_edge_weights_count_as_in_pygs_gcn_norm() -> None:
    """With what the view keeps: degree = sum of kept weights + 1."""
    graph = make_random_graph(num_nodes=25, num_edges=80, seed=3, weighted=True)
    view = View(ViewSpec(edge_drop_prob=0.3), 4)
    kept = kept_edges(graph, view)
    assert kept is not None
    assert graph.edge_weights is not None
    gcn_norm = import_pyg("nn.conv.gcn_conv").gcn_norm
    edges, weights = gcn_norm(
        torch.stack([graph.indices.long(), graph.targets])[:, kept], graph.edge_weights[kept], num_nodes=25
    )
    h = torch.randn(25, 3)
    expected = torch.zeros(25, 3).index_add(0, edges[1], weights[:, None] * h[edges[0]])
    torch.testing.assert_close(ops.propagate(graph, view, h), expected)


def test_a_view_that_drops_everything_leaves_only_self_loops() -> None:
    graph = make_random_graph(num_nodes=15, num_edges=40, seed=3)
    h = torch.randn(15, 3)
    for norm in ops.NORMS:
        torch.testing.assert_close(ops.propagate(graph, View(ViewSpec(edge_drop_prob=1.0), 9), h, norm=norm), h)


def test_a_constant_is_fixed_by_the_mean() -> None:
    graph = make_random_graph(num_nodes=25, num_edges=80, seed=4, weighted=True)
    h = torch.ones(25, 2)
    torch.testing.assert_close(ops.propagate(graph, View(ViewSpec(edge_drop_prob=0.5), 2), h, norm="mean"), h)


def test_the_masked_adjacency_of_a_view_is_made_once_and_forgotten_with_it() -> None:
    graph = make_random_graph(num_nodes=25, num_edges=80, seed=4)
    view = View(ViewSpec(edge_drop_prob=0.5), 2)
    kept = weakref.ref(adjacency.adjacency(graph, view, "mean")[0])
    assert adjacency.adjacency(graph, view, "mean")[0] is kept()
    del view
    gc.collect()
    assert kept() is None


def test_backend_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSTRAP_BACKEND", "torch")
    ops.backend.cache_clear()
    assert ops.backend("cpu") == ("torch", "forced by GRAPHSTRAP_BACKEND")
    monkeypatch.setenv("GRAPHSTRAP_BACKEND", "warp")
    ops.backend.cache_clear()
    with pytest.raises(InputError, match="torch or csr"):
        ops.backend("cpu")
    monkeypatch.delenv("GRAPHSTRAP_BACKEND")
    ops.backend.cache_clear()
    assert ops.backend("cpu").name == "csr"


def test_wrong_norm_and_wrong_device_are_named() -> None:
    graph = make_random_graph(num_nodes=5, num_edges=5, seed=0)
    with pytest.raises(ValueError, match="symmetric, mean, sum"):
        ops.propagate(graph, CLEAN, torch.ones(5, 1), norm="max")
    with pytest.raises(InputError, match=r"^device must be auto, cpu or cuda"):
        ops.resolve_device("quantum")


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(2, 40), columns=st.integers(1, 20), slope=st.sampled_from([-0.3, 0.0, 0.25, 1.0]))
def test_batch_norm_prelu_equals_the_reference(rows: int, columns: int, slope: float) -> None:
    x = torch.randn(rows, columns, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(rows, columns, dtype=torch.float64)
    results, gradients, norms = [], [], []
    for backend in (_torch, _csr):
        norm = torch.nn.BatchNorm1d(columns, eps=1e-2, momentum=0.3).double()
        torch.nn.init.constant_(norm.weight, 1.5)
        torch.nn.init.constant_(norm.bias, -0.2)
        learned = torch.tensor([slope], dtype=torch.float64, requires_grad=True)
        results.append(backend.batch_norm_prelu(x, norm, learned))
        gradients.append(torch.autograd.grad(results[-1], (x, norm.weight, norm.bias, learned), upstream))
        norms.append(norm)
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(norms[1].running_mean, norms[0].running_mean)
    torch.testing.assert_close(norms[1].running_var, norms[0].running_var)


def test_linear_prelu_equals_the_reference() -> None:
    shapes = ((9, 5), (5, 4), (4,), (1,))
    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    results = [backend.linear_prelu(*given) for backend in (_torch, _csr)]
    torch.testing.assert_close(results[1], results[0])
    gradients = [torch.autograd.grad(result.square().sum(), given) for result in results]
    torch.testing.assert_close(gradients[1], gradients[0])


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5), columns=st.integers(1, 6))
def test_graph_norm_prelu_equals_the_reference(sizes: list[int], columns: int) -> None:
    num_nodes = sum(sizes) + 1
    offsets = torch.tensor([0, *sizes[:-1], sizes[-1] + 1]).cumsum(0).tolist()
    graph = Graph(
        indptr=torch.zeros(num_nodes + 1, dtype=torch.int64),
        indices=torch.zeros(0, dtype=torch.int32),
        graph_offsets=tuple(offsets),
    )
    x = torch.randn(num_nodes, columns, dtype=torch.float64, requires_grad=True)
    norm = torch.nn.LayerNorm(columns, eps=1e-2).double()
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    shift = torch.randn(columns, dtype=torch.float64, requires_grad=True)
    slope = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(num_nodes, columns, dtype=torch.float64)
    results = [backend.graph_norm_prelu(x, graph, norm, slope, shift) for backend in (_torch, _csr)]
    inputs = (x, norm.weight, norm.bias, slope, shift)
    gradients = [torch.autograd.grad(result, inputs, upstream) for result in results]
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(gradients[1], gradients[0])
