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
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee" if precision == "fp32" else "tf32"
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            yield
    finally:
        matmul.fp32_precision = before
