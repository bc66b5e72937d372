"""Answers in the layout that OGB-LSC takes for MAG240M: `y_pred` (papers,) int16, in the order of its split's papers.

    test-whole      y_pred_mag240m.npz               146,818 papers
    test-dev        y_pred_mag240m_dev.npz            88,092
    test-challenge  y_pred_mag240m_challenge.npz      58,726

`graphstrap predict RUN --ensemble RUN --submission test-dev --to FOLDER` writes it, by one model or several together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io._archive import Archive
from graphstrap.io.atomic import atomic_write

Array = np.ndarray[Any, Any]
MAG240M_PAPERS = 121_751_666
PARTS = {"test-whole": ("", 146_818), "test-dev": ("_dev", 88_092), "test-challenge": ("_challenge", 58_726)}


def read_papers(path: Path, *, part: str, below: int) -> Array:
    """(M,) the papers of a part in their order, from OGB-LSC's split saved as plain arrays: `np.savez("split_dict.npz",
    **split)`."""
    _check(part)
    with Archive(path) as archive:
        return archive.indices(part, below=below)


def write_submission(folder: Path, answers: Array, *, part: str, num_papers: int | None = None) -> Path:
    """The file of a part of the test papers; its path. `num_papers` is for graphs that are not MAG240M itself."""
    ending, wanted = _check(part)
    wanted = wanted if num_papers is None else num_papers
    if answers.shape != (wanted,):
        raise InputError(f"{part} has {wanted:,} papers, got answers of shape {answers.shape}: give one for each paper")
    path = folder / f"y_pred_mag240m{ending}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror or error}") from error
    with atomic_write(path) as temporary:
        np.savez_compressed(temporary, y_pred=answers.astype(np.int16))
    return path


def _check(part: str) -> tuple[str, int]:
    if part not in PARTS:
        raise InputError(f"there is no part {part!r} of MAG240M's test papers: take one of {', '.join(PARTS)}")
    return PARTS[part]
