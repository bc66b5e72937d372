from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.io.published import read_wikics
from raw_files import make_wikics


def test_the_format_of_its_authors(tmp_path: Path) -> None:
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
