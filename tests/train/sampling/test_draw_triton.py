"""The kernels draw the reference's bits: on CUDA where there is one, through Triton's interpreter elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import make_random_graph

from graphstrap.graph import Graph
from graphstrap.ops._triton.launch import IS_AVAILABLE
from graphstrap.train.sampling import draw, draw_triton
from graphstrap.train.sampling.draw import Drawn, Frontier, NeighborIndex

pytestmark = pytest.mark.skipif(not IS_AVAILABLE, reason="Triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_graph(*, num_relations: int) -> Graph:
    graph = make_random_graph(num_nodes=60, num_edges=900, seed=1)
    if num_relations > 1:
        types = torch.randint(0, num_relations, (graph.num_edges,), generator=torch.Generator().manual_seed(0))
        names = tuple(f"r{k}" for k in range(num_relations))
        graph = replace(graph, edge_types=types, edge_type_names=names)
    return replace(graph, node_times=torch.arange(60) % 7).to(DEVICE)


@pytest.mark.parametrize("num_relations", [1, 3])
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("with_factors", [False, True])
def test_kernels_draw_the_same_edges(num_relations: int, disjoint: bool, by_time: bool, with_factors: bool) -> None:
    index = NeighborIndex.of(make_graph(num_relations=num_relations), with_times=by_time)
    nodes = torch.arange(0, 60, 2, device=DEVICE)
    owners = torch.arange(30, device=DEVICE) % 5
    roots = torch.tensor([3, 1, 40, 7, 12], device=DEVICE)
    before = torch.arange(30, device=DEVICE) % 8 if by_time else None
    fan_outs = [5, 0, 9][:num_relations]
    frontier = Frontier(nodes, owners if disjoint else None, roots if disjoint else None, before)
    seeds = [123456789012345678, 11, 22, 3 << 60][: num_relations + 1]
    ours, theirs = (
        module.draw_edges(index, frontier, fan_outs, seeds=seeds, with_factors=with_factors)
        for module in (draw_triton, draw)
    )
    assert len(ours.edges) > 60
    check_equal(ours, theirs)


def test_an_empty_frontier_and_a_fan_out_of_nothing() -> None:
    index = NeighborIndex.of(make_graph(num_relations=1), with_times=False)
    for nodes, fan_out in ((torch.zeros(0).long(), 3), (torch.arange(5), 0), (torch.arange(5), 1)):
        arguments = (index, Frontier(nodes.to(DEVICE)), [fan_out])
        check_equal(*(module.draw_edges(*arguments, seeds=[0, 1]) for module in (draw_triton, draw)))


def check_equal(ours: Drawn, theirs: Drawn) -> None:
    for name, mine, other in zip(Drawn._fields, ours, theirs, strict=True):
        if isinstance(mine, torch.Tensor) and isinstance(other, torch.Tensor):
            assert torch.equal(mine, other), name
        else:
            assert mine is other is None, name
