"""How fast this machine is: bytes that it copies and products that it multiplies in a second, measured.

A rate is the best of several tries, so that a floor made of it is one that nothing here goes below.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from graphstrap.ops.precision import computing_in
from graphstrap_lab.bench.timing import Call, captured, time_calls

PRECISIONS = ("fp32", "tf32", "bf16")
_LARGE_COPY_BYTES = {"cpu": 256 << 20, "cuda": 2 << 30}
_MATMUL_SIZE = {"cpu": 1536, "cuda": 8192}
_ASSUMED_CACHE_BYTES = 16 << 20
_TRIES = 5


@dataclass(frozen=True)
class Rates:
    """Of one device. Copied bytes count twice: read and written."""

    memory_bytes_per_second: float
    cache_bytes_per_second: float
    cache_bytes: int
    flops_per_second: dict[str, float]  # by precision, for those that the device has

    def seconds_to_move(self, num_bytes: float, *, table_bytes: float) -> float:
        """At the rate of the cache where the table that is read fits into it, at that of the memory elsewhere."""
        in_cache = table_bytes <= self.cache_bytes
        return num_bytes / (self.cache_bytes_per_second if in_cache else self.memory_bytes_per_second)

    def seconds_to_multiply(self, flops: float, *, precision: str) -> float:
        return flops / self.flops_per_second[precision]


def measure_rates(device: torch.device) -> Rates:
    cache_bytes = find_cache_bytes(device)
    memory = copy_rate(_LARGE_COPY_BYTES[device.type], device=device)
    cache = copy_rate(cache_bytes // 4, device=device, times=50)
    precisions = PRECISIONS if device.type == "cuda" else ("fp32", "bf16")
    rates = {precision: matmul_rate(precision, device=device) for precision in precisions}
    return Rates(memory, max(memory, cache), cache_bytes, rates)


def copy_rate(num_bytes: int, *, device: torch.device, times: int = 1) -> float:
    """Bytes read and written in a second while one block is copied over another, `times` times in a row."""
    source = torch.zeros(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes * times / _best_seconds(lambda: target.copy_(source), device=device, times=times)


def matmul_rate(precision: str, *, device: torch.device) -> float:
    """Floating-point operations in a second of one large square product."""
    size = _MATMUL_SIZE[device.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    with computing_in("tf32" if precision == "tf32" else "fp32", device):
        return 2 * size**3 / _best_seconds(lambda: torch.mm(a, b, out=out), device=device)


def find_cache_bytes(device: torch.device) -> int:
    """The last cache in front of the memory."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    found = [int(path.read_text().strip().removesuffix("K")) << 10 for path in sizes]
    return max(found, default=_ASSUMED_CACHE_BYTES)


def _best_seconds(call: Call, *, device: torch.device, times: int = 1) -> float:
    repeated = captured(call, device=device, times=times)
    time_calls(repeated, repeats=2, device=device)
    return min(time_calls(repeated, repeats=2, device=device) for _ in range(_TRIES)) / 1e3
