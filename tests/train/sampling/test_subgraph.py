"""Gathering: a batch's rows are the graph's own, from wherever they lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_random_graph

from graphstrap.graph import Graph
from graphstrap.graph.blocks import QuantisedMatrix, ScaledMatrix, SparseMatrix
from graphstrap.nn.features import FeatureTransform
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer


def dense_graph() -> Graph:
    graph = make_random_graph(num_nodes=300, num_edges=4000, seed=1)
    assert isinstance(graph.x, SparseMatrix)
    return replace(graph.with_features(graph.x.to_dense()), labels=torch.arange(300) % 4)


def filled(graph: Graph, *, num_hot: int = 0) -> Graph:
    return Gatherer(graph, num_hot=num_hot).fill(Sampler(graph, [4, 3]).sample(torch.arange(0, 300, 9), seed=0))


@pytest.mark.parametrize("num_hot", [0, 1, 40, 300, 5000])
def test_rows_are_those_of_the_nodes(num_hot: int) -> None:
    graph = dense_graph()
    batch = filled(graph, num_hot=num_hot)
    assert isinstance(graph.x, torch.Tensor)
    assert isinstance(batch.x, torch.Tensor)
    assert batch.labels is not None
    assert batch.node_ids is not None
    assert torch.equal(batch.x, graph.x[batch.node_ids])
    assert torch.equal(batch.labels, batch.node_ids % 4)


def test_hot_rows_of_a_table_that_is_scaled_when_read_are_kept() -> None:
    graph = dense_graph()
    transform = FeatureTransform.fit(graph, scaling="column", structural_size=1)
    scaled = transform.when_read(graph)
    assert isinstance(scaled.features[0], ScaledMatrix)
    gatherer = Gatherer(scaled, num_hot=40)
    assert gatherer.blocks[0] is not None
    assert gatherer.blocks[0].hot is not None
    batch, wanted = filled(scaled, num_hot=40), filled(transform(graph))
    torch.testing.assert_close(batch.x, wanted.x)


def test_sparse_rows_are_those_of_the_nodes() -> None:
    graph = make_random_graph(num_nodes=300, num_edges=4000, seed=1)
    batch = filled(graph)
    assert isinstance(graph.x, SparseMatrix)
    assert isinstance(batch.x, SparseMatrix)
    assert torch.equal(batch.x.to_dense(), graph.x.to_dense()[batch.node_ids])


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8"])
def test_rows_of_a_memory_map_keep_their_type(tmp_path: Path, dtype: str) -> None:
    graph = dense_graph()
    table = np.random.default_rng(0).integers(0, 200, (300, 5)).astype(dtype)
    np.save(tmp_path / "x.npy", table)
    mapped = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    batch = filled(graph.with_features(mapped), num_hot=20)
    assert isinstance(batch.x, torch.Tensor)
    assert batch.node_ids is not None
    assert np.array_equal(batch.x.numpy(), table[batch.node_ids.numpy()])


def test_quantised_rows_become_numbers() -> None:
    graph = dense_graph()
    assert isinstance(graph.x, torch.Tensor)
    table = QuantisedMatrix.from_dense(graph.x)
    batch = filled(graph.with_features(table), num_hot=20)
    assert isinstance(batch.x, torch.Tensor)
    assert torch.equal(batch.x, table.to_dense()[batch.node_ids])


@pytest.mark.gpu
@pytest.mark.parametrize("num_hot", [0, 40])
def test_host_features_reach_the_device(num_hot: int) -> None:
    graph = dense_graph()
    batch = Sampler(graph, [4, 3]).sample(torch.arange(0, 300, 9), seed=0)
    on_device = Gatherer(graph, device=torch.device("cuda", 0), num_hot=num_hot).fill(batch)
    assert isinstance(graph.x, torch.Tensor)
    assert isinstance(on_device.x, torch.Tensor)
    assert on_device.x.is_cuda
    assert torch.equal(on_device.x.cpu(), graph.x[batch.node_ids])
