"""Free memory of the host: a limit on the process counts, and what it owns already is taken off."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from graphstrap.free_memory import free_memory

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
    assert 32 * MIB < left <= 64 * MIB
