"""The Triton product equals a dense one: hubs, empty rows, widths that are no powers of two, zero weights, poisoned
memory."""

from __future__ import annotations

import pytest
import torch

from conftest import make_random_graph
from graphstrap.ops import _csr, _torch, _triton
from graphstrap.view import View, ViewSpec


def test_it_is_there_only_with_triton() -> None:
    assert _triton.IS_AVAILABLE or not torch.cuda.is_available()


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [1, 7, 64, 130, 512])
@pytest.mark.parametrize("seed", range(3))
def test_product_equals_the_dense_one(columns: int, seed: int) -> None:
    graph = make_random_graph(num_nodes=500, num_edges=20_000, seed=seed, weighted=True).to("cuda")
    view = View(ViewSpec(edge_drop_prob=0.5), seed)
    h = torch.randn(500, columns, device="cuda", requires_grad=True)
    upstream = torch.randn(500, columns, device="cuda")
    poison = torch.full((500, columns), float("nan"), device="cuda")
    del poison  # the next allocation of this size is likely to get its memory
    for norm in ("symmetric", "mean", "sum"):
        ours = _csr.propagate(graph, view, h, norm)
        reference = _torch.propagate(graph, view, h.double(), norm)
        torch.testing.assert_close(ours, reference.float(), rtol=1e-4, atol=1e-4)
        gradients = [torch.autograd.grad(result.float(), h, upstream)[0] for result in (ours, reference)]
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_projection_equals_the_dense_one() -> None:
    graph = make_random_graph(num_nodes=500, num_edges=2_000, seed=0, num_features=300).to("cuda")
    view = View(ViewSpec(feature_mask_prob=0.3), 7)
    weight = torch.randn(300, 96, device="cuda", requires_grad=True)
    upstream = torch.randn(500, 96, device="cuda")
    results = [backend.project(graph, view, weight, 0) for backend in (_torch, _csr)]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
    gradients = [torch.autograd.grad(result, weight, upstream)[0] for result in results]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
