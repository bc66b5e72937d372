"""The allocator takes the advice on Linux and is left alone elsewhere."""

from __future__ import annotations

import sys

import pytest

from graphstrap.train.memory import keep_freed_memory


def test_advice_is_taken_once_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_freed_memory.cache_clear()
    assert keep_freed_memory() == sys.platform.startswith("linux")
    keep_freed_memory.cache_clear()
    monkeypatch.setattr("sys.platform", "darwin")
    assert keep_freed_memory() is False
    keep_freed_memory.cache_clear()
