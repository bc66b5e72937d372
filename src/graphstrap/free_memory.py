"""How much memory is free, where a computation is to run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch


def free_memory(device: torch.device) -> int:
    """Bytes, of the GPU, with what PyTorch holds there without using it, or of the host."""
    if device.type != "cuda":
        return free_host_memory()
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held


def free_host_memory() -> int:
    """What the machine has free, or what limits leave to this process, whichever is less."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        free = 8 << 30
    return min([free, *_limits()])


def _limits() -> Iterator[int]:
    """Of the process and of its control group, less what it owns already."""
    owned = 0
    with suppress(OSError, ValueError, IndexError):
        owned = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(ImportError):
        import resource

        soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
        if soft != resource.RLIM_INFINITY:
            yield max(0, soft - owned)
    with suppress(OSError, ValueError):  # "max" is no number
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        yield max(0, int(Path("/sys/fs/cgroup/memory.max").read_text()) - used)
