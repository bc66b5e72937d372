"""Folders in the layouts that OGB publishes, made tiny: each becomes the graph that its arrays describe."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.ogb import NO_TIME, prepare_ogb
from graphstrap.io.prepare import PrepareOptions
from graphstrap.io.store import verify_store
from same_graph import assert_same_graph

SMALL = PrepareOptions(memory_bytes=600 * 10**6, threads=1)
SIZES = (40, 30, 5)
RANDOM = np.random.default_rng(0)
CITES = RANDOM.integers(0, 40, (2, 150))
WRITES = np.stack([np.r_[np.arange(30), RANDOM.integers(0, 30, 60)], RANDOM.integers(0, 40, 90)])
BELONGS = np.stack([RANDOM.integers(0, 30, 25), np.r_[np.arange(5), RANDOM.integers(0, 5, 20)]])
YEARS = RANDOM.integers(2010, 2022, 40)
X = RANDOM.normal(size=(40, 12)).astype(np.float16)
LABELS = np.where(RANDOM.random(40) < 0.5, np.nan, RANDOM.integers(0, 3, 40)).astype(np.float32)


def expected(*, directed: bool, names: tuple[str, ...], order: tuple[int, ...]) -> Graph:
    """The edges of papers, authors and institutions, in memory."""
    relations = [(CITES, 0, 0), (WRITES, 40, 0), (BELONGS, 40, 70)]
    chosen = [relations[number] for number in order]
    graph = Graph.from_edges(
        np.concatenate([pairs[0] + source for pairs, source, _ in chosen]),
        np.concatenate([pairs[1] + target for pairs, _, target in chosen]),
        num_nodes=75,
        directed=directed,
        edge_types=np.repeat(np.arange(3), [pairs.shape[1] for pairs, _, _ in chosen]),
        edge_type_names=names,
    )
    assert graph.edge_types is not None
    return graph


def assert_same_edges(graph: Graph, wanted: Graph) -> None:
    assert wanted.edge_types is not None
    assert graph.edge_types is not None
    assert torch.equal(graph.indptr, wanted.indptr)
    assert torch.equal(graph.indices, wanted.indices)
    assert torch.equal(graph.edge_types.long(), wanted.edge_types)
    assert graph.edge_type_names == wanted.edge_type_names
    assert graph.cleaning == wanted.cleaning


def make_mag240m(folder: Path) -> Path:
    arrays: dict[str, np.ndarray] = {
        "paper/node_feat": X,
        "paper/node_label": LABELS,
        "paper/node_year": YEARS,
        "paper___cites___paper/edge_index": CITES,
        "author___writes___paper/edge_index": WRITES,
        "author___affiliated_with___institution/edge_index": BELONGS,
    }
    for name, array in arrays.items():
        path = folder / "processed" / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    (folder / "meta.pt").write_bytes(b"not read")
    (folder / "split_dict.pt").write_bytes(b"not read")
    return folder


@pytest.mark.parametrize("directed", [False, True])
def test_mag240m(tmp_path: Path, directed: bool) -> None:
    prepare_ogb(str(make_mag240m(tmp_path / "mag")), str(tmp_path / "store"), directed=directed, job=SMALL)
    graph = verify_store(tmp_path / "store")
    names = ("cites", "writes", "affiliated_with")
    assert_same_edges(graph, expected(directed=directed, names=names, order=(0, 1, 2)))
    assert (graph.node_types, graph.type_offsets) == (("paper", "author", "institution"), (0, 40, 70, 75))
    assert torch.equal(graph.features[0], torch.from_numpy(X).float())  # type: ignore[arg-type]
    assert graph.features[1:] == (None, None)
    assert graph.labels is not None
    assert graph.splits is not None
    assert graph.node_times is not None
    assert graph.labels.tolist() == [*np.nan_to_num(LABELS, nan=-1).astype(int).tolist(), *[-1] * 35]
    assert graph.node_times.tolist() == [*YEARS.tolist(), *[NO_TIME] * 35]
    known = ~np.isnan(LABELS)
    assert graph.splits.train[:40, 0].tolist() == (known & (YEARS <= 2018)).tolist()
    assert graph.splits.val[:40, 0].tolist() == (known & (YEARS == 2019)).tolist()
    assert graph.splits.test[:40, 0].tolist() == (known & (YEARS >= 2020)).tolist()


def test_mag240m_with_named_splits_pca_and_derived_features(tmp_path: Path) -> None:
    folder = make_mag240m(tmp_path / "mag")
    np.savez(folder / "split_dict.npz", train=np.array([1, 5]), valid=np.array([7]), test=np.array([8, 0]))
    job = PrepareOptions(600 * 10**6, 1, "fp16", 4, derive_features=True)
    prepare_ogb(str(folder), str(tmp_path / "store"), job=job)
    graph = verify_store(tmp_path / "store")
    assert graph.splits is not None
    found = (graph.splits.train, graph.splits.val, graph.splits.test)
    assert [mask[:, 0].nonzero()[:, 0].tolist() for mask in found] == [[1, 5], [7], [0, 8]]
    assert graph.num_features == (4, 4, 4)
    paper, author, institution = graph.features
    assert isinstance(paper, torch.Tensor)
    assert isinstance(author, torch.Tensor)
    assert isinstance(institution, torch.Tensor)
    for node in range(30):
        mean = paper[np.unique(WRITES[1][WRITES[0] == node])].float().mean(0)
        torch.testing.assert_close(author[node].float(), mean, rtol=1e-2, atol=1e-2)
    for node in range(5):
        mean = author[np.unique(BELONGS[0][BELONGS[1] == node])].float().mean(0)
        torch.testing.assert_close(institution[node].float(), mean, rtol=1e-2, atol=1e-2)


def write_csv(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))


def lines(array: np.ndarray) -> list[str]:
    return [",".join(map(str, np.atleast_1d(row).tolist())) for row in array]


def make_ogbn_mag(folder: Path, labels: np.ndarray) -> None:
    raw, split = folder / "raw", folder / "split" / "time" / "paper"
    write_csv(raw / "num-node-dict.csv.gz", ["paper,author,institution", "40,30,5"])
    triplets = ["paper,cites,paper", "author,writes,paper", "author,affiliated_with,institution"]
    write_csv(raw / "triplet-type-list.csv.gz", triplets)
    for triplet, pairs in zip(triplets, (CITES, WRITES, BELONGS), strict=True):
        write_csv(raw / "relations" / triplet.replace(",", "___") / "edge.csv.gz", lines(pairs.T))
    write_csv(raw / "node-feat" / "paper" / "node-feat.csv.gz", lines(X.astype(np.float32)))
    write_csv(raw / "node-feat" / "paper" / "node_year.csv.gz", lines(YEARS))
    write_csv(raw / "node-label" / "paper" / "node-label.csv.gz", lines(labels))
    for part, numbers in (("train", np.arange(20)), ("valid", np.arange(20, 30)), ("test", np.arange(30, 40))):
        write_csv(split / f"{part}.csv.gz", lines(numbers))


def test_ogbn_mag(tmp_path: Path) -> None:
    labels = np.arange(40) % 3
    make_ogbn_mag(tmp_path / "ogbn_mag", labels)
    prepare_ogb(str(tmp_path / "ogbn_mag"), str(tmp_path / "store"), job=SMALL)
    graph = verify_store(tmp_path / "store")
    names = ("affiliated_with", "writes", "cites")
    assert_same_edges(graph, expected(directed=False, names=names, order=(2, 1, 0)))
    assert graph.splits is not None
    assert graph.labels is not None
    assert torch.equal(graph.features[0], torch.from_numpy(X).float())  # type: ignore[arg-type]
    assert graph.labels[:40].tolist() == labels.tolist()
    assert [int(mask.sum()) for mask in (graph.splits.train, graph.splits.val, graph.splits.test)] == [20, 10, 10]


@pytest.mark.parametrize("name", ["relations/paper___cites___paper/edge", "node-feat/paper/node_year"])
def test_a_cell_without_a_number_is_refused(tmp_path: Path, name: str) -> None:
    make_ogbn_mag(tmp_path / "ogbn_mag", np.arange(40) % 3)
    path = tmp_path / "ogbn_mag" / "raw" / f"{name}.csv.gz"
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()
    rows[3] = ",".join(["", *rows[3].split(",")[1:]]) or '""'
    write_csv(path, rows)
    with pytest.raises(InputError, match="without a number"):
        prepare_ogb(str(tmp_path / "ogbn_mag"), str(tmp_path / "store"), job=SMALL)


def test_ogbn_papers100m(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    (folder / "raw").mkdir(parents=True)
    np.savez_compressed(
        folder / "raw" / "data.npz",
        num_nodes_list=[40],
        num_edges_list=[150],
        edge_index=CITES,
        node_feat=X.astype(np.float32),
        node_year=YEARS[:, None],
    )
    np.savez_compressed(folder / "raw" / "node-label.npz", node_label=LABELS[:, None])
    for part, numbers in (("train", [0, 3]), ("valid", [4]), ("test", [9, 10, 11])):
        write_csv(folder / "split" / "time" / f"{part}.csv.gz", [str(number) for number in numbers])
    prepare_ogb(str(folder), str(tmp_path / "store"), job=SMALL)
    graph = verify_store(tmp_path / "store")
    wanted = Graph.from_edges(*CITES, num_nodes=40, x=X.astype(np.float32))
    assert_same_graph(
        graph,
        Graph(
            indptr=wanted.indptr,
            indices=wanted.indices,
            features=wanted.features,
            labels=torch.from_numpy(np.nan_to_num(LABELS, nan=-1).astype(np.int64)),
            class_names=("0", "1", "2"),
            splits=graph.splits,
            node_times=torch.from_numpy(YEARS),
            name="papers100m",
        ),
    )
    assert graph.splits is not None
    assert graph.splits.test[:, 0].nonzero()[:, 0].tolist() == [9, 10, 11]


def test_other_folders_and_wrong_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="layout"):
        prepare_ogb(str(tmp_path), str(tmp_path / "store"), job=SMALL)
    folder = make_mag240m(tmp_path / "mag")
    np.save(folder / "processed" / "paper___cites___paper" / "edge_index.npy", CITES + 30)
    with pytest.raises(InputError, match="cites"):
        prepare_ogb(str(folder), str(tmp_path / "store"), job=SMALL)
    np.save(folder / "processed" / "paper" / "node_label.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(InputError, match="node_label"):
        prepare_ogb(str(folder), str(tmp_path / "store"), job=SMALL)
    assert not (tmp_path / "store").exists()
