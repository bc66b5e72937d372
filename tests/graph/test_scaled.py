"""Laws of features that are scaled when they are read: the same rows, the same training, in memory that would not hold
the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from conftest import make_communities
from torch import Tensor

from graphstrap.api.embed import embed, prepare
from graphstrap.api.estimator import Embedder
from graphstrap.api.shards import write_shards
from graphstrap.graph import Graph
from graphstrap.graph import blocks as scaled
from graphstrap.graph.blocks import QuantisedMatrix, ScaledMatrix, SparseMatrix, dense, sample_rows
from graphstrap.graph.graph import as_features
from graphstrap.io.store import open_store, write_store
from graphstrap.nn.features import FeatureTransform
from graphstrap.run.recipe import Recipe

SETTINGS = {
    "sampling.fan_outs": [4, 3],
    "sampling.batch_size": 64,
    "train.steps": 12,
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "method.predictor_hidden_size": 8,
    "data.feature_scaling": "column",
    "encoder.batch_norm_statistics": "recalibrated",
    "encoder.own_features": 4,
}


def make_graph(num_nodes: int = 400, kind: str = "dense") -> Graph:
    random = np.random.default_rng(0)
    x = random.normal(2.0, 3.0, size=(num_nodes, 12)) * (random.random((num_nodes, 12)) < 0.4)
    block = as_features(sp.csr_matrix(x) if kind == "sparse" else x)
    if kind == "quantised":
        assert isinstance(block, Tensor)
        block = QuantisedMatrix.from_dense(block)  # type: ignore[assignment]
    if kind == "half":
        assert isinstance(block, Tensor)
        block = block.half()
    ends = random.integers(0, num_nodes, size=(2, 5 * num_nodes))
    graph = Graph.from_edges(ends[0], ends[1], num_nodes=num_nodes)
    return graph.with_features(block)


def as_dense(rows: Tensor | SparseMatrix) -> Tensor:
    return dense(rows)


@pytest.mark.parametrize("kind", ["dense", "half", "quantised", "sparse"])
@pytest.mark.parametrize("scaling", ["row", "column", "none"])
def test_rows_are_those_of_the_whole_table(kind: str, scaling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(kind=kind)
    transform = FeatureTransform.fit(graph, scaling=scaling, structural_size=2)
    whole = transform(graph).features[0]
    assert whole is not None
    assert not isinstance(whole, ScaledMatrix | QuantisedMatrix)
    monkeypatch.setattr(scaled, "MANY_VALUES", 100)
    lazy = transform(graph).features[0]
    assert isinstance(lazy, ScaledMatrix)
    for rows in (torch.tensor([3, 399, 0, 3]), slice(17, 90)):
        assert torch.equal(as_dense(lazy.take(rows)), as_dense(whole)[rows])
    assert torch.equal(lazy.to_dense(), as_dense(whole))
    assert torch.equal(lazy.map(lambda tensor: tensor.clone()).to_dense(), as_dense(whole))


def test_statistics_of_a_large_table_are_of_rows_from_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(3000.0)[:, None].expand(-1, 5)
    assert torch.equal(dense(sample_rows(x)), x)
    monkeypatch.setattr(scaled, "MANY_VALUES", 100)
    monkeypatch.setattr(scaled, "SAMPLED_ROWS", 60)
    rows = dense(sample_rows(x))[:, 0]
    assert len(rows) == 60
    assert torch.equal((rows / 50).floor(), torch.arange(60.0))
    assert torch.equal(dense(sample_rows(x))[:, 0], rows)


@pytest.mark.parametrize("kind", ["dense", "half", "quantised"])
def test_training_on_a_store_is_training_in_memory(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, also where rows are scaled as they are gathered, as long as the statistics are of all rows."""
    graph = make_graph(kind=kind)
    write_store(graph, tmp_path / "store")
    in_memory = Embedder(recipe=Recipe(), settings=SETTINGS, device="cpu").fit(graph)
    from_store = Embedder(recipe=Recipe(), settings=SETTINGS, device="cpu").fit(open_store(tmp_path / "store"))
    monkeypatch.setattr(scaled, "MANY_VALUES", 100)  # now every table is large
    store = open_store(tmp_path / "store")
    scaled_late = Embedder(recipe=Recipe(), settings=SETTINGS, device="cpu").fit(store)
    assert isinstance(prepare(scaled_late.model_, store).features[0], ScaledMatrix)
    for other in (from_store, scaled_late):
        for name, tensor in in_memory.model_.contents()[0].items():
            assert torch.equal(other.model_.contents()[0][name], tensor), name
    for how in ("full", "layers"):
        h = embed(scaled_late.model_, store, device=torch.device("cpu"), how=how)
        monkeypatch.setattr(scaled, "MANY_VALUES", 1 << 26)
        assert np.array_equal(embed(in_memory.model_, graph, device=torch.device("cpu"), how=how), h)
        monkeypatch.setattr(scaled, "MANY_VALUES", 100)
    width = write_shards(
        scaled_late.model_, store, tmp_path / "h", device=torch.device("cpu"), rows_per_shard=150, ending="npy", how=how
    )
    parts = np.concatenate([np.load(tmp_path / "h" / f"part-{i:05}.npy") for i in range(3)])
    assert width == 12
    np.testing.assert_allclose(parts, h, atol=1e-6)


def test_the_default_recipe_of_a_large_table_is_that_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_communities(num_nodes=400, num_classes=3, seed=0)  # whose features need no structural ones beside them
    graph = graph.with_features(*(dense(block).half() for block in graph.features if block is not None))
    wanted = Embedder(device="cpu").resolve(graph)
    monkeypatch.setattr(scaled, "MANY_VALUES", 100)
    assert Embedder(device="cpu").resolve(graph) == wanted
    assert make_graph(kind="half").fingerprint == make_graph(kind="half").fingerprint


_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
import torch
torch.set_num_threads(1)
"""
_FIT = """
from graphstrap.api.estimator import BGRL
from graphstrap.io.store import open_store
settings = {{"sampling.fan_outs": [5, 5], "sampling.batch_size": 256, "train.steps": 20, "encoder.hidden_sizes": [32],
             "encoder.embedding_size": 16, "method.predictor_hidden_size": 16}}
BGRL(settings=settings, device="cpu").fit(open_store({store!r}), run={run!r})
"""
_EMBED = """
from pathlib import Path
from graphstrap.api.estimator import BGRL
from graphstrap.io.store import open_store
from graphstrap.api.shards import write_shards
graph, model = open_store({store!r}), BGRL.load({run!r}, device="cpu").model_
write_shards(model, graph, Path({to!r}), device=torch.device("cpu"), rows_per_shard=1 << 17, ending="npy", how="layers")
"""
_COPY = """
from graphstrap.io.store import open_store
x = open_store({store!r}).features[0]
x.clone()
"""


def test_a_graph_larger_than_the_limit_is_trained_and_embedded(tmp_path: Path) -> None:
    """Under a limit of the system on what a process may own, which is smaller than the store. (`prepare` under a limit:
    tests/io/test_prepare.py; all three: lab/benchmarks/large.py.)"""
    limit, num_nodes, num_edges, num_columns = 900 * 10**6, 1_000_000, 500_000, 256
    names = {name: str(tmp_path / name) for name in ("store", "run", "to")}
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    graph = Graph.from_edges(ends[0], ends[1], num_nodes=num_nodes)
    write_store(graph.with_features(torch.rand(num_nodes, num_columns, generator=generator)), names["store"])
    assert sum(path.stat().st_size for path in (tmp_path / "store").iterdir()) > limit

    def run(code: str) -> subprocess.CompletedProcess[str]:
        text = (_LIMITED + code).format(limit=limit, **names)
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)

    for code in (_FIT, _EMBED):
        done = run(code)
        assert done.returncode == 0, done.stderr
    refused = run(_COPY)
    assert "alloc" in refused.stderr, "the limit must be one that a copy of the features does not keep"
    parts = [np.load(path) for path in sorted((tmp_path / "to").glob("part-?????.npy"))]
    assert sum(map(len, parts)) == num_nodes
    assert all(np.isfinite(part).all() for part in parts)
