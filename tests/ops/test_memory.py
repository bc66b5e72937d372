"""Memory: limits count and what is owned already is taken off; the allocator takes advice on Linux alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from graphstrap.ops import memory as module
from graphstrap.ops.memory import free_memory, keep_freed_memory, release_freed_memory

MIB = 1 << 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is Linux's")
def test_a_limit_on_the_process_leaves_what_it_does_not_own() -> None:
    import resource

    before = free_memory(torch.device("cpu"))
    owned = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (owned + 64 * MIB, hard))
        left = free_memory(torch.device("cpu"))
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    assert before > 64 * MIB
    assert 32 * MIB < left <= 80 * MIB  # a thread that ends between the two gives its stack back


def test_a_control_group_leaves_what_it_does_not_use_and_pages_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CONTROL_GROUP", tmp_path)
    (tmp_path / "memory.current").write_text(f"{80 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {30 * MIB}\ninactive_file {50 * MIB}\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(torch.device("cpu")) > 100 * MIB
    (tmp_path / "memory.max").write_text(f"{100 * MIB}\n")
    assert free_memory(torch.device("cpu")) == 70 * MIB
    (tmp_path / "memory.max").write_text(f"{10 * MIB}\n")
    assert free_memory(torch.device("cpu")) == 0


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux says so there")
def test_what_the_system_calls_available_is_free() -> None:
    fields = module._read_fields(Path("/proc/meminfo"))
    assert fields["MemFree:"] * 1024 * 0.8 < module._available() <= fields["MemTotal:"] * 1024


def test_advice_is_taken_or_the_system_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert release_freed_memory() == sys.platform.startswith("linux")
    assert keep_freed_memory() == sys.platform.startswith("linux")
    monkeypatch.setattr("sys.platform", "darwin")
    assert keep_freed_memory() is False
    assert release_freed_memory() is False
