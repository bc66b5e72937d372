"""Keeping freed memory for the next step.

By default glibc gives every freed block of more than 32 MiB back to the system, so each step takes the page faults for
all its tensors again. Telling it to keep them makes a CPU step about a tenth faster (docs/LOG.md). Elsewhere this does
nothing.
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Whether the allocator took the advice."""
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
