"""Laws of the fingerprint: the same numbers have the same one, however they are kept or cut, and no others do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphstrap.graph import views as fingerprint
from graphstrap.graph.views import fingerprint_of

IDS = np.arange(7)
TENSORS = [torch.arange(8), torch.arange(12.0).reshape(4, 3), torch.arange(5).to(torch.bfloat16)]


def test_whole_numbers_of_any_width_are_the_same() -> None:
    narrow = [tensor.int() if tensor.dtype == torch.int64 else tensor for tensor in TENSORS]
    assert fingerprint_of([(0, 7)], IDS, narrow) == fingerprint_of([(0, 7)], IDS, TENSORS)


def test_parts_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fingerprint_of([(0, 7)], IDS, TENSORS)
    monkeypatch.setattr(fingerprint, "_HASHED_AT_ONCE", 2)
    assert fingerprint_of([(0, 7)], IDS, TENSORS) == whole


def test_everything_counts() -> None:
    changed = [tensor.clone() for tensor in TENSORS]
    changed[2][0] = 1.0
    others = [
        fingerprint_of([(0, 7)], IDS, TENSORS),
        fingerprint_of([(0, 3, 7)], IDS, TENSORS),
        fingerprint_of([(0, 7), (0, 7)], IDS, TENSORS),
        fingerprint_of([(0, 7)], IDS + 1, TENSORS),
        fingerprint_of([(0, 7)], IDS, changed),
        fingerprint_of([(0, 7)], IDS, [TENSORS[0], TENSORS[1].reshape(3, 4), TENSORS[2]]),
    ]
    assert len(set(others)) == len(others)
