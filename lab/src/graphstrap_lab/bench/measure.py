"""How rows are measured: calls that take turns, peak memory beyond what was there before, work in a process of its own.

On CUDA peak memory is the most bytes that PyTorch's allocator had given out at one time, and the most it had reserved.
On a CPU it is the peak resident memory of the process less its resident memory at the start, after the C library has
given back all it can; for this the process should be a fresh one, since what earlier work has freed may be used again
unseen.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import torch

from graphstrap.errors import InputError

Call = Callable[[], object]
WARMUP_CALLS = {"cpu": 1, "cuda": 5}


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one call, one value for each round."""

    rounds_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.rounds_ms)

    @property
    def iqr_ms(self) -> float:
        """Third quartile less first quartile; 0 for a single round."""
        if len(self.rounds_ms) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.rounds_ms, n=4, method="inclusive")
        return third - first


def time_in_turn(
    calls: Mapping[str, Call], *, rounds: int, device: torch.device, round_seconds: float = 0.3
) -> dict[str, Timing]:
    """Every call is warmed up, then each round times every call in order: whatever else the machine does meets all of
    them. A call that is short is repeated within its turn for about `round_seconds`."""
    repeats = {name: _choose_repeats(call, device=device, seconds=round_seconds) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()  # whatever the turn before has taken away, such as memory and cache, is not timed
            found[name].append(time_calls(call, repeats=repeats[name], device=device))
    return {name: Timing(tuple(values)) for name, values in found.items()}


def time_calls(call: Call, *, repeats: int, device: torch.device) -> float:
    """Milliseconds of one of several calls in a row; on CUDA by events, from the first launch to the last result."""
    if device.type != "cuda":
        started = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - started) * 1e3 / repeats
    start: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(device)
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize(device)
    return float(start.elapsed_time(end)) / repeats


def captured(call: Call, *, device: torch.device, times: int = 1) -> Call:
    """The call as a CUDA graph that runs it `times` times: what its kernels take, without their launching. Elsewhere a
    loop."""
    if device.type != "cuda":
        return call if times == 1 else lambda: [call() for _ in range(times)]
    side = _side_stream()
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    return graph.replay


@cache
def _side_stream() -> torch.cuda.Stream:
    """One for all captures: every new stream keeps a workspace of its own."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def _choose_repeats(call: Call, *, device: torch.device, seconds: float) -> int:
    time_calls(call, repeats=WARMUP_CALLS[device.type], device=device)
    once_ms = time_calls(call, repeats=1, device=device)
    return max(1, min(1000, math.ceil(seconds * 1e3 / max(once_ms, 1e-3))))


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
            self.peak_bytes = max(0, _resident_bytes("VmHWM") - self._start_bytes)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Also when memory ran out within a capture, whose end then fails with an error of its own."""
    if error is None:
        return False
    return isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error.__context__)


def _settled_bytes(device: torch.device) -> int:
    """Bytes in use once everything that is no longer needed is gone."""
    gc.collect()
    if device.type != "cuda":
        _give_back_freed_memory()
        return _resident_bytes("VmRSS")
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


def _resident_bytes(key: str) -> int:
    """VmRSS, what is resident now, or VmHWM, the peak; elsewhere than on Linux the peak alone is known."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{key}:"))
        return int(line.split()[1]) * 1024
    import resource  # Unix only

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _forget_resident_peak() -> None:
    """Where the system cannot, the peak counts from the start of the process: the difference is then too small."""
    with suppress(OSError):
        if _CLEAR.exists():
            _CLEAR.write_text("5")


def run_in_child(function: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    """What the function returns when a process of its own calls it; arguments and result are JSON. The process ends
    when this one is stopped."""
    program = (
        f"import json, sys; from {function.__module__} import {function.__name__} as function; "
        "print(json.dumps(function(**json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(f"{function.__name__} with {arguments} failed in a process of its own: {last_line}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
