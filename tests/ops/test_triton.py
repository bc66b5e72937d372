"""The Triton backend equals the reference, forward and gradient: on CUDA where there is one, through Triton's
interpreter elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import make_random_graph
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from graphstrap import ops
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.graph.views import drop_threshold, keep
from graphstrap.ops import _torch, _triton
from graphstrap.ops._csr import products as feature_forms
from graphstrap.ops._torch import stream_seed
from graphstrap.ops._triton import chunks, products
from graphstrap.ops._triton.chunks import Chunks, compact
from graphstrap.ops._triton.masks import keep_bytes

pytestmark = [
    pytest.mark.skipif(not _triton.IS_AVAILABLE, reason="Triton is not installed"),
    pytest.mark.usefixtures("poisoned_memory"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
few = settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # the interpreter is slow: no shrinking
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

specs = st.builds(
    ViewSpec,
    edge_drop_prob=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    feature_mask_prob=st.sampled_from([0.0, 0.4, 1.0]),
    mask_elements=st.booleans(),
    drop_directions_together=st.booleans(),
)
graphs = st.builds(
    make_random_graph,
    num_nodes=st.integers(2, 40),
    num_edges=st.integers(0, 400),
    seed=st.integers(0, 1000),
    weighted=st.booleans(),
)


@few
@given(
    seed=st.integers(0, 2**63 - 1),
    prob=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    offset=st.sampled_from([0, 2**31, 2**40 + 7]),
)
def test_keeps_the_same_bits_as_everywhere(seed: int, prob: float, offset: int) -> None:
    ids = torch.arange(1500) + offset
    expected = keep(ids, seed, drop_threshold(prob))
    ours = keep_bytes(1500, seed, drop_threshold(prob), ids=ids.to(DEVICE), device=torch.device(DEVICE))
    assert torch.equal(ours.bool().cpu(), expected)
    seed_tensor = torch.tensor(seed, device=DEVICE)
    assert torch.equal(
        keep_bytes(1500, seed_tensor, drop_threshold(prob), ids=ids.to(DEVICE), device=torch.device(DEVICE)), ours
    )


def test_every_id_may_have_its_own_threshold() -> None:
    threshold = drop_threshold(torch.linspace(0, 1, 700))
    ours = keep_bytes(700, 5, threshold.to(DEVICE), ids=None, device=torch.device(DEVICE))
    assert torch.equal(ours.bool().cpu(), keep(torch.arange(700), 5, threshold))


@few
@given(graph=graphs, spec=specs, seed=st.integers(0, 2**62), norm=st.sampled_from(ops.NORMS), columns=st.integers(1, 9))
def test_propagate_equals_the_reference(
    narrow_chunks: None, graph: Graph, spec: ViewSpec, seed: int, norm: str, columns: int
) -> None:
    graph, view = graph.to(DEVICE), View(spec, seed)
    h = torch.randn(graph.num_nodes, columns, device=DEVICE, requires_grad=True)
    check_against(lambda backend: backend.propagate(graph, view, [h], norm)[0], h)


@few
@given(seed=st.integers(0, 2**63 - 1), stream=st.integers(0, 2**63 - 1))
def test_a_stream_has_the_same_bits_as_everywhere(seed: int, stream: int) -> None:
    expected = keep(torch.arange(300), stream_seed(seed, stream), drop_threshold(0.5))
    ours = keep_bytes(300, seed, drop_threshold(0.5), device=torch.device(DEVICE), stream=stream)
    assert torch.equal(ours.bool().cpu(), expected)


@few
@given(graph=graphs, spec=specs, seed=st.integers(0, 2**62), way=st.sampled_from(["dense", "sparse", "split"]))
def test_project_equals_the_reference(narrow_chunks: None, graph: Graph, spec: ViewSpec, seed: int, way: str) -> None:
    graph, view = graph.to(DEVICE), View(spec, seed)
    weight = torch.randn(12, 7, device=DEVICE, requires_grad=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(feature_forms.DENSE_FROM, DEVICE, 0.0 if way == "dense" else 1.1)
        patch.setattr(products, "_has_fast_products", lambda dtype: way == "split")
        patch.setattr(products, "_MULTIPLE", 4)
        patch.setattr(products, "HOT_FROM", 0.3)
        check_against(lambda backend: backend.project(graph, view, [weight], 0)[0], weight)


def test_elements_of_a_batch_are_masked_by_their_global_rows_and_the_probability_of_their_column() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=80, seed=3)
    assert isinstance(graph.x, SparseMatrix)
    x, ids = 1.0 + graph.x.to_dense(), 2**40 + 3 * torch.arange(30)
    spec = ViewSpec(feature_mask_prob=torch.linspace(0, 1, 12, device=DEVICE), mask_elements=True)
    batch, view = replace(graph, features=(x,), node_ids=ids).to(DEVICE), View(spec, 7)
    ours = products.masked_table(batch, view, 0, torch.nn.functional.pad(x.to(DEVICE), (0, 4)))
    expected = _torch.masked_features(batch, view, 0, torch.float32)
    assert 0 < (expected == 0).sum() < expected.numel()
    assert torch.equal(ours[:, :12], expected)
    assert not ours[:, 12:].any()


@given(seed=st.integers(0, 1000), mark=st.sampled_from([0.0, 0.2, 0.4, 1.0]))
def test_hot_and_cold_columns_are_all_of_the_features(seed: int, mark: float) -> None:
    features = make_random_graph(num_nodes=30, num_edges=0, seed=seed).x
    assert isinstance(features, SparseMatrix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_MULTIPLE", 4)
        patch.setattr(products, "HOT_FROM", mark)
        split = products.hot_columns(features, torch.float32)
    joined = split.cold.to_dense()
    assert not joined[:, split.hot].any()
    joined[:, split.hot] = split.table
    assert torch.equal(joined, features.to_dense())
    counts = (features.to_dense() != 0).sum(0)
    others = torch.ones(features.num_columns, dtype=torch.bool).index_fill(0, split.hot, False)
    if len(split.hot) and bool(others.any()):
        assert int(counts[split.hot].min()) >= int(counts[others].max())
    assert len(split.hot) == {0.0: 12, 1.0: 0}.get(mark, len(split.hot))


@pytest.mark.parametrize("norm", ops.NORMS)
def test_edges_that_a_batch_lacks_count_in_its_degrees(norm: str) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=80, seed=3, weighted=True)
    lacking = replace(graph, missing_degrees=torch.arange(30).float()).to(DEVICE)
    h, view = torch.randn(30, 5, device=DEVICE), View(ViewSpec(edge_drop_prob=0.4), 4)
    results = [backend.propagate(lacking, view, [h], norm)[0] for backend in (_torch, _triton)]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def check_against(call: Any, learned: torch.Tensor) -> None:
    reference, ours = call(_torch), call(_triton)
    upstream = torch.randn_like(reference)
    gradients = [torch.autograd.grad(result, learned, upstream)[0] for result in (reference, ours)]
    torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 7, 130, 300])
def test_hubs_of_many_chunks_and_widths_of_many_blocks(narrow_chunks: None, columns: int) -> None:
    graph = make_random_graph(num_nodes=60, num_edges=1_500, seed=1, weighted=True).to(DEVICE)
    assert int(graph.in_degrees.max()) > 2 * chunks.CHUNK
    h = torch.randn(60, columns, device=DEVICE, requires_grad=True)
    view = View(ViewSpec(edge_drop_prob=0.4), 3)
    check_against(lambda backend: backend.propagate(graph, view, [h], "symmetric")[0], h)


def test_both_tables_in_one_pass_and_the_second_gets_no_gradient_it_did_not_ask_for() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=200, seed=2).to(DEVICE)
    view = View(ViewSpec(edge_drop_prob=0.4, feature_mask_prob=0.3), 3)
    h, t = torch.randn(30, 9, device=DEVICE, requires_grad=True), torch.randn(30, 9, device=DEVICE)
    both = _triton.propagate(graph, view, [h, t], "mean")
    for one, table in zip(both, (h, t), strict=True):
        torch.testing.assert_close(one, _triton.propagate(graph, view, [table], "mean")[0], rtol=0, atol=0)
    assert both[0].requires_grad
    assert not both[1].requires_grad
    t.requires_grad_()
    gradients = torch.autograd.grad(sum(_triton.propagate(graph, view, [h, t], "mean")).sum(), (h, t))  # type: ignore[union-attr]
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("kind", ["propagate", "project"])
def test_bfloat16_sums_in_float32(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(feature_forms.DENSE_FROM, DEVICE, 1.1)
    monkeypatch.setattr(products, "_MULTIPLE", 4)
    graph = make_random_graph(num_nodes=50, num_edges=2_000, seed=4).to(DEVICE)
    view = View(ViewSpec(edge_drop_prob=0.2, feature_mask_prob=0.2), 3)
    table = torch.randn(50 if kind == "propagate" else 12, 33, device=DEVICE).bfloat16()
    last: Any = "symmetric" if kind == "propagate" else 0
    (ours,) = getattr(_triton, kind)(graph, view, [table], last)
    assert ours.dtype == torch.bfloat16
    (exact,) = getattr(_torch, kind)(graph, view, [table.double()], last)
    assert float((ours.double() - exact).norm() / exact.norm()) < 4e-3  # half a unit of bfloat16's 8 bits


def test_chunks_cover_every_entry_once() -> None:
    indptr = torch.tensor([0, 0, 300, 301, 557, 557])
    chunks = Chunks.of(indptr)
    covered = [e for a, b in zip(chunks.first.tolist(), chunks.last.tolist(), strict=True) for e in range(a, b)]
    assert sorted(covered) == list(range(557))
    assert sorted(set(chunks.rows.tolist())) == [0, 1, 2, 3, 4]
    assert chunks.split_rows.tolist() == [1, 3]
    assert chunks.split_slots.tolist() == [0, 3, 5]


def test_a_matrix_without_loops_or_mask_is_itself() -> None:
    graph = make_random_graph(num_nodes=20, num_edges=90, seed=3).to(DEVICE)
    matrix = compact(Chunks.of(graph.indptr), graph.indices)
    h = torch.randn(20, 3, device=DEVICE)
    torch.testing.assert_close(matrix.times(h)[0], _torch.propagate(graph, CLEAN, [h], "sum")[0] - h)


def test_the_same_call_gives_the_same_bits() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=2_000, seed=5).to(DEVICE)
    h = torch.randn(40, 17, device=DEVICE)
    views = [View(ViewSpec(edge_drop_prob=0.5), 9) for _ in range(2)]
    first, second = (_triton.propagate(graph, view, [h], "symmetric")[0] for view in views)
    assert torch.equal(first, second)


def test_float64_goes_to_an_exact_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "backend", lambda device_type: ops.Backend("triton", ""))
    graph = make_random_graph(num_nodes=20, num_edges=90, seed=3).to(DEVICE)
    h = torch.randn(20, 3, device=DEVICE, dtype=torch.float64)
    exact = _torch.propagate(graph, CLEAN, [h], "mean")[0]
    torch.testing.assert_close(ops.propagate(graph, CLEAN, h, norm="mean"), exact, rtol=1e-5, atol=1e-6)
    norm, slope = torch.nn.LayerNorm(3, device=DEVICE, dtype=torch.float64), torch.tensor([0.3], device=DEVICE).double()
    ours = ops.layer_norm_prelu(h, norm, slope, shift=h[0])
    torch.testing.assert_close(ours, _torch.layer_norm_prelu(h, norm, slope, h[0]), rtol=1e-12, atol=1e-12)


def test_averages_move_as_in_the_reference() -> None:
    averages, news = ([torch.randn(5, 3, device=DEVICE), torch.randn(4, device=DEVICE)] for _ in range(2))
    expected = [average.clone() for average in averages]
    _torch.move_average(expected, news, 0.25)
    _triton.move_average(averages, news, torch.tensor(0.25, device=DEVICE))
    torch.testing.assert_close(averages, expected)


def test_linear_equals_the_reference() -> None:
    x, weight, bias = (torch.randn(*shape, device=DEVICE, requires_grad=True) for shape in ((9, 5), (5, 4), (4,)))
    upstream = torch.randn(9, 4, device=DEVICE)
    results = [backend.linear(x, weight, bias) for backend in (_torch, _triton)]
    gradients = [torch.autograd.grad(result, (x, weight, bias), upstream) for result in results]
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(gradients[1], gradients[0])
