"""Laws of prepare: the store holds the graph that read_tables gives, under a cap on memory that would not hold it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forked import exit_code_of
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import QuantisedMatrix
from graphstrap.io.columns import TableOptions
from graphstrap.io.prepare import PrepareOptions
from graphstrap.io.store import verify_store
from graphstrap.io.tables import prepare_tables, read_tables
from same_graph import assert_same_graph

SMALL = PrepareOptions(memory_bytes=600 * 10**6, threads=1)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def prepared(
    tmp_path: Path, edges: str, nodes: str | None, options: TableOptions, job: PrepareOptions = SMALL
) -> Graph:
    path = tmp_path / "store"
    prepare_tables(edges, nodes, str(path), options=options, job=replace(job, overwrite=path.exists()))
    return verify_store(path)


def assert_same_as_in_memory(tmp_path: Path, edges: str, nodes: str | None, options: TableOptions) -> Graph:
    wanted = read_tables(edges, nodes, options=options)
    if wanted.edge_types is not None:
        wanted = replace(wanted, edge_types=wanted.edge_types.to(torch.uint8))
    graph = prepared(tmp_path, edges, nodes, options)
    assert_same_graph(graph, wanted)
    assert graph.cleaning == wanted.cleaning
    return graph


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, str]:
    """A table of edges and one of nodes, as CSV: duplicates, loops, empty labels, several types or one."""
    ids = draw(st.lists(st.sampled_from([*"abcdefgh", "007", "7", "é"]), min_size=2, max_size=9, unique=True))
    columns = draw(st.sets(st.sampled_from(["label", "split", "type", "time", "f", "list"])))
    header, rows = ["id", *sorted(columns)], []
    for i, name in enumerate(ids):
        cells = {
            "id": name,
            "label": ["x", "y", ""][i % 3] if i > 1 else "xy"[i],
            "split": draw(st.sampled_from(["train", "VAL", "test", ""])),
            "type": ["user", "item"][i % 2],
            "time": str(draw(st.integers(1990, 2020))),
            "f": str(draw(st.integers(-5, 5)) / 4),
            "list": "" if "type" in columns and i % 2 else '"[1,2.5]"',
        }
        rows.append(",".join(cells[column] for column in header))
    edge_columns = draw(st.sets(st.sampled_from(["type", "weight", "time", "dose"])))
    edge_header, edges = ["source", "target", *sorted(edge_columns)], []
    for _ in range(draw(st.integers(1, 25))):
        ends = [draw(st.sampled_from(ids)) for _ in range(2)]
        cells = {"source": ends[0], "target": ends[1], "type": draw(st.sampled_from(["likes", "knows"]))}
        cells |= {"weight": str(draw(st.integers(0, 40)) / 8), "time": str(draw(st.integers(0, 9)) / 2), "dose": "1.5"}
        edges.append(",".join(cells[column] for column in edge_header))
    edges.append(",".join({"source": ids[0], "target": ids[1], "type": "likes"}.get(c, "1") for c in edge_header))
    return "\n".join([",".join(edge_header), *edges]) + "\n", "\n".join([",".join(header), *rows]) + "\n"


@given(pair=tables(), directed=st.booleans(), max_edges=st.sampled_from([1, 2, 5, 10**6]), with_nodes=st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_same_graph_as_in_memory(
    pair: tuple[str, str], directed: bool, max_edges: int, with_nodes: bool, tmp_path: Path
) -> None:
    edges = write(tmp_path / "edges.csv", pair[0])
    nodes = write(tmp_path / "nodes.csv", pair[1]) if with_nodes else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrepareOptions, "max_edges", max_edges)
        assert_same_as_in_memory(tmp_path, edges, nodes, TableOptions(directed=directed))


def test_parquet_and_unknown_nodes(tmp_path: Path) -> None:
    edges, nodes = str(tmp_path / "e.parquet"), str(tmp_path / "n.parquet")
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT (i * 7) % 300 AS source, (i * i) % 311 AS target FROM range(2000) t(i)) TO '{edges}'"
        )
        connection.execute(
            f"COPY (SELECT 299 - i AS id, [i / 3, i % 5, 1]::FLOAT[3] AS x, i % 2 = 0 AS flag FROM range(300) t(i)) "
            f"TO '{nodes}'"
        )
    with pytest.raises(InputError, match="ignore-unknown-nodes"):
        prepared(tmp_path, edges, nodes, TableOptions())
    assert not (tmp_path / "store").exists()
    graph = assert_same_as_in_memory(tmp_path, edges, nodes, TableOptions(ignore_unknown_nodes=True))
    assert graph.cleaning.num_unknown_dropped > 0
    assert graph.feature_names == ("x[0]", "x[1]", "x[2]", "flag")


def test_ids_in_both_columns_are_counted(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "userId,movieId\n1,2\n2,3\n3,1\n3,7\n")
    assert assert_same_as_in_memory(tmp_path, edges, None, TableOptions()).cleaning.num_ids_in_both == 3


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        ("source,target\na,a\n", None, "no edges left"),
        ("source,target\na,\n", None, "empty"),
        ("source,target\na,b\n", "id,x\na,1\nb,oops\n", "row 2"),
        ("source,target\na,b\n", "id,x\na,1\na,2\n", "more than once"),
        ("source,target\na,b\n", "id,split\na,train\nb,maybe\n", "maybe"),
        ("source,target\na,b\n", 'id,x\na,"[1]"\nb,"[1,2]"\n', "equal length"),
        ("source,target,weight\na,b,-1\n", None, "weight"),
        ("source,target,type\na,b,\nb,a,x\n", None, "edge type"),
        ("source,target\na,b\n", "id,type\na,u\nb,\n", "node type"),
        ("source,target\na,b\n", "id,label\na,u\nb,u\n", "only the label"),
        ("source,target\nx,y\n", "id,rowid\na,1\nb,2\n", "rowid"),
    ],
)
def test_bad_tables_leave_no_store(tmp_path: Path, edges: str, nodes: str | None, message: str) -> None:
    edge_path = write(tmp_path / "edges.csv", edges)
    node_path = None if nodes is None else write(tmp_path / "nodes.csv", nodes)
    with pytest.raises(InputError, match=message):
        prepared(tmp_path, edge_path, node_path, TableOptions())
    assert {path.name for path in tmp_path.iterdir()} <= {"edges.csv", "nodes.csv"}


def write_features(tmp_path: Path, x: np.ndarray) -> tuple[str, str]:
    rows = "\n".join(f'{i},"[{",".join(map(str, row))}]"' for i, row in enumerate(x.tolist()))
    edges = "\n".join(f"{i},{(i * 7 + 1) % len(x)}" for i in range(len(x)))
    return write(tmp_path / "e.csv", f"source,target\n{edges}\n"), write(tmp_path / "n.csv", f"id,x\n{rows}\n")


def test_pca_in_chunks_is_pca(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = (random.normal(size=(500, 12)) * np.arange(1, 13) ** 2 + 100).astype(np.float32)
    edges, nodes = write_features(tmp_path, x)
    graph = prepared(tmp_path, edges, nodes, TableOptions(), replace(SMALL, pca=4))
    block = graph.features[0]
    assert isinstance(block, torch.Tensor)
    centred = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:4].T
    wanted = centred @ directions
    signs = np.sign((wanted * block.numpy()).sum(0))
    np.testing.assert_allclose(block.numpy(), wanted * signs, rtol=1e-3, atol=0.02)
    assert graph.feature_names is None
    assert np.abs(np.cov(block.numpy().T) - np.diag(np.var(block.numpy(), axis=0, ddof=1))).max() < 0.1


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "uint8"])
def test_features_in_fewer_bits(tmp_path: Path, dtype: str) -> None:
    x = np.random.default_rng(1).normal(size=(300, 5)).astype(np.float32)
    edges, nodes = write_features(tmp_path, x)
    block = prepared(tmp_path, edges, nodes, TableOptions(), replace(SMALL, feature_dtype=dtype)).features[0]
    if isinstance(block, QuantisedMatrix):
        wanted = QuantisedMatrix.from_dense(torch.from_numpy(x))
        assert torch.equal(block.codes, wanted.codes)
        assert torch.equal(block.scale, wanted.scale)
    else:
        assert isinstance(block, torch.Tensor)
        assert torch.equal(block, torch.from_numpy(x).to(block.dtype))
        assert block.dtype in (torch.float16, torch.bfloat16)


def test_types_without_features_get_the_mean_of_their_neighbours(tmp_path: Path) -> None:
    nodes = "id,type,f\np0,paper,1\np1,paper,3\np2,paper,8\na0,writer,\na1,writer,\na2,writer,\ni0,zone,\n"
    edges = "source,target\na0,p0\na0,p1\na1,p2\na0,i0\na1,i0\n"
    edge_path, node_path = write(tmp_path / "e.csv", edges), write(tmp_path / "n.csv", nodes)
    for directed in (True, False):
        options = TableOptions(directed=directed)
        graph = prepared(tmp_path, edge_path, node_path, options, replace(SMALL, derive_features=True))
        found = [block.tolist() for block in graph.features if isinstance(block, torch.Tensor)]
        assert found == [[[1.0], [3.0], [8.0]], [[2.0], [8.0], [0.0]], [[5.0]]]


_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
import torch
torch.set_num_threads(1)
{code}
"""
_PREPARE = """
from graphstrap.io.prepare import PrepareOptions
from graphstrap.io.tables import prepare_tables
prepare_tables({edges!r}, {nodes!r}, {store!r}, job=PrepareOptions(memory_bytes={limit}, threads=1))
"""
_READ = """
from graphstrap.io.tables import read_tables
try:
    read_tables({edges!r}, {nodes!r})
except BaseException as error:  # DuckDB, NumPy or PyTorch, whoever asks first
    print(type(error).__name__, error)
    sys.exit(3)
"""


def test_the_cap_on_memory_holds(tmp_path: Path) -> None:
    """Under a limit of the system on what a process may own, which is too small for the graph in memory. The limit
    counts what allocators reserve as well, so it is higher than the cap; with twice of that to spare the graph does not
    fit into memory either."""
    limit, spare, num_nodes, num_edges = 600 * 10**6, 160 * 10**6, 600_000, 2_000_000
    names = {"edges": str(tmp_path / "e.parquet"), "nodes": str(tmp_path / "n.parquet"), "store": str(tmp_path / "s")}
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        ends = f"hash(i) % {num_nodes} AS source, hash(i + 77) % {num_nodes} AS target"
        connection.execute(f"COPY (SELECT {ends} FROM range({num_edges}) t(i)) TO '{names['edges']}'")
        columns = ", ".join(f"((hash(i) >> {k}) % 100)::FLOAT AS f{k}" for k in range(40))
        connection.execute(f"COPY (SELECT i AS id, {columns} FROM range({num_nodes}) t(i)) TO '{names['nodes']}'")

    def run(code: str) -> subprocess.CompletedProcess[str]:
        text = _LIMITED.format(limit=limit + spare, code=code.format(limit=limit, **names))
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)

    done = run(_PREPARE)
    assert done.returncode == 0, done.stderr[-2000:]
    graph = verify_store(names["store"])
    assert graph.num_nodes == num_nodes
    assert graph.num_features == (40,)
    refused = run(_READ)
    assert refused.returncode != 0, "the limit must be one that the graph in memory does not keep"
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] != limit + spare


def prepare_until(stage: str, edges: str, nodes: str, store: str) -> int:
    def stop(now: str, fraction: float) -> None:
        if now == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    prepare_tables(edges, nodes, store, job=PrepareOptions(SMALL.memory_bytes), report=stop)
    return 0


def test_killed_in_the_middle_there_is_nothing_and_the_next_build_works(tmp_path: Path) -> None:
    edges, nodes = write_features(tmp_path, np.random.default_rng(2).normal(size=(3000, 4)))
    for stage in ("reading nodes", "sorting edges", "transposing edges", "writing features"):
        assert exit_code_of(prepare_until, stage, edges, nodes, str(tmp_path / "store")) == -signal.SIGKILL
        assert {path.name for path in tmp_path.iterdir()} == {"e.csv", "n.csv", ".store.building"}
    assert_same_as_in_memory(tmp_path, edges, nodes, TableOptions())
    assert {path.name for path in tmp_path.iterdir()} == {"e.csv", "n.csv", "store"}


def test_options_are_checked() -> None:
    for wrong in ({"memory_bytes": 10**6}, {"feature_dtype": "fp8"}, {"pca": 0}):
        with pytest.raises(InputError):
            PrepareOptions(**wrong)
