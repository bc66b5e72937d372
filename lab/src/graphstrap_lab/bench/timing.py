"""Timing: calls that take turns in one process, medians and spreads."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

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
