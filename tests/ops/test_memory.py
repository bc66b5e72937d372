"""The allocator takes the advice on Linux and is left alone elsewhere."""

from __future__ import annotations

import sys

import pytest

from graphstrap.ops.memory import keep_freed_memory, release_freed_memory


def test_advice_is_taken_or_the_system_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert release_freed_memory() == sys.platform.startswith("linux")
    assert keep_freed_memory() == sys.platform.startswith("linux")
    monkeypatch.setattr("sys.platform", "darwin")
    assert keep_freed_memory() is False
    assert release_freed_memory() is False
