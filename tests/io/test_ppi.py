from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.io.published import read_ppi
from raw_files import write_ppi
from same_graph import assert_same_graph


def test_all_graphs_become_one_block_by_block(tmp_path: Path) -> None:
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
def test_missing_and_foreign_files_are_refused(name: str, content: bytes | None, tmp_path: Path) -> None:
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
def test_parts_that_do_not_fit_are_refused(name: str, array: Any, complaint: str, tmp_path: Path) -> None:
    np.save(write_ppi(tmp_path) / name, array)
    with pytest.raises(InputError, match=complaint):
        read_ppi(tmp_path)


def test_links_beyond_the_nodes_are_refused(tmp_path: Path) -> None:
    links = {"links": [{"source": 0, "target": 9}]}
    (write_ppi(tmp_path) / "valid_graph.json").write_text(json.dumps(links), encoding="utf-8")
    with pytest.raises(InputError, match="outside 0 to 1"):
        read_ppi(tmp_path)
