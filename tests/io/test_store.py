"""Laws of the store: what is written comes back, read-only and whole, or not at all."""

from __future__ import annotations

import json
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from forked import CONTEXT
from graphstrap.api.estimator import Embedder
from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import QuantisedMatrix
from graphstrap.graph.many import join_graphs
from graphstrap.io import files
from graphstrap.io.datasets import load
from graphstrap.io.source import Source
from graphstrap.io.store import open_store, verify_store, write_store
from graphstrap.io.store_format import StoreBuilder, build_store
from same_graph import assert_same_graph, assert_same_tensor, make_full_graph, make_hetero_graph


def with_small_types(graph: Graph) -> Graph:
    """Edge types as a store keeps them: one byte each."""
    return graph if graph.edge_types is None else replace(graph, edge_types=graph.edge_types.to(torch.uint8))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph: empty ones, several types, every optional field or none."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    num_nodes, seed = sum(sizes), draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    num_edges = draw(st.integers(0, 20)) if num_nodes else 0
    source, target = generator.integers(0, max(1, num_nodes), (2, num_edges))
    blocks = [torch.from_numpy(generator.normal(size=(n, draw(st.integers(0, 3)))).astype("f4")) for n in sizes]
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
    has = {name: draw(st.booleans()) for name in ("types", "weights", "times", "labels", "splits", "ids", "features")}
    masks = generator.integers(0, 3, (num_nodes, 2))
    graph = Graph.from_edges(
        source,
        target,
        num_nodes=num_nodes,
        directed=draw(st.booleans()),
        self_loops=draw(st.sampled_from(["drop", "keep"])),
        duplicates=draw(st.sampled_from(["merge", "keep"])),
        features=tuple(block.to(dtype) if has["features"] else None for block in blocks),
        type_offsets=(0, *np.cumsum(sizes).tolist()),
        node_types=tuple(f"kind {t}" for t in range(len(sizes))),
        edge_types=generator.integers(0, 2, num_edges) if has["types"] else None,
        edge_type_names=("a", "b") if has["types"] else (),
        edge_weights=generator.random(num_edges) if has["weights"] else None,
        edge_times=generator.integers(0, 9, num_edges) if has["times"] else None,
        edge_columns=generator.random((num_edges, 2)) if has["weights"] else None,
        edge_column_names=("c", "d") if has["weights"] else (),
        labels=generator.integers(-1, 3, num_nodes) if has["labels"] else None,
        splits=Splits(*(torch.from_numpy(masks == part) for part in range(3))) if has["splits"] else None,
        node_times=torch.from_numpy(generator.random(num_nodes)) if has["times"] else None,
        ids=np.array([f"n\u00e9{i}" for i in range(num_nodes)], dtype="<U8") if has["ids"] else None,
    )
    return with_small_types(graph)


@given(graph=graphs())
@settings(max_examples=60, deadline=None)
def test_a_graph_comes_back_with_its_transpose(graph: Graph) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_store(graph, Path(folder) / "store")
        back = verify_store(Path(folder) / "store")
        assert_same_graph(back, graph)
        assert back.cleaning == graph.cleaning
        for part, wanted in zip(back.transpose, replace(graph, outgoing=None).transpose, strict=True):
            assert_same_tensor("transpose", part, wanted)
        del back


def test_a_store_that_counts_less_of_the_cleaning_opens(tmp_path: Path) -> None:
    graph = make_full_graph(seed=1)
    write_store(graph, tmp_path / "store")
    path = tmp_path / "store" / "store.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    del described["cleaning"]["num_unknown_dropped"], described["cleaning"]["num_ids_in_both"]
    path.write_text(json.dumps(described), encoding="utf-8")
    assert open_store(tmp_path / "store").cleaning == graph.cleaning


@pytest.mark.parametrize("graph", [make_full_graph(seed=1), make_hetero_graph(seed=2)], ids=lambda graph: graph.name)
def test_sparse_blocks_and_names_come_back(graph: Graph, tmp_path: Path) -> None:
    write_store(graph, tmp_path / "store")
    assert_same_graph(verify_store(tmp_path / "store"), with_small_types(graph))


def test_several_graphs_come_back_as_several(tmp_path: Path) -> None:
    graph = make_random_graph(num_nodes=9, num_edges=20, seed=0)
    write_store(join_graphs([graph, graph]), tmp_path / "two")
    assert open_store(tmp_path / "two").graph_offsets == (0, graph.num_nodes, 2 * graph.num_nodes)


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(0, 50),
    spread=st.floats(0, 1e6, width=32),
    shift=st.floats(-1e6, 1e6),
)
@settings(max_examples=100, deadline=None)
def test_quantisation_is_off_by_half_a_step_at_most(seed: int, size: int, spread: float, shift: float) -> None:
    x = torch.from_numpy((np.random.default_rng(seed).normal(size=(size, 3)) * spread + shift).astype("f4"))
    x[: size // 2, 1] = x[:1, 1] if size else 0.0
    matrix = QuantisedMatrix.from_dense(x)
    rounding = 4 * torch.finfo(torch.float32).eps * x.abs().amax(0) if size else torch.zeros(3)
    rounding += torch.finfo(torch.float32).tiny  # below it, numbers have few bits
    assert (matrix.to_dense() - x).abs().le(matrix.scale / 2 + rounding).all()
    assert torch.equal(matrix.take(torch.arange(min(size, 1))), matrix.to_dense()[:1])


@pytest.mark.parametrize(("dtype", "error"), [("fp32", 0.0), ("fp16", 2**-11), ("bf16", 2**-8), ("uint8", None)])
def test_features_are_kept_as_asked(dtype: str, error: float | None, tmp_path: Path) -> None:
    x = torch.rand(40, 5) * 2 - 1
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], num_nodes=40, x=x, labels=torch.arange(40) % 2)
    write_store(graph, tmp_path / "store", feature_dtype=dtype)
    back = verify_store(tmp_path / "store")
    block = back.features[0]
    if error is None:
        assert isinstance(block, QuantisedMatrix)
        assert (block.to_dense() - x).abs().max() <= block.scale.max() / 2 + 1e-6
    else:
        assert isinstance(block, torch.Tensor)
        assert (block.float() - x).abs().le(error * x.abs() + 1e-7).all()
    model = Embedder(seed=0, settings={"train.steps": 2}, device="cpu").fit(back)  # everything downstream takes it
    assert np.isfinite(model.embed(back)).all()


def test_a_transpose_at_hand_stays_and_must_fit() -> None:
    graph = make_full_graph(seed=6)
    known = replace(graph, outgoing=graph.transpose)
    assert known.with_features(None).transpose is known.outgoing
    assert known.to("cpu").transpose is known.outgoing
    moved = known.to("meta").transpose
    assert [part.device.type for part in moved] == ["meta"] * 3
    with pytest.raises(ValueError, match="outgoing"):
        replace(make_full_graph(seed=6, num_nodes=31), outgoing=graph.transpose)


def test_a_store_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_full_graph(seed=3)
    write_store(graph, tmp_path / "store")
    assert_same_graph(load(tmp_path / "store"), with_small_types(graph))
    monkeypatch.chdir(tmp_path)
    saved = Source("store").to_dict()
    monkeypatch.chdir("/")
    assert Source.from_dict(saved).load().fingerprint == load(tmp_path / "store").fingerprint


def test_opening_copies_nothing(tmp_path: Path) -> None:
    num_nodes = 500_000
    graph = Graph.from_edges(torch.arange(num_nodes - 1), torch.arange(1, num_nodes), x=torch.zeros(num_nodes, 32))
    write_store(graph, tmp_path / "store")
    open_store(tmp_path / "store")
    before, seconds = _private_bytes(), []
    for _ in range(5):
        start = time.perf_counter()
        opened = open_store(tmp_path / "store")
        seconds.append(time.perf_counter() - start)
    grown = _private_bytes() - before
    assert opened.num_nodes == num_nodes
    assert min(seconds) < 0.5  # milliseconds on an idle machine
    assert grown < 8 << 20  # the store has 90 MB
    assert not np.asarray(opened.external_ids).flags.owndata or opened.ids is None


def _private_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


def fill_wrongly(builder: StoreBuilder) -> None:
    builder.write("indptr", np.zeros(1, dtype=np.int64))
    with builder.array("features.0", dtype="<f4", columns=(3,)) as writer:
        writer.append(np.zeros((5, 2)))


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rows of shape"), build_store(tmp_path / "store") as builder:
        fill_wrongly(builder)
    assert list(tmp_path.iterdir()) == []


def test_two_builds_at_once_and_what_is_no_store_are_refused(tmp_path: Path) -> None:
    graph = make_full_graph(seed=4)
    with build_store(tmp_path / "store") as builder:
        with pytest.raises(InputError, match="in use by process"):
            write_store(graph, tmp_path / "store")
        assert builder.folder.exists()
        builder.finish({})
    (tmp_path / "other").mkdir()
    for path, overwrite, message in (
        ("store", False, "exists"),
        ("other", True, "not a store"),
        ("no/x", False, "not"),
    ):
        with pytest.raises(InputError, match=message):
            write_store(graph, tmp_path / path, overwrite=overwrite)
    write_store(graph, tmp_path / "store", overwrite=True)
    assert verify_store(tmp_path / "store").num_edges == graph.num_edges


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_build_that_begins_while_another_ends_takes_nothing_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """Another begins whenever the first waits for the disk: before it moves its folder, and after."""
    graph, path, flush = make_full_graph(seed=4), tmp_path / "store", files._flush
    if overwrite:
        write_store(make_full_graph(seed=5, num_nodes=31), path)
    refusals, others = [], ExitStack()

    def begin_another(folder: Path) -> None:
        flush(folder)
        if folder not in (tmp_path, tmp_path / ".store.building"):
            return
        try:
            others.enter_context(build_store(path, overwrite=overwrite))
        except InputError as error:
            refusals.append(str(error))

    monkeypatch.setattr("graphstrap.io.files._flush", begin_another)
    write_store(graph, path, overwrite=overwrite)
    assert verify_store(path).num_nodes == graph.num_nodes
    assert not (path / ".lock").exists()
    assert "in use by process" in refusals[0]
    assert len(refusals) == (2 if overwrite else 3)
    assert (tmp_path / ".store.building").exists() == overwrite  # the other's
    with pytest.raises(KeyboardInterrupt), others:
        raise KeyboardInterrupt
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


def test_a_store_that_was_made_in_the_meantime_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, path, lock = make_full_graph(seed=4), tmp_path / "store", files.lock_file

    @contextmanager
    def end_first(file: Path, *, what: str) -> Iterator[bool]:
        with lock(file, what=what) as is_locked:
            path.mkdir()
            yield is_locked

    monkeypatch.setattr(files, "lock_file", end_first)
    with pytest.raises(InputError, match="store exists"):
        write_store(graph, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]
    assert list(path.iterdir()) == []


def write_stores(path: Path, said: Connection) -> None:
    n = 60_000
    graph = Graph.from_edges(torch.arange(n - 1), torch.arange(1, n), x=torch.ones(n, 64))
    said.send("ready")
    for number in range(10_000):
        write_store(graph, path, overwrite=True)
        said.send(number)


def test_killed_at_any_moment_there_is_a_whole_store_or_none(tmp_path: Path) -> None:
    path = tmp_path / "store"
    moments = random.Random(0)
    found = []
    for first_whole in (False, True, False, True):  # killed while the first is written, and while one is replaced
        heard, said = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=write_stores, args=(path, said))
        process.start()
        said.close()  # so that nobody waits for what was never said
        assert heard.recv() == "ready"
        if first_whole:
            assert heard.recv() == 0
        time.sleep(moments.uniform(0, 0.25))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        found.append(path.exists())
        if path.exists():
            assert verify_store(path).num_nodes == 60_000
    write_store(make_full_graph(seed=5), path, overwrite=path.exists())
    assert verify_store(path).num_nodes == 30
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]
    assert any(found)
