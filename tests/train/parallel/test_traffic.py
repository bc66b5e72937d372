"""The bytes that the simulation counts are those that processes send."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from in_processes import in_processes

from graphstrap.io.generate import mag
from graphstrap.io.partition import partition_graph
from graphstrap.io.parts import open_part
from graphstrap.nn.features import FeatureTransform
from graphstrap.train.parallel.exchange import Exchange, PartGatherer, pack, unpack
from graphstrap.train.parallel.part_batches import PartSampler
from graphstrap.train.parallel.workers import Workers
from graphstrap.train.sampling.sampler import Sampler
from graphstrap_lab.bench.traffic import depths, message_sizes, step_traffic

FAN_OUTS = [{"*": 4}, {"*": 2}]
NUM_ROOTS, NUM_HOT = 21, 30


def bytes_of_a_worker(workers: Workers, folder: Path) -> dict[str, Any]:
    part = open_part(folder / "parts", workers.rank)
    transform = FeatureTransform.fit(part, scaling="none", structural_size=1)
    part = replace(part, own=transform.when_read(part.own))
    exchange = Exchange(workers)
    sampler = PartSampler(part, FAN_OUTS, exchange, disjoint=True, by_time=True, unbiased=False)
    sent = {}
    for num_hot in (0, NUM_HOT):
        gatherer = PartGatherer(part, exchange, device=torch.device("cpu"), num_hot=num_hot)
        before = exchange.bytes_sent
        roots = torch.arange(NUM_ROOTS)[workers.rank :: workers.size]
        gatherer.fill(sampler.sample(roots, seed=3))
        sent[str(num_hot)] = exchange.bytes_sent - before
    return sent


@pytest.mark.distributed
def test_bytes_counted_are_bytes_sent(tmp_path: Path) -> None:
    graph = mag(3e-5, num_features=6)
    partition_graph(graph, tmp_path / "parts", 3, how="random")
    sent = in_processes(bytes_of_a_worker, tmp_path, folder=tmp_path, size=3)
    part = open_part(tmp_path / "parts", 0)
    sizes = message_sizes(graph, num_hops=2, by_time=True, unbiased=False, num_columns=None)
    sampler = Sampler(graph, FAN_OUTS, disjoint=True, by_time=True, unbiased=False)
    batch = sampler.sample(torch.arange(NUM_ROOTS), seed=3)
    ranks = torch.arange(NUM_ROOTS) % 3
    for num_hot in (0, NUM_HOT):
        is_hot = torch.zeros(graph.num_nodes, dtype=torch.bool)
        is_hot[part.hot[:num_hot]] = True
        counted = step_traffic(batch, part.part_of, ranks, sizes, num_parts=3, is_hot=is_hot)
        assert float((counted.ids + counted.features).sum()) == sum(one[str(num_hot)] for one in sent)
    assert sum(one["0"] for one in sent) > sum(one[str(NUM_HOT)] for one in sent)


def test_depths_are_the_hops_of_the_sampler() -> None:
    graph = replace(mag(3e-5, num_features=6), features=(None,), type_offsets=(), node_types=("node",))
    batch = Sampler(graph, FAN_OUTS, disjoint=True).sample(torch.arange(9), seed=0)
    found = depths(batch)
    assert [int((found <= hop).sum()) for hop in range(3)] == list(batch.hop_offsets)


def test_rows_survive_packing() -> None:
    columns = [
        torch.arange(5),
        torch.rand(5, 3).bfloat16(),
        torch.rand(5).double(),
        torch.ones(5, 1, dtype=torch.bool),
        torch.zeros(5, 0),
    ]
    for count in (5, 1, 0):
        some = [column[:count] for column in columns]
        table, kinds = pack(some)
        assert table.shape == (count, 8 + 6 + 8 + 1)
        for one, other in zip(unpack(table, kinds), some, strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
