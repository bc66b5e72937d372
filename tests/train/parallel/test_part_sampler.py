"""Batches drawn from parts by several processes: the batches of the whole store, bit for bit."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_communities, make_random_graph
from in_processes import in_processes
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.generate import mag
from graphstrap.io.partition import partition_graph
from graphstrap.io.parts import Part, open_part
from graphstrap.io.store import open_store, write_store
from graphstrap.nn.features import FeatureTransform
from graphstrap.train.parallel.exchange import Exchange, PartGatherer
from graphstrap.train.parallel.part_batches import PartSampler
from graphstrap.train.parallel.workers import Workers
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer

pytestmark = pytest.mark.distributed

CPU = torch.device("cpu")


def plain_graph() -> Graph:
    """Bag-of-words features, edge weights, times of edges, columns of edges, text ids."""
    graph = make_communities(num_nodes=60, num_classes=3, seed=0)
    generator = torch.Generator().manual_seed(1)
    count = graph.num_edges
    return replace(
        graph,
        edge_weights=torch.rand(count, generator=generator) + 0.5,
        edge_times=torch.randint(0, 9, (count,), generator=generator),
        edge_columns=torch.rand(count, 2, generator=generator),
        edge_column_names=("a", "b"),
    )


def dated_graph() -> Graph:
    """Fractions of years, some missing; hubs."""
    graph = make_random_graph(num_nodes=80, num_edges=900, seed=2)
    generator = torch.Generator().manual_seed(3)
    times = 2000 + 10 * torch.rand(80, generator=generator, dtype=torch.float64)
    times[::7] = torch.nan
    return replace(graph, features=(torch.rand(80, 5, generator=generator),), node_times=times)


def weighted_dated_graph() -> Graph:
    graph = dated_graph()
    return replace(graph, edge_weights=torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(4)) + 0.5)


def tiny_mag() -> Graph:
    return mag(1e-5, num_features=6)


def weighted_mag() -> Graph:
    graph = tiny_mag()
    return replace(graph, edge_weights=torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(5)) + 0.5)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "merged": (plain_graph, {"fan_outs": [4, 3]}),
    "disjoint": (plain_graph, {"fan_outs": [4, 3], "disjoint": True, "unbiased": False}),
    "weights": (plain_graph, {"fan_outs": [3, 3, 2], "disjoint": True}),
    "all neighbours": (plain_graph, {"fan_outs": [1000]}),
    "nothing": (plain_graph, {"fan_outs": [0, 2]}),
    "fractional times": (dated_graph, {"fan_outs": [5, 4], "disjoint": True, "by_time": True}),
    "weights by time": (weighted_dated_graph, {"fan_outs": [5, 4], "disjoint": True, "by_time": True}),
    "one relation": (weighted_mag, {"fan_outs": [{"cites": 5}, {"cites": 3}]}),
    "types": (tiny_mag, {"fan_outs": [{"cites": 5, "*": 2}, {"reverse_writes": 3, "cites": 1}]}),
    "types by time": (
        tiny_mag,
        {"fan_outs": [{"*": 4}, {"*": 2}], "disjoint": True, "by_time": True, "unbiased": False},
    ),
}
ROOTS = {0: 9, 1: 0, 2: 4}  # of each worker: one of them has none


def tensors_of(batch: Graph) -> dict[str, Any]:
    """All that a batch holds, by name."""
    found: dict[str, Any] = {}
    for field in fields(Graph):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor) or field.name in ("type_offsets", "hop_offsets", "num_roots"):
            found[field.name] = value
    for t, block in enumerate(batch.features):
        parts = (block.indptr, block.indices, block.values) if isinstance(block, SparseMatrix) else (block,)
        found |= {f"features.{t}.{i}": part for i, part in enumerate(parts)}
    return found


def roots_of(rank: int, num_nodes: int) -> Tensor:
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(rank))[: ROOTS[rank]]


def transform_of(graph: Graph) -> FeatureTransform:
    return FeatureTransform.fit(graph, scaling="column", structural_size=1)


def batches_of_a_worker(workers: Workers, folder: Path, num_hot: int) -> dict[str, Any]:
    return {name: batches_of_a_case(workers, folder / name, name, num_hot) for name in CASES}


def batches_of_a_case(workers: Workers, folder: Path, name: str, num_hot: int) -> dict[str, Any]:
    part = open_part(folder / "parts", workers.rank)
    settings = dict(CASES[name][1])
    part = replace(part, own=transform_of(part).when_read(part.own))
    assert isinstance(part, Part)
    exchange = Exchange(workers)
    sampler = PartSampler(part, settings.pop("fan_outs"), exchange, **settings)
    gatherer = PartGatherer(part, exchange, device=CPU, num_hot=num_hot)
    found = {}
    for step in range(2):
        roots = roots_of(workers.rank, part.num_nodes)
        found[str(step)] = tensors_of(gatherer.fill(sampler.sample(roots, seed=7, step=step)))
    return {**found, "bytes_sent": exchange.bytes_sent}


@pytest.mark.parametrize(("size", "how", "num_hot"), [(2, "streaming", 0), (3, "random", 7)])
def test_a_batch_from_parts_is_the_batch_from_the_whole_store(
    tmp_path: Path, size: int, how: str, num_hot: int
) -> None:
    for name, (make, _) in CASES.items():
        (tmp_path / name).mkdir()
        write_store(make(), tmp_path / name / "store")
        partition_graph(open_store(tmp_path / name / "store"), tmp_path / name / "parts", size, how=how)
    found = in_processes(batches_of_a_worker, tmp_path, num_hot, folder=tmp_path, size=size)
    for name, (_, settings) in CASES.items():
        whole, settings = open_store(tmp_path / name / "store"), dict(settings)
        sampler = Sampler(whole, settings.pop("fan_outs"), **settings)
        gatherer = Gatherer(transform_of(whole)(whole))
        for rank in range(size):
            got = found[rank][name]
            assert got["bytes_sent"] > 0
            for step in range(2):
                batch = gatherer.fill(sampler.sample(roots_of(rank, whole.num_nodes), seed=7, step=step))
                assert_same(got[str(step)], tensors_of(batch), name)


def assert_same(got: dict[str, Any], wanted: dict[str, Any], name: str) -> None:
    assert wanted.keys() == got.keys(), name
    for key, value in wanted.items():
        if isinstance(value, Tensor):
            assert got[key].dtype == value.dtype, (name, key)
            assert torch.equal(got[key].nan_to_num(), value.nan_to_num()), (name, key)
        else:
            assert got[key] == value, (name, key)


def filled_on_the_gpu(workers: Workers, folder: Path) -> dict[str, Any]:
    part = open_part(folder / "parts", workers.rank)
    part = replace(part, own=transform_of(part).when_read(part.own))
    exchange = Exchange(workers)
    batch = PartSampler(part, [4, 3], exchange).sample(roots_of(0, part.num_nodes), seed=7)
    filled = PartGatherer(part, exchange, device=torch.device("cuda"), num_hot=5).fill(batch)
    assert filled.device.type == "cuda"
    return tensors_of(filled.to("cpu"))


@pytest.mark.gpu
def test_rows_arrive_where_batches_are_used(tmp_path: Path) -> None:
    graph = plain_graph()
    partition_graph(graph, tmp_path / "parts", 2, how="streaming")
    batch = Sampler(graph, [4, 3]).sample(roots_of(0, graph.num_nodes), seed=7)
    wanted = tensors_of(Gatherer(transform_of(graph)(graph)).fill(batch))
    for got in in_processes(filled_on_the_gpu, tmp_path, folder=tmp_path):
        for key, value in wanted.items():
            if key.startswith("features"):  # scaled on the GPU
                torch.testing.assert_close(got[key], value)
            else:
                assert_same({key: got[key]}, {key: value}, "gpu")
