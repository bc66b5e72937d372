"""Answers for OGB-LSC: the names, sizes and type that its evaluator writes, and models that answer by their mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphstrap.errors import InputError
from graphstrap.io.submission import PARTS, answer_together, write_submission


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


def test_models_answer_by_the_mean_of_their_probabilities() -> None:
    sure, unsure = np.array([[0.9, 0.1, 0.0]]), np.array([[0.2, 0.45, 0.35]])
    assert answer_together([sure, unsure]).tolist() == [0]
    assert answer_together([unsure, unsure, sure * 0 + 1 / 3]).tolist() == [1]
    assert np.array_equal(answer_together([unsure]), unsure.argmax(1))
    with pytest.raises(InputError, match="one shape"):
        answer_together([sure, np.zeros((2, 3))])
