"""From nodes to edges and back: every backend equals the reference, forward and gradient."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from conftest import make_random_graph
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from graphstrap import ops
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.ops import _csr, _torch, _triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(not _triton.IS_AVAILABLE, reason="Triton is not installed")
cases = given(
    graph=st.builds(
        make_random_graph, num_nodes=st.integers(1, 40), num_edges=st.integers(0, 400), seed=st.integers(0, 1000)
    ),
    drop=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**62),
    width=st.integers(1, 9),
)


def check_against_reference(module: Any, graph: Graph, view: View, width: int) -> None:
    ends = [torch.randn(graph.num_nodes, width, device=DEVICE, requires_grad=True) for _ in range(2)]
    upstream = [torch.randn(graph.num_nodes, width, device=DEVICE) for _ in range(2)]
    results = []
    for backend in (_torch, module):
        sums = backend.nodes_from_edges(graph, view, backend.edges_from_nodes(graph, *ends).square())
        results.append((*sums, *torch.autograd.grad(sums, ends, upstream)))
    for ours, reference in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)


@settings(max_examples=40, deadline=None)
@cases
def test_csr_equals_the_reference(graph: Graph, drop: float, seed: int, width: int) -> None:
    check_against_reference(_csr, graph.to(DEVICE), View(ViewSpec(edge_drop_prob=drop), seed), width)


@needs_triton
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # the interpreter is slow: no shrinking
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@cases
def test_triton_equals_the_reference(
    poisoned_memory: None, narrow_chunks: None, graph: Graph, drop: float, seed: int, width: int
) -> None:
    check_against_reference(_triton, graph.to(DEVICE), View(ViewSpec(edge_drop_prob=drop), seed), width)


@needs_triton
def test_float64_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_random_graph(num_nodes=20, num_edges=90, seed=3).to(DEVICE)
    h = torch.randn(20, 3, dtype=torch.float64, device=DEVICE)
    for name in ("csr", "triton"):
        monkeypatch.setattr(ops, "backend", lambda device_type, name=name: ops.Backend(name, ""))
        ours = ops.nodes_from_edges(graph, CLEAN, ops.edges_from_nodes(graph, h, h))
        reference = _torch.nodes_from_edges(graph, CLEAN, _torch.edges_from_nodes(graph, h, h))
        torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("module", [_csr, pytest.param(_triton, marks=needs_triton)])
def test_what_is_kept_for_a_graph_goes_with_it(module: Any) -> None:
    graph = make_random_graph(num_nodes=5, num_edges=5, seed=0).to(DEVICE)
    module.nodes_from_edges(graph, CLEAN, torch.ones(graph.num_edges, 2, device=DEVICE))
    forgotten = weakref.ref(graph)
    del graph
    gc.collect()
    assert forgotten() is None
