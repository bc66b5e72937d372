"""Published graphs: downloads without a network, and the formats of WikiCS and PPI."""

from __future__ import annotations

import gzip
import importlib.util
import json
import pickle
import sys
import threading
import time
import urllib.request
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io import published as _published
from graphstrap.io.datasets import DATASETS, Published, describe, load
from graphstrap.io.published import read_ppi, read_wikics
from graphstrap.io.pyg import import_pyg
from offline import make_folders
from raw_files import make_raw, make_wikics, save_local, write_planetoid, write_ppi
from same_graph import assert_same_data, assert_same_graph

PUBLISHED = {name: source for name, source in DATASETS.items() if isinstance(source, Published)}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_folders(tmp_path, monkeypatch)


@pytest.fixture
def online(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if every host answered."""
    monkeypatch.setattr(_published, "connection_problem", lambda host: None)
    return folders


@pytest.mark.parametrize(
    ("name", "dataset", "raw_name"),
    [
        ("amazon-photo", "Amazon", "amazon_electronics_photo.npz"),
        ("coauthor-cs", "Coauthor", "ms_academic_cs.npz"),
        ("dblp", "CitationFull", "dblp.npz"),
    ],
)
def test_a_download_gives_the_same_graph_as_the_file(
    name: str, dataset: str, raw_name: str, online: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, links, labels = make_raw(seed=1)

    def download(self: Any) -> None:
        Path(self.raw_dir).mkdir(parents=True, exist_ok=True)
        parts = {f"attr_{key}": getattr(words, key) for key in ("data", "indices", "indptr", "shape")}
        parts |= {f"adj_{key}": getattr(links, key) for key in ("data", "indices", "indptr", "shape")}
        np.savez(Path(self.raw_dir) / raw_name, labels=labels, **parts)

    monkeypatch.setattr(getattr(import_pyg("datasets"), dataset), "download", download)
    downloaded = load(name)
    assert [path.name for path in (online / "cache").iterdir()] == [f"{name}.npz"]
    monkeypatch.setattr(_published, "connection_problem", lambda host: "no connection")
    kept = load(name)
    save_local(online / "data" / f"{PUBLISHED[name].stem}.npz", words, links, labels)
    local = load(name)
    assert_same_data(downloaded, kept)
    assert_same_data(downloaded, local)
    assert local.is_symmetric
    assert local.x is not None
    assert set(local.x.values.tolist()) == {1.0}  # type: ignore[union-attr]


def test_citeseer_gives_its_nodes_without_a_label_class_0(online: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, links, labels = make_raw(seed=2, num_nodes=560)
    links = ((links + links.T) > 0).tolil()
    isolated, shuffled = [545, 552], [555, 550, 559]
    test = [*shuffled, *(node for node in range(540, 560) if node not in isolated + shuffled)]
    links[isolated, :] = links[:, isolated] = 0
    words = words.tolil()
    words[isolated] = 0
    links, words = links.tocsr(), words.tocsr()

    def download(self: Any) -> None:
        write_planetoid(Path(self.raw_dir), words, links, labels, train=20, test=test)

    monkeypatch.setattr(import_pyg("datasets").Planetoid, "download", download)
    downloaded = load("citeseer")
    labels[isolated] = -1
    masks = {f"{part}_mask": np.zeros(560, dtype=bool) for part in ("train", "val", "test")}
    masks["train_mask"][:20] = masks["val_mask"][20:520] = masks["test_mask"][test] = True
    save_local(online / "data" / "planetoid_citeseer.npz", words, links, labels, **masks)
    local = load("citeseer")
    assert_same_data(downloaded, local)
    assert local.labels is not None
    assert local.labels[isolated].tolist() == [0, 0]


def test_wikics_and_ppi_are_downloaded_in_their_own_format(online: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download_url(url: str, folder: str) -> str:
        path = Path(folder) / url.rpartition("/")[2]
        path.write_text(json.dumps(make_wikics()) if path.suffix == ".json" else "zipped", encoding="utf-8")
        return str(path)

    monkeypatch.setattr(import_pyg(), "download_url", download_url)
    monkeypatch.setattr(import_pyg(), "extract_zip", lambda path, folder: write_ppi(Path(folder)))
    wikics, ppi = load("wikics"), load("ppi")
    (online / "data" / "wikics").mkdir()
    (online / "data" / "wikics" / "data.json").write_text(json.dumps(make_wikics()), encoding="utf-8")
    write_ppi(online / "data" / "ppi" / "raw")
    for path in (online / "cache").iterdir():
        path.unlink()
    assert_same_data(load("wikics"), wikics)
    assert_same_data(load("ppi"), ppi)
    assert {info.name for info in describe() if info.on_disk} == {"stdlib", "digits", "arxiv-like", "wikics", "ppi"}


class FakeOgb:
    """What is called of OGB's `NodePropPredDataset`."""

    def __init__(self, name: str, root: str) -> None:
        assert name == "ogbn-arxiv"

    def __getitem__(self, index: int) -> tuple[dict[str, Any], np.ndarray]:
        edges, years = np.array([[0, 1, 1], [1, 2, 0]]), np.array([[2001], [2002], [2003]])
        graph = {"edge_index": edges, "node_feat": np.ones((3, 2)), "num_nodes": 3, "node_year": years}
        return graph, np.array([[4], [0], [1]])

    def get_idx_split(self) -> dict[str, np.ndarray]:
        return {"train": np.array([0]), "valid": np.array([2]), "test": np.array([1])}


def test_ogbn_arxiv_comes_through_the_ogb_package(online: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ogb", "ogb.nodeproppred"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules["ogb.nodeproppred"], "NodePropPredDataset", FakeOgb, raising=False)
    check_tiny_arxiv(load("ogbn-arxiv"))


@pytest.mark.extras("ogb")
@pytest.mark.filterwarnings("ignore")  # OGB's own
def test_ogbn_arxiv_is_read_by_the_real_ogb_package(online: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its archive is made here, everything after the download is OGB's."""
    monkeypatch.setitem(sys.modules, "outdated", None)  # OGB would ask the network for its newest version
    from ogb.nodeproppred import dataset

    monkeypatch.setattr(dataset, "decide_download", lambda url: True)
    monkeypatch.setattr(dataset, "download_url", lambda url, folder: write_ogb_archive(Path(folder)))
    check_tiny_arxiv(load("ogbn-arxiv"))


def write_ogb_archive(folder: Path) -> str:
    """The graph of `FakeOgb` in the layout of OGB's arxiv.zip."""
    tables: dict[str, list[list[float]]] = {
        "raw/edge": [[0, 1], [1, 2], [1, 0]],
        "raw/node-feat": [[1.0, 1.0]] * 3,
        "raw/node_year": [[2001], [2002], [2003]],
        "raw/node-label": [[4], [0], [1]],
        "raw/num-node-list": [[3]],
        "raw/num-edge-list": [[3]],
        "split/time/train": [[0]],
        "split/time/valid": [[2]],
        "split/time/test": [[1]],
    }
    with zipfile.ZipFile(folder / "arxiv.zip", "w") as archive:
        archive.writestr("arxiv/RELEASE_v1.txt", "")
        archive.writestr("arxiv/processed/", "")
        for name, rows in tables.items():
            text = "".join(",".join(map(str, row)) + "\n" for row in rows)
            archive.writestr(f"arxiv/{name}.csv.gz", gzip.compress(text.encode()))
    return str(folder / "arxiv.zip")


def check_tiny_arxiv(graph: Graph) -> None:
    assert graph.num_edges == 4
    assert graph.labels is not None
    assert graph.labels.tolist() == [4, 0, 1]
    assert graph.node_times is not None
    assert graph.node_times.tolist() == [2001, 2002, 2003]
    assert graph.splits is not None
    assert graph.splits.val[:, 0].tolist() == [False, False, True]
    assert_same_data(load("ogbn-arxiv"), graph)  # the copy that was kept


def test_without_the_ogb_package_the_message_says_how_to_install_it(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'graphstrap\[ogb\]'"):
        load("ogbn-arxiv")


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name != "ogbn-arxiv"])
def test_offline_one_sentence_at_once_and_nothing_left_behind(name: str, folders: Path) -> None:
    begin = time.perf_counter()
    with pytest.raises(InputError) as caught:
        load(name)
    assert time.perf_counter() - begin < 5
    stem = PUBLISHED[name].stem
    assert str(caught.value).startswith(
        f"{name} is not in $GRAPHSTRAP_DATA ({folders / 'data'}) and could not be downloaded"
    )
    assert str(caught.value).endswith(f"put {stem}.npz there or connect")
    assert "no connection to" in str(caught.value)
    assert not (folders / "cache").exists() or not list((folders / "cache").iterdir())


def test_a_download_that_breaks_off_leaves_nothing_behind(online: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(self: Any) -> None:
        Path(self.raw_dir).mkdir(parents=True, exist_ok=True)
        (Path(self.raw_dir) / "amazon_electronics_photo.npz").write_bytes(b"half")
        raise TimeoutError("timed out")

    monkeypatch.setattr(import_pyg("datasets").Amazon, "download", download)
    with pytest.raises(InputError, match="TimeoutError: timed out"):
        load("amazon-photo")
    assert not list((online / "cache").iterdir())


def test_a_host_that_never_answers_is_given_up(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_published, "ANSWER_SECONDS", 0.2)
    is_over = threading.Event()

    def build_opener() -> None:
        is_over.wait(20)
        raise OSError("too late")

    monkeypatch.setattr(urllib.request, "build_opener", build_opener)
    begin = time.perf_counter()
    with pytest.raises(InputError, match=r"no answer from github\.com"):
        load("cora")
    assert time.perf_counter() - begin < 10
    is_over.set()


def test_wikics_in_the_format_of_its_authors(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps(make_wikics()), encoding="utf-8")
    graph = read_wikics(tmp_path)
    assert list(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)) == [(1, 0), (0, 1), (2, 1), (1, 2)]
    assert isinstance(graph.x, torch.Tensor)
    assert graph.x.tolist() == make_wikics()["features"]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 1, 2]
    assert graph.splits is not None
    assert graph.splits.train.T.tolist() == make_wikics()["train_masks"]
    assert graph.splits.val.T.tolist() == make_wikics()["val_masks"]
    assert graph.splits.test.T.tolist() == [make_wikics()["test_mask"]] * 2
    assert read_wikics(tmp_path / "data.json").fingerprint == graph.fingerprint


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("links", None, "links is missing"),
        ("links", [[1]], "links has 1 rows"),
        ("links", [[9], [], [], []], "node 9"),
        ("features", [[1.0], [2.0, 3.0]], "consistent"),
        ("train_masks", [[True]], "train_mask"),
    ],
)
def test_what_is_not_wikics_is_refused(key: str, value: Any, complaint: str, tmp_path: Path) -> None:
    data = {name: item for name, item in (make_wikics() | {key: value}).items() if item is not None}
    (tmp_path / "data.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InputError, match=complaint) as caught:
        read_wikics(tmp_path)
    assert "data.json" in str(caught.value)


@pytest.mark.parametrize("content", ["", "[1, 2]", "{", "[" * 100_000])
def test_what_is_not_json_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"data\.json"):
        read_wikics(tmp_path)


def test_ppi_graphs_become_one_block_by_block(tmp_path: Path) -> None:
    graph = read_ppi(write_ppi(tmp_path))
    edges = list(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True))
    assert edges == [(1, 0), (0, 1), (3, 2), (2, 3), (5, 4), (4, 5)]
    assert graph.external_ids.tolist() == [
        *("train-1/0", "train-1/1", "train-2/0", "train-2/1"),
        *("valid-3/0", "valid-3/1", "test-4/0"),
    ]
    assert graph.graph_offsets == (0, 2, 4, 6, 7)
    assert graph.labels is not None
    assert (graph.labels.dtype, tuple(graph.labels.shape), graph.num_classes) == (torch.uint8, (7, 5), 5)
    assert isinstance(graph.x, torch.Tensor)
    assert torch.allclose(graph.x[4:6].double(), torch.from_numpy(np.load(tmp_path / "valid_feats.npy")))
    assert graph.splits is not None
    masks = [graph.splits.train, graph.splits.val, graph.splits.test]
    assert torch.stack(masks)[:, :, 0].int().sum(0).tolist() == [1] * 7
    assert [int(mask.sum()) for mask in masks] == [4, 2, 1]


def test_nodes_of_a_graph_need_not_stand_side_by_side(tmp_path: Path) -> None:
    expected = read_ppi(write_ppi(tmp_path))
    order = np.array([2, 0, 3, 1])  # old numbers of the training nodes, in their new places
    for name in ("feats", "labels", "graph_id"):
        path = tmp_path / f"train_{name}.npy"
        np.save(path, np.load(path)[order])
    path = tmp_path / "train_graph.json"
    content = json.loads(path.read_text())
    new = np.argsort(order).tolist()
    content["links"] = [{"source": new[one["source"]], "target": new[one["target"]]} for one in content["links"]]
    path.write_text(json.dumps(content))
    assert_same_graph(read_ppi(tmp_path), expected)


@pytest.mark.parametrize("name", ["train_graph.json", "valid_feats.npy", "test_labels.npy", "train_graph_id.npy"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", pickle.dumps([1])])
def test_missing_and_foreign_files_of_ppi_are_refused(name: str, content: bytes | None, tmp_path: Path) -> None:
    path = write_ppi(tmp_path) / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=name):
        read_ppi(tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "complaint"),
    [
        ("train_labels.npy", np.zeros((2, 5)), "expected the same"),
        ("test_feats.npy", np.zeros((1, 4)), "different numbers"),
        ("test_feats.npy", np.zeros(3), "2 dimensions"),
        ("test_feats.npy", np.array([["a"]]), "numbers"),
    ],
)
def test_files_of_ppi_that_do_not_fit_are_refused(name: str, array: Any, complaint: str, tmp_path: Path) -> None:
    np.save(write_ppi(tmp_path) / name, array)
    with pytest.raises(InputError, match=complaint):
        read_ppi(tmp_path)


def test_links_of_ppi_beyond_the_nodes_are_refused(tmp_path: Path) -> None:
    links = {"links": [{"source": 0, "target": 9}]}
    (write_ppi(tmp_path) / "valid_graph.json").write_text(json.dumps(links), encoding="utf-8")
    with pytest.raises(InputError, match="outside 0 to 1"):
        read_ppi(tmp_path)
