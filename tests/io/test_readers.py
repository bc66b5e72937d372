"""Files of other formats: read by what is registered, or promised by an installed package, for their ending."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.io.npz import write_npz
from graphstrap.io.readers import READERS, find_reader
from graphstrap.io.source import Source


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[Path]:
    """A file of pairs of node numbers, and a reader for its ending."""

    @READERS.register(".pairs")
    def read_pairs(path: str) -> Graph:
        source, target = np.loadtxt(path, dtype=np.int64).T
        return Graph.from_edges(source, target, x=np.eye(3), name="pairs")

    path = tmp_path / "g.pairs"
    path.write_text("0 1\n1 2\n")
    yield path
    READERS.forget(".pairs")


def test_a_registered_reader_is_used_by_its_ending(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_reader(str(pairs)) == ".pairs"
    assert find_reader("G.PAIRS") == ".pairs"
    assert load(pairs).num_edges == 4
    monkeypatch.chdir(pairs.parent)
    source = Source("g.pairs")
    assert source.to_dict() == {"dataset": str(pairs)}  # holds from every folder
    assert torch.equal(Source.from_dict(source.to_dict()).load().indices, load(pairs).indices)


def test_the_longest_ending_wins(pairs: Path) -> None:
    READERS.register(".more.pairs")(lambda path: Graph.from_edges([0], [1]))
    try:
        assert find_reader("x.more.pairs") == ".more.pairs"
        assert find_reader("x.pairs") == ".pairs"
    finally:
        READERS.forget(".more.pairs")


def test_an_installed_package_adds_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("a_reader")
    module.read = lambda path: Graph.from_edges([0, 1], [1, 2])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_reader", module)
    monkeypatch.setitem(
        READERS.__dict__, "_plugins", {".toy": EntryPoint(".toy", "a_reader:read", "graphstrap.readers")}
    )
    (tmp_path / "x.toy").touch()
    assert load(tmp_path / "x.toy").num_nodes == 3
    READERS.forget(".toy")


def test_what_no_reader_knows_and_what_is_no_graph_is_refused(tmp_path: Path, pairs: Path) -> None:
    (tmp_path / "x.unknown").touch()
    with pytest.raises(InputError, match=r"no reader for .*x\.unknown: readers are known for \.npz, .*\.pairs"):
        load(tmp_path / "x.unknown")
    READERS.register(".pairs")(lambda path: [1])  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="Graph is due here, got list"):
        load(pairs)


def test_own_readers_go_by_ending_or_by_what_a_folder_holds(tmp_path: Path) -> None:
    write_npz(tmp_path / "g.npz", Graph.from_edges([0], [1]))
    assert find_reader(str(tmp_path / "g.npz")) == ".npz"
    assert find_reader("stdlib") is None
    (tmp_path / "folder").mkdir()
    for name, kind in (("store.json", "store"), ("parts.json", "parts")):
        (tmp_path / "folder" / name).touch()
        assert find_reader(str(tmp_path / "folder")) == kind
        (tmp_path / "folder" / name).unlink()
