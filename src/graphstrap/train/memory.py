"""Keeping freed memory for the next step.

By default glibc gives every freed block of more than 32 MB back to the system, so each step takes the page faults for
all its tensors again. Telling it to keep them makes a CPU step about a tenth faster (docs/LOG.md). Elsewhere this does
nothing.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> bool:
    """Whether the allocator took the advice."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 1 << 30)) and bool(mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1))
