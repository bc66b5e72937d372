"""Attention: every backend equals the reference, forward and gradient, and the reference equals PyG and the softmax
written out."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from conftest import make_random_graph
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphstrap import ops
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.io.pyg import import_pyg
from graphstrap.ops import Scores, _csr, _torch, _triton
from graphstrap.ops._csr.attention import _BLOCK_ELEMENTS
from graphstrap.ops._torch import kept_edges
from graphstrap.ops._triton import chunks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(not _triton.IS_AVAILABLE, reason="Triton is not installed")
graphs = st.builds(
    make_random_graph,
    num_nodes=st.integers(1, 40),
    num_edges=st.integers(0, 400),
    seed=st.integers(0, 1000),
)
cases = given(
    graph=graphs,
    drop=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    together=st.booleans(),
    seed=st.integers(0, 2**62),
    heads=st.integers(1, 5),
    width=st.sampled_from([1, 3, 8, 17]),
    with_edges=st.booleans(),
    average=st.booleans(),
)


def make_inputs(
    graph: Graph, *, heads: int, width: int, with_edges: bool, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Scores]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype).requires_grad_()

    num_nodes = graph.num_nodes
    edge = normal(graph.num_edges + num_nodes, heads) if with_edges else None
    return normal(num_nodes, heads * width), Scores(normal(num_nodes, heads), normal(num_nodes, heads), edge)


def learned(h: Tensor, scores: Scores) -> list[Tensor]:
    return [part for part in (h, *scores[:3]) if part is not None]


def check_against_reference(module: Any, graph: Graph, view: View, h: Tensor, scores: Scores, *, average: bool) -> None:
    results = [backend.attend(graph, view, h, scores, average) for backend in (_torch, module)]
    upstream = torch.randn_like(results[0])
    gradients = [torch.autograd.grad(result, learned(h, scores), upstream) for result in results]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    for ours, reference in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)


@settings(max_examples=60, deadline=None)
@cases
def test_csr_equals_the_reference(
    graph: Graph, drop: float, together: bool, seed: int, heads: int, width: int, with_edges: bool, average: bool
) -> None:
    graph = graph.to(DEVICE)
    view = View(ViewSpec(edge_drop_prob=drop, drop_directions_together=together), seed)
    h, scores = make_inputs(graph, heads=heads, width=width, with_edges=with_edges)
    check_against_reference(_csr, graph, view, h, scores, average=average)


@needs_triton
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # the interpreter is slow: no shrinking
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@cases
def test_triton_equals_the_reference(
    poisoned_memory: None,
    narrow_chunks: None,
    graph: Graph,
    drop: float,
    together: bool,
    seed: int,
    heads: int,
    width: int,
    with_edges: bool,
    average: bool,
) -> None:
    graph = graph.to(DEVICE)
    view = View(ViewSpec(edge_drop_prob=drop, drop_directions_together=together), seed)
    h, scores = make_inputs(graph, heads=heads, width=width, with_edges=with_edges)
    check_against_reference(_triton, graph, view, h, scores, average=average)


@needs_triton
@pytest.mark.parametrize(("heads", "width", "average"), [(2, 150, False), (3, 130, True)])
def test_hubs_of_many_chunks_and_heads_of_many_blocks(
    poisoned_memory: None, narrow_chunks: None, heads: int, width: int, average: bool
) -> None:
    graph = make_random_graph(num_nodes=50, num_edges=900, seed=1).to(DEVICE)
    assert int(graph.in_degrees.max()) > 2 * chunks.CHUNK
    h, scores = make_inputs(graph, heads=heads, width=width, with_edges=True)
    view = View(ViewSpec(edge_drop_prob=0.4), 3)
    check_against_reference(_triton, graph, view, h, scores, average=average)


@pytest.mark.parametrize("module", [_csr, pytest.param(_triton, marks=needs_triton)])
@pytest.mark.parametrize("width", [3, 70])  # sums over 12 feature columns pay for the wider one alone
@pytest.mark.parametrize("spec", [ViewSpec(), ViewSpec(0.3, 0.4), ViewSpec(0.3, 0.4, mask_elements=True)])
def test_attending_to_features_equals_the_reference(
    poisoned_memory: None, module: Any, width: int, spec: ViewSpec
) -> None:
    graph = make_random_graph(num_nodes=20, num_edges=90, seed=3)
    graph = graph.with_features(graph.x.to_dense()).to(DEVICE)  # type: ignore[union-attr]
    _, scores = make_inputs(graph, heads=2, width=1, with_edges=True)
    weight = torch.randn(12, 2 * width, device=DEVICE, requires_grad=True)
    results = [backend.attend_features(graph, View(spec, 7), weight, scores) for backend in (_torch, module)]
    upstream = torch.randn_like(results[0])
    gradients = [torch.autograd.grad(result, learned(weight, scores), upstream) for result in results]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    for ours, reference in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)


@needs_triton
def test_whole_chunks(poisoned_memory: None) -> None:
    """With the chunks that are used in earnest, one of which is full."""
    sources = torch.arange(300) % 19 + 1
    graph = Graph.from_edges(sources, 0 * sources, directed=True, duplicates="keep").to(DEVICE)
    assert int(graph.in_degrees.max()) > 2 * chunks.CHUNK
    h, scores = make_inputs(graph, heads=2, width=5, with_edges=False)
    check_against_reference(_triton, graph, CLEAN, h, scores, average=False)


@needs_triton
def test_bfloat16_sums_in_float32() -> None:
    graph = make_random_graph(num_nodes=50, num_edges=2_000, seed=4).to(DEVICE)
    view = View(ViewSpec(edge_drop_prob=0.2), 3)
    h, scores = make_inputs(graph, heads=2, width=20, with_edges=True, dtype=torch.bfloat16)
    ours = _triton.attend(graph, view, h, scores, False)
    assert ours.dtype == torch.bfloat16
    upstream = torch.randn_like(ours)
    gradients = torch.autograd.grad(ours, learned(h, scores), upstream)
    exact_inputs = [part.detach().double().requires_grad_() for part in learned(h, scores)]
    exact = _torch.attend(
        graph, view, exact_inputs[0], Scores(exact_inputs[1], exact_inputs[2], exact_inputs[3]), False
    )
    exact_gradients = torch.autograd.grad(exact, exact_inputs, upstream.double())
    for one, other in zip((ours, *gradients), (exact, *exact_gradients), strict=True):
        assert one.dtype == torch.bfloat16
        assert float((one.double() - other).detach().norm() / other.detach().norm()) < 6e-3  # bfloat16 has 8 bits


@needs_triton
def test_the_same_call_gives_the_same_bits() -> None:
    graph = make_random_graph(num_nodes=40, num_edges=900, seed=5).to(DEVICE)
    h, scores = make_inputs(graph, heads=2, width=7, with_edges=True)
    runs = []
    for _ in range(2):
        out = _triton.attend(graph, View(ViewSpec(edge_drop_prob=0.5), 9), h, scores, False)
        runs.append((out, *torch.autograd.grad(out.square().sum(), learned(h, scores))))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("name", ["csr", pytest.param("triton", marks=needs_triton)])
def test_float64_is_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "backend", lambda device_type: ops.Backend(name, ""))
    graph = make_random_graph(num_nodes=20, num_edges=90, seed=3).to(DEVICE)
    h, scores = make_inputs(graph, heads=2, width=3, with_edges=True, dtype=torch.float64)
    ours, reference = ops.attend(graph, CLEAN, h, scores, average=True), _torch.attend(graph, CLEAN, h, scores, True)
    torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)


def test_scores_far_from_zero_do_not_overflow() -> None:
    graph = make_random_graph(num_nodes=20, num_edges=90, seed=3).to(DEVICE)
    h, scores = make_inputs(graph, heads=2, width=3, with_edges=False)
    modules = [_torch, _csr] + [_triton] * _triton.IS_AVAILABLE
    for module in modules:
        large = Scores(scores.source * 1e4, scores.target)
        out = module.attend(graph, CLEAN, h, large, False)
        assert torch.isfinite(out).all()
        assert all(torch.isfinite(g).all() for g in torch.autograd.grad(out.sum(), learned(h, scores)))


@pytest.mark.parametrize("average", [False, True])
def test_it_is_pygs_gatconv_on_what_the_view_keeps(average: bool) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=150, seed=2)
    view = View(ViewSpec(edge_drop_prob=0.4), 5)
    kept = kept_edges(graph, view)
    assert kept is not None
    layer = import_pyg("nn").GATConv(6, 4, heads=3, concat=not average, bias=False)
    x = torch.randn(30, 6)
    edges = torch.stack([graph.indices.long(), graph.targets])[:, kept]
    table = (x @ layer.lin.weight.T).view(30, 3, 4)
    scores = Scores((table * layer.att_src).sum(-1), (table * layer.att_dst).sum(-1))
    ours = ops.attend(graph, view, table.flatten(1), scores, average=average)
    torch.testing.assert_close(ours, layer(x, edges), rtol=1e-4, atol=1e-5)


def test_the_weights_of_a_node_add_up_to_one_and_dropped_edges_have_none() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=150, seed=2)
    view = View(ViewSpec(edge_drop_prob=0.4), 5)
    _, scores = make_inputs(graph, heads=3, width=1, with_edges=True)
    assert scores.edge is not None
    on_cpu = scores._replace(source=scores.source.cpu(), target=scores.target.cpu(), edge=scores.edge.cpu())
    edges, loops = ops.attention_weights(graph, view, on_cpu)
    assert edges.shape == (graph.num_edges, 3)
    assert loops.shape == (30, 3)
    torch.testing.assert_close(loops.index_add(0, graph.targets, edges), torch.ones(30, 3))
    kept = kept_edges(graph, view)
    assert kept is not None
    assert torch.equal(edges > 0, kept[:, None].expand(-1, 3))


def test_memory_does_not_hold_a_row_for_every_edge() -> None:
    """The CPU path never makes a tensor of E x D elements, forward or backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    graph = make_random_graph(num_nodes=200, num_edges=8_000, seed=2)
    h, scores = make_inputs(graph, heads=2, width=256, with_edges=False)
    h, scores = h.cpu().detach().requires_grad_(), Scores(scores.source.cpu(), scores.target.cpu())

    class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
        elements = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, Tensor):
                    self.elements = max(self.elements, tensor.numel())
            return out

    with Largest() as largest:  # type: ignore[no-untyped-call]
        torch.autograd.backward(_csr.attend(graph, CLEAN, h, scores, False).sum())
    assert largest.elements <= _BLOCK_ELEMENTS < graph.num_edges * h.shape[1]


@pytest.mark.parametrize("module", [_csr, pytest.param(_triton, marks=needs_triton)])
def test_what_is_kept_for_a_graph_goes_with_it(module: Any) -> None:
    graph = make_random_graph(num_nodes=5, num_edges=5, seed=0).to(DEVICE)
    h, scores = make_inputs(graph, heads=1, width=2, with_edges=True)
    module.attend(graph, CLEAN, h, scores, False)
    forgotten = weakref.ref(graph)
    del graph
    gc.collect()
    assert forgotten() is None


def test_wrong_shapes_are_named() -> None:
    graph = make_random_graph(num_nodes=5, num_edges=5, seed=0)
    good = torch.zeros(5, 2)
    with pytest.raises(ValueError, match=r"scores\.target must be of shape"):
        ops.attend(graph, CLEAN, torch.zeros(5, 4), Scores(good, torch.zeros(5, 3)))
    with pytest.raises(ValueError, match="among 2 heads"):
        ops.attend(graph, CLEAN, torch.zeros(5, 5), Scores(good, good))


def test_means_of_edge_columns_are_those_of_kept_edges() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=150, seed=2)
    view = View(ViewSpec(edge_drop_prob=0.4), 5)
    columns = torch.randn(graph.num_edges, 2)
    kept, means = kept_edges(graph, view), ops.edge_means(graph, view, columns)
    assert kept is not None
    for node in range(30):
        chosen = columns[kept & (graph.targets == node)]
        torch.testing.assert_close(means[node], chosen.mean(0) if len(chosen) else torch.zeros(2))
