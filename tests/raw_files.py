"""Tiny graphs in the formats that their authors publish real ones in."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

LINKS = {"train": [[0, 1], [1, 0], [2, 2], [2, 3], [1, 2]], "valid": [[0, 1]], "test": []}
GRAPH_IDS = {"train": [1, 1, 2, 2], "valid": [3, 3], "test": [4]}


def write_ppi(folder: Path) -> Path:
    """Four tiny graphs in the layout of DGL's ppi.zip; one link joins two graphs, one a node with itself."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for part, graph_ids in GRAPH_IDS.items():
        count = len(graph_ids)
        np.save(folder / f"{part}_feats.npy", random.normal(size=(count, 3)))
        np.save(folder / f"{part}_labels.npy", random.integers(0, 2, (count, 5)))
        np.save(folder / f"{part}_graph_id.npy", np.array(graph_ids))
        links = [{"source": source, "target": target} for source, target in LINKS[part]]
        nodes = [{"id": number, "test": False} for number in range(count)]
        content = {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
        (folder / f"{part}_graph.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def make_wikics() -> dict[str, Any]:
    """Four pages and two splits; the link 0 -> 1 is there twice, and 3 links to itself."""
    return {
        "features": [[0.5, -1.0], [1.0, 2.0], [0.0, 0.0], [3.0, 1.0]],
        "labels": [0, 1, 1, 2],
        "links": [[1, 1], [0, 2], [], [3]],
        "train_masks": [[True, False, False, False], [False, True, False, False]],
        "val_masks": [[False, True, False, False], [True, False, False, False]],
        "stopping_masks": [[False] * 4, [False] * 4],
        "test_mask": [False, False, True, True],
    }


def make_raw(*, seed: int, num_nodes: int = 40) -> tuple[Any, Any, Any]:
    """Counts as features, a directed adjacency with a self-loop and an edge that weighs 2, and labels."""
    random = np.random.default_rng(seed)
    words = scipy.sparse.csr_matrix(random.integers(1, 4, (num_nodes, 9)) * (random.random((num_nodes, 9)) < 0.3))
    links = (random.random((num_nodes, num_nodes)) < 0.1).astype(np.float32)
    links[0, 0], links[1, 2] = 1, 2
    return words, scipy.sparse.csr_matrix(links), random.integers(0, 3, num_nodes)


def save_local(path: Path, words: Any, links: Any, labels: Any, **masks: Any) -> None:
    np.savez_compressed(
        path,
        edge_index=np.stack(links.nonzero()).astype(np.int32),
        x_data=words.data.astype(np.float32),
        x_indices=words.indices.astype(np.uint16),
        x_indptr=words.indptr,
        x_shape=np.array(words.shape),
        y=labels,
        **masks,
    )


def write_planetoid(folder: Path, words: Any, links: Any, labels: Any, *, train: int, test: list[int]) -> None:
    """The pickles of Planetoid: the test nodes are listed out of order, isolated ones not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    one_hot = np.eye(3, dtype=np.int32)[labels]
    known = min(test)
    graph = defaultdict(list, {row: links[[row]].indices.tolist() for row in range(len(labels))})
    content = {"x": words[:train], "y": one_hot[:train], "allx": words[:known], "ally": one_hot[:known]}
    content |= {"tx": words[test], "ty": one_hot[test], "graph": graph}
    for key, value in content.items():
        (folder / f"ind.citeseer.{key}").write_bytes(pickle.dumps(value))
    (folder / "ind.citeseer.test.index").write_text("".join(f"{node}\n" for node in test), encoding="utf-8")


def make_arrays() -> dict[str, Any]:
    """Four nodes in the format of the real graphs: a self-loop, an edge given twice, a node without a label."""
    return {
        "edge_index": np.array([[0, 0, 1, 3, 1], [1, 1, 2, 3, 0]], dtype=np.int32),
        "x_data": np.array([3, 1, 2], dtype=np.uint8),
        "x_indices": np.array([4, 0, 1], dtype=np.uint16),
        "x_indptr": np.array([0, 2, 2, 3, 3], dtype=np.int32),
        "x_shape": np.array([4, 5]),
        "y": np.array([0, 1, 1, -1]),
        "class_names": np.array(["even", "odd"]),
        "train_mask": np.array([True, False, False, False]),
        "val_mask": np.array([False, True, False, False]),
        "test_mask": np.array([False, False, True, False]),
    }


def make_hetero_arrays() -> dict[str, Any]:
    return {
        "node_types": np.array(["paper", "author"]),
        "edge_types": np.array(["author|writes|paper", "paper|cites|paper"]),
        "num_nodes:paper": np.int64(3),
        "num_nodes:author": np.int64(2),
        "x_data:paper": np.array([1.0, 2.0], dtype=np.float32),
        "x_indices:paper": np.array([0, 1], dtype=np.int32),
        "x_indptr:paper": np.array([0, 1, 1, 2]),
        "x_shape:paper": np.array([3, 2]),
        "edge_index:author|writes|paper": np.array([[0, 1], [2, 0]], dtype=np.int32),
        "edge_index:paper|cites|paper": np.array([[0, 1], [1, 1]], dtype=np.int32),
        "label_type": np.array("paper"),
        "y:paper": np.array([1, 0, -1]),
        "train_idx:b": np.array([0]),
        "test_idx:b": np.array([1]),
        "train_idx:a": np.array([1]),
        "val_idx:a": np.array([0]),
    }


def save_arrays(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez_compressed(path, **arrays)
    return path
