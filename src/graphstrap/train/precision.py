"""What products are computed in. Weights, statistics, sums and the loss are float32 throughout.

fp32   every product in float32
tf32   matrix products on CUDA with 10-bit mantissas, sums in float32; the same as fp32 on a CPU
bf16   products, and the activations between them, in bfloat16; sums in float32
auto   bf16 where the hardware has it: accuracy was the same over a few seeds (docs/LOG.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch


def resolve_precision(name: str, device: torch.device) -> str:
    """`auto` is bf16 where the processor or the GPU computes in it natively; else fp32, or tf32 on a GPU."""
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "tf32"
    return "bf16" if processor_has_bf16() else "fp32"


@cache
def processor_has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; emulated, it would be slower than float32."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


@contextmanager
def computing_in(precision: str, device: torch.device) -> Iterator[None]:
    """Within the block, products are computed in this precision."""
    on_cuda = "ieee" if precision == "fp32" else "tf32"
    on_cpu = "bf16" if device.type == "cpu" and onednn_is_exact() else _onednn().fp32_precision
    with (
        _products(torch.backends.cuda.matmul, on_cuda),
        _products(_onednn(), on_cpu),
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"),
    ):
        yield


@cache
def onednn_is_exact() -> bool:
    """Whether oneDNN, allowed to round float32 products to bfloat16, computes them in float32 all the same.

    PyTorch hands float32 products to oneDNN only with that permission. A processor without AMX makes no use of it, and
    oneDNN is the faster library on some of those: 1.2 to 1.5 times on AMD's.
    """
    a = torch.linspace(-1.0, 1.0, 256 * 256).view(256, 256).sin()
    with _products(_onednn(), "bf16"):
        error = (a @ a).double() - a.double() @ a.double()
    return float(error.norm() / a.norm() ** 2) < 1e-6


def _onednn() -> Any:
    return torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


@contextmanager
def _products(backend: Any, precision: str) -> Iterator[None]:
    before = backend.fp32_precision
    backend.fp32_precision = precision
    try:
        yield
    finally:
        backend.fp32_precision = before
