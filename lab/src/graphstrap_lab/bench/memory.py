"""Peak memory of a piece of work, beyond what was there before it.

On CUDA: the most bytes that PyTorch's allocator had given out at one time, and the most it had reserved. On a CPU: the
peak resident memory of the process less its resident memory at the start, after the C library has given back all it
can; for this the process should be a fresh one, since what earlier work has freed may be used again unseen.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """`with PeakMemory(device) as memory: ...`, then `memory.peak_bytes`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peak_bytes = 0
        self.reserved_bytes: int | None = None  # CUDA only

    def __enter__(self) -> Self:
        self._start_bytes = _settled_bytes(self.device)
        if self.device.type == "cuda":
            self._start_reserved = torch.cuda.memory_reserved(self.device)
        self.forget_peak()
        return self

    def forget_peak(self) -> None:
        """From here on: peaks so far do not count, what stands still does."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            _give_back_freed_memory()
            _forget_resident_peak()

    def __exit__(self, *error: object) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.peak_bytes = torch.cuda.max_memory_allocated(self.device) - self._start_bytes
            self.reserved_bytes = torch.cuda.max_memory_reserved(self.device) - self._start_reserved
        else:
            self.peak_bytes = max(0, _resident_peak_bytes() - self._start_bytes)


def _settled_bytes(device: torch.device) -> int:
    """Bytes in use once everything that is no longer needed is gone."""
    gc.collect()
    if device.type != "cuda":
        _give_back_freed_memory()
        return _resident_bytes()
    torch.cuda.synchronize(device)
    # Each stream's cuBLAS workspace is made on first use and then kept: whoever comes next must pay for its own. No
    # captured graph that is still to be replayed may be alive here, since it would go on using the old one.
    clear_workspaces = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear_workspaces is not None:
        clear_workspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device)


def _give_back_freed_memory() -> None:
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


def _resident_bytes() -> int:
    return _status_bytes("VmRSS") if _STATUS.exists() else _resident_peak_bytes()


def _resident_peak_bytes() -> int:
    if _STATUS.exists():
        return _status_bytes("VmHWM")
    import resource  # Unix only

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _forget_resident_peak() -> None:
    """Where the system cannot, the peak counts from the start of the process: the difference is then too small."""
    with suppress(OSError):
        if _CLEAR.exists():
            _CLEAR.write_text("5")


def _status_bytes(key: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024
