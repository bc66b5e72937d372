from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.datasets import DATASETS, Builtin, Published, describe, load, make_digits
from graphstrap.io.npz import write_npz
from graphstrap.io.published import kept_path
from offline import make_folders
from raw_files import make_raw, save_local
from same_graph import assert_same_data

REAL = {  # name: nodes, undirected edges, features, classes, splits
    "amazon-photo": (7650, 119081, 745, 8, 0),
    "amazon-computers": (13752, 245861, 767, 10, 0),
    "coauthor-cs": (18333, 81894, 6805, 15, 0),
    "coauthor-physics": (34493, 247962, 8415, 5, 0),
    "cora": (2708, 5278, 1433, 7, 1),
    "citeseer": (3327, 4552, 3703, 6, 1),
    "pubmed": (19717, 44324, 500, 3, 1),
    "dblp": (17716, 52867, 1639, 4, 0),
    "citationfull-cora-ml": (2995, 8158, 2879, 7, 0),
    "tolokers": (11758, 519000, 10, 2, 10),
    "actor": (7600, 26659, 932, 5, 10),
    "blogcatalog-attr": (5196, 171743, 8189, 6, 0),
    "twitch-de": (9498, 153138, 3170, 2, 0),
    "twitch-engb": (7126, 35324, 3170, 2, 0),
    "twitch-es": (4648, 59382, 3170, 2, 0),
    "twitch-fr": (6549, 112666, 3170, 2, 0),
    "twitch-ptbr": (1912, 31299, 3170, 2, 0),
    "twitch-ru": (4385, 37304, 3170, 2, 0),
    "hetero-acm-hgb": (10942, 273936 - 8, 1902, 3, 1),  # eight papers cite themselves
    "hetero-aminer-heco": (55783, 18007 + 58831, 0, 4, 3),
}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_folders(tmp_path, monkeypatch)


def test_names_are_forgiving_and_the_nearest_is_offered(folders: Path) -> None:
    write_npz(folders / "data" / "My_Graph.npz", Graph.from_edges([0], [1]))
    for name in ("my-graph", "MY_GRAPH", "My-Graph", str(folders / "data" / "My_Graph.npz")):
        assert load(name).num_nodes == 2
    assert load(folders / "data" / "My_Graph.npz").name == "My_Graph"
    with pytest.raises(InputError, match="did you mean amazon-photo"):
        load("amazon-foto")
    with pytest.raises(InputError, match="did you mean my-graph"):
        load("my-grap")
    with pytest.raises(InputError, match="graphstrap datasets"):
        load("zzzzzzzz")
    with pytest.raises(InputError, match=r"edges.parquet is a table.*gs.read_tables\(edges, nodes\)"):
        load("edges.parquet")
    with pytest.raises(InputError, match="is not a file"):
        load("none.npz")


def test_a_file_goes_by_its_stem_or_the_datasets_name(folders: Path) -> None:
    save_local(folders / "data" / "planetoid_cora.npz", *make_raw(seed=3))
    assert_same_data(load("planetoid-cora"), load("cora"))


def test_describe_lists_everything(folders: Path) -> None:
    write_npz(folders / "data" / "mine.npz", Graph.from_edges([0, 1], [1, 2], labels=[0, 1, 1]))
    (folders / "data" / "damaged.npz").write_bytes(b"PK")
    infos = {info.name: info for info in describe()}
    assert list(infos) == [*DATASETS, "damaged", "mine"]
    assert (infos["mine"].nodes, infos["mine"].edges, infos["mine"].features, infos["mine"].classes) == (3, 2, 0, 2)
    assert infos["damaged"].nodes is None
    assert "Python 3." in infos["stdlib"].origin
    assert (infos["digits"].nodes, infos["digits"].features, infos["digits"].classes) == (1797, 64, 10)
    assert [name for name, info in infos.items() if info.on_disk] == [
        "stdlib",
        "digits",
        "arxiv-like",
        "damaged",
        "mine",
    ]


def test_no_data_folder_is_no_error(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSTRAP_DATA", str(folders / "nowhere"))
    assert len(describe()) == len(DATASETS)
    monkeypatch.delenv("GRAPHSTRAP_DATA")
    assert len(describe()) == len(DATASETS)
    with pytest.raises(InputError, match="which is not set"):
        load("cora")


def test_digits_are_linked_with_digits_alike() -> None:
    graph = make_digits()
    assert (graph.num_nodes, graph.num_edges) == (1797, 2 * 12339)
    assert graph.is_symmetric
    assert int(graph.in_degrees.min()) >= 10
    assert graph.labels is not None
    same = graph.labels[graph.indices.long()] == graph.labels[graph.targets]
    assert float(same.float().mean()) > 0.95


def test_stdlib_is_kept_and_rebuilt_when_damaged(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = []

    def build() -> Graph:
        builds.append(1)
        return Graph.from_edges([0], [1], ids=np.array(["a.f", "a.g"]), class_names=("a",), labels=[0, 0])

    monkeypatch.setitem(DATASETS, "stdlib", Builtin(build, "here", stem=lambda: "stdlib-3.99"))
    graph = load("stdlib")
    assert graph.name == "stdlib"
    assert load("stdlib").external_ids.tolist() == ["a.f", "a.g"]
    assert len(builds) == 1
    kept = folders / "cache" / "stdlib-3.99.npz"
    kept.write_bytes(kept.read_bytes()[:100])
    assert load("stdlib").fingerprint == graph.fingerprint
    assert len(builds) == 2
    assert load("stdlib").class_names == ("a",)
    assert len(builds) == 2


def test_a_cache_that_cannot_be_written_is_no_error(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folders / "file").touch()
    monkeypatch.setenv("GRAPHSTRAP_CACHE", str(folders / "file" / "cache"))
    monkeypatch.setitem(DATASETS, "stdlib", Builtin(lambda: Graph.from_edges([0], [1]), "here", stem=lambda: "s"))
    assert load("stdlib").num_nodes == 2
    with pytest.raises(InputError, match="no connection"):
        load("cora")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRAPHSTRAP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_path("g") == tmp_path / "graphstrap" / "g.npz"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kept_path("g") == tmp_path / ".cache" / "graphstrap" / "g.npz"
    monkeypatch.setenv("GRAPHSTRAP_CACHE", str(tmp_path / "own"))
    assert kept_path("g") == tmp_path / "own" / "g.npz"


@pytest.mark.realdata
@pytest.mark.parametrize("name", REAL)
def test_real_graphs_have_their_published_sizes(name: str, data_folder: Path) -> None:
    nodes, edges, features, classes, num_splits = REAL[name]
    graph, source = load(name), DATASETS.get(name)
    sizes = (graph.num_nodes, graph.num_edges // 2, max(graph.num_features), graph.num_classes)
    assert sizes == (nodes, edges, features, classes)
    assert not isinstance(source, Published) or source.sizes == sizes
    assert graph.is_symmetric
    assert (0 if graph.splits is None else graph.splits.num_splits) == num_splits
    assert graph.labels is not None
    assert int(graph.labels.min()) == (-1 if name.startswith("hetero") else 0)
    if isinstance(source, Published) and source.binarize:
        assert isinstance(graph.x, SparseMatrix)
        assert bool((graph.x.values == 1).all())


@pytest.mark.realdata
def test_every_real_file_is_in_the_table(data_folder: Path) -> None:
    names = {path.stem.lower().replace("_", "-") for path in data_folder.glob("*.npz")}
    stems = {name: source.stem.replace("_", "-") for name, source in DATASETS.items() if isinstance(source, Published)}
    assert names == {stems.get(name, name) for name in REAL}


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "num_train"), [("cora", 140), ("citeseer", 120), ("pubmed", 60)])
def test_real_planetoid_splits(name: str, num_train: int, data_folder: Path) -> None:
    splits = load(name).splits
    assert splits is not None
    assert [int(mask.sum()) for mask in (splits.train, splits.val, splits.test)] == [num_train, 500, 1000]
