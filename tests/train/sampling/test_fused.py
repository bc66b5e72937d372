"""The fused kernels give the sampler's batches, array by array: through Triton's interpreter, or on CUDA, captured."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from conftest import make_random_graph
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.ops._triton.launch import IS_AVAILABLE
from graphstrap.train.sampling.fused import FusedSampler
from graphstrap.train.sampling.sampler import Sampler

pytestmark = pytest.mark.skipif(not IS_AVAILABLE, reason="Triton is not installed")


def check_same(ours: Graph, theirs: Graph) -> None:
    for field in fields(Graph):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(other, Tensor):
            assert one.dtype == other.dtype, field.name
            assert torch.equal(one.cpu(), other.cpu()), field.name
        elif field.name not in ("cleaning", "features"):
            assert one == other, field.name


def samplers(device: str, fan_outs: list[int], *, unbiased: bool) -> tuple[Sampler, Sampler]:
    graph = make_random_graph(num_nodes=300, num_edges=1500, seed=2).to(device)
    plain, fused = (Sampler(graph, fan_outs, unbiased=unbiased) for _ in range(2))
    plain.fused = None
    assert fused.places_table is not None
    fused.fused = FusedSampler(graph, fan_outs, places=fused.places_table, unbiased=unbiased)
    return plain, fused


@pytest.mark.parametrize("fan_outs", [[4], [3, 5], [2, 1, 3], [40, 2]])
@pytest.mark.parametrize("unbiased", [True, False])
def test_batches_are_the_sampler_s(fan_outs: list[int], unbiased: bool) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain, fused = samplers(device, fan_outs, unbiased=unbiased)
    for step, size in enumerate((7, 1, 12)):
        roots = torch.randperm(300, generator=torch.Generator().manual_seed(step))[:size]
        theirs = plain.sample(roots, seed=5, step=step, are_distinct=True)
        check_same(fused.sample(roots, seed=5, step=step, are_distinct=True), theirs)


@pytest.mark.gpu
def test_captured_batches_are_the_sampler_s() -> None:
    plain, fused = samplers("cuda", [5, 3], unbiased=True)
    kept = []
    for step in range(6):
        roots = torch.randperm(300, generator=torch.Generator().manual_seed(step))[:20]
        theirs = plain.sample(roots, seed=5, step=step, are_distinct=True)
        kept.append((fused.sample(roots, seed=5, step=step, are_distinct=True), theirs))
    for ours, theirs in kept:  # a later replay does not touch an earlier batch
        check_same(ours, theirs)
