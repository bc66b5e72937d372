"""Partitioners: every node in one part, parts of one size, fewer cut edges than by chance, the same every time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import make_communities, make_random_graph

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io import partition as _streaming
from graphstrap.io import partition as module
from graphstrap.io.generate import mag
from graphstrap.io.partition import choose_partitioner, node_bytes, partition

KINDS = ["random", "streaming", pytest.param("metis", marks=pytest.mark.extras("pymetis"))]


@pytest.fixture(params=KINDS)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def typed() -> Graph:
    return mag(1e-4, num_features=8)


@pytest.mark.parametrize("num_parts", [2, 7])
def test_every_node_has_one_part_of_about_one_size(how: str, num_parts: int) -> None:
    graph = typed()
    part_of, cut = partition(graph, num_parts, how=how)
    assert part_of.dtype == torch.uint8
    assert torch.equal(torch.unique(part_of), torch.arange(num_parts, dtype=torch.uint8))
    again, _ = partition(graph, num_parts, how=how)
    assert torch.equal(part_of, again)
    crossing = part_of[graph.indices.long()] != part_of[graph.targets]
    assert cut.edge_cut == pytest.approx(float(crossing.float().mean()), abs=1e-6)
    sizes = torch.zeros(num_parts, dtype=torch.int64).index_add_(0, part_of.int(), node_bytes(graph)).double()
    assert cut.byte_balance == pytest.approx(float(sizes.max() / sizes.mean()))
    assert cut.byte_balance < (1.2 if how == "random" else 1.1)
    assert (cut.partitioner, cut.num_parts) == (how, num_parts)


def test_communities_are_found(how: str) -> None:
    graph = make_communities(num_nodes=300, num_classes=3, seed=0)
    _, cut = partition(graph, 3, how=how)
    if how == "random":
        assert cut.edge_cut == pytest.approx(2 / 3, abs=0.05)
    else:
        assert cut.edge_cut < (0.3 if how == "metis" else 0.45)  # the planted ones cut 0.14


def test_directed_graphs_and_hubs_and_nodes_without_edges(how: str) -> None:
    graph = make_random_graph(num_nodes=200, num_edges=1500, seed=0)
    part_of, cut = partition(graph, 4, how=how)
    assert len(torch.unique(part_of)) == 4
    assert 0 < cut.edge_cut < 1


def test_a_part_for_every_node(how: str) -> None:
    graph = make_communities(num_nodes=12, num_classes=2, seed=0)
    part_of, cut = partition(graph, 12, how=how)
    assert sorted(part_of.tolist()) == list(range(12))
    assert cut.edge_cut == 1.0


def test_chunks_of_one_row_or_of_all_obey_the_same_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_communities(num_nodes=300, num_classes=3, seed=1)
    for edges in (1, 50, 1 << 22):
        monkeypatch.setattr(_streaming, "_EDGES_AT_ONCE", edges)
        part_of, cut = partition(graph, 3, how="streaming")
        assert cut.byte_balance < 1.15
        assert cut.edge_cut < 0.5
        assert len(torch.unique(part_of)) == 3


def test_bytes_are_those_of_rows_and_features() -> None:
    graph = replace(make_communities(num_nodes=20, num_classes=2, seed=0), features=(torch.zeros(20, 3),))
    assert torch.equal(node_bytes(graph), 24 + 4 * graph.in_degrees + 12)


def test_which_partitioner_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_communities(num_nodes=20, num_classes=2, seed=0)
    with pytest.raises(InputError, match="must be one of auto, metis, streaming, random"):
        choose_partitioner("spectral", graph)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert choose_partitioner("auto", graph) == "streaming"
    with pytest.raises(InputError, match=r"pip install 'graphstrap\[partition\]'"):
        choose_partitioner("metis", graph)
    monkeypatch.setattr(module, "find_spec", lambda name: "found")
    assert choose_partitioner("auto", graph) == "metis"
    monkeypatch.setattr(module, "MOST_METIS_EDGES", 3)
    assert choose_partitioner("auto", graph) == "streaming"
