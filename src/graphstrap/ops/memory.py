"""How much memory is free, where a computation is to run."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from graphstrap.errors import InputError

_CONTROL_GROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int:
    """Bytes, of the GPU, with what PyTorch holds there without using it, or of the host."""
    if device.type != "cuda":
        return free_host_memory()
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held


def held_by_others(device: torch.device) -> int:
    """Bytes of the GPU that are not free and not PyTorch's here; 0 of the host, where nobody can say."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


def free_host_memory() -> int:
    """What can be had without swapping, or what limits leave to this process, whichever is less."""
    return min([_available(), *_limits()])


def _available() -> int:
    """As Linux says: pages that only hold files are free too. Elsewhere all of the machine's memory."""
    with suppress(OSError, KeyError, ValueError, IndexError):
        return 1024 * _read_fields(Path("/proc/meminfo"))["MemAvailable:"]
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 8 << 30


def _limits() -> Iterator[int]:
    """Of the process and of its control group, less what is used of them already."""
    owned = 0
    with suppress(OSError, ValueError, IndexError):
        owned = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(ImportError):
        import resource

        soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
        if soft != resource.RLIM_INFINITY:
            yield max(0, soft - owned)
    with suppress(OSError, ValueError, KeyError, IndexError):  # "max" is no number
        most = int((_CONTROL_GROUP / "memory.max").read_text())
        used = int((_CONTROL_GROUP / "memory.current").read_text())
        of_files = _read_fields(_CONTROL_GROUP / "memory.stat")["inactive_file"]
        yield max(0, most - used + of_files)


def _read_fields(path: Path) -> dict[str, int]:
    """A file of lines that begin with a name and a number."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in lines}


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next step; whether it took the advice. Elsewhere this does nothing.

    By default it gives every freed block of more than 32 MiB back to the system, so each step takes the page faults
    for all its tensors again. Keeping them makes a CPU step about a tenth faster (docs/LOG.md).
    """
    return _advise(mmap_from=1 << 30, trim_from=(1 << 31) - 1)


def release_freed_memory() -> bool:
    """As a program does that gives no advice: the largest blocks that glibc by itself learns to keep are 32 MiB."""
    return _advise(mmap_from=32 << 20, trim_from=64 << 20)


def _advise(*, mmap_from: int, trim_from: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, mmap_from)) and bool(mallopt(_M_TRIM_THRESHOLD, trim_from))


_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_bytes(text: str) -> int:
    """`16GB` or `16GiB` to a number of bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?\s*", text, flags=re.IGNORECASE)
    if match is None:
        raise InputError(f"a memory limit is a size such as 16GB, got {text!r}")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].upper()])
