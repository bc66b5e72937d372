"""Answers for OGB-LSC: the names, sizes, order and type that its evaluator writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphstrap.errors import InputError
from graphstrap.io.export import PARTS, read_papers, write_submission


@pytest.mark.parametrize("part", PARTS)
def test_the_file_holds_the_answers(tmp_path: Path, part: str) -> None:
    answers = np.random.default_rng(0).integers(0, 153, PARTS[part][1])
    path = write_submission(tmp_path, answers, part=part)
    with np.load(path, allow_pickle=False) as archive:
        assert archive.files == ["y_pred"]
        assert archive["y_pred"].dtype == np.int16
        assert np.array_equal(archive["y_pred"], answers)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_wrong_answers_leave_no_file(tmp_path: Path) -> None:
    for answers, part in ((np.zeros(5), "test-dev"), (np.zeros(88_092), "test")):
        with pytest.raises(InputError, match="papers"):
            write_submission(tmp_path, answers, part=part)
    assert not list(tmp_path.iterdir())


def test_another_graph_says_how_many_papers_it_has(tmp_path: Path) -> None:
    path = write_submission(tmp_path / "new", np.arange(5), part="test-dev", num_papers=5)
    with np.load(path, allow_pickle=False) as archive:
        assert archive["y_pred"].tolist() == [0, 1, 2, 3, 4]


def test_papers_come_in_the_order_of_the_split(tmp_path: Path) -> None:
    split: dict[str, Any] = {"test-dev": np.array([7, 2, 5])}
    np.savez(tmp_path / "split_dict.npz", **split)
    assert read_papers(tmp_path / "split_dict.npz", part="test-dev", below=8).tolist() == [7, 2, 5]
    for part, below in (("test-dev", 7), ("test-whole", 8), ("valid", 8)):
        with pytest.raises(InputError):
            read_papers(tmp_path / "split_dict.npz", part=part, below=below)
