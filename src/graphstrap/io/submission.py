"""Answers in the layout that OGB-LSC takes for MAG240M: `y_pred` (papers,) int16, in the order of its split's papers.

    test-whole      y_pred_mag240m.npz               146,818 papers
    test-dev        y_pred_mag240m_dev.npz            88,092
    test-challenge  y_pred_mag240m_challenge.npz      58,726

Several models answer together: `p = mean of their probabilities`, and the class with the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.atomic import atomic_write

Array = np.ndarray[Any, Any]
PARTS = {"test-whole": ("", 146_818), "test-dev": ("_dev", 88_092), "test-challenge": ("_challenge", 58_726)}


def answer_together(probabilities: Sequence[Array]) -> Array:
    """(M,) the classes that models, each with its (M, C) probabilities, choose by their mean."""
    shapes = {table.shape for table in probabilities}
    if len(shapes) != 1:
        raise InputError(f"models that answer together need probabilities of one shape, got {sorted(shapes)}")
    total = np.zeros(shapes.pop())
    for table in probabilities:  # one at a time: they may be memory-mapped
        total += table
    answers: Array = total.argmax(1)
    return answers


def write_submission(folder: Path, answers: Array, *, part: str) -> Path:
    """The file of a part of the test papers; its path."""
    if part not in PARTS:
        raise InputError(f"there is no part {part!r} of MAG240M's test papers: take one of {', '.join(PARTS)}")
    ending, wanted = PARTS[part]
    if answers.shape != (wanted,):
        raise InputError(f"{part} has {wanted:,} papers, got answers of shape {answers.shape}: give one for each paper")
    path = folder / f"y_pred_mag240m{ending}.npz"
    with atomic_write(path) as temporary:
        np.savez_compressed(temporary, y_pred=answers.astype(np.int16))
    return path
