"""What products are computed in. Weights, statistics, sums and the loss are float32 throughout.

fp32   every product in float32
tf32   matrix products on CUDA with 10-bit mantissas, sums in float32; the same as fp32 on a CPU
bf16   products, and the activations between them, in bfloat16; sums in float32
auto   bf16 where the hardware has it: accuracy was the same over a few seeds (docs/LOG.md); but not on part of a GPU,
       where cuBLAS got such products wrong
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

logger = logging.getLogger(__name__)


def resolve_precision(name: str, device: torch.device) -> str:
    """`auto` is bf16 where the processor or the GPU computes in it natively; else fp32, or tf32 on a GPU."""
    if device.type != "cuda":
        return ("bf16" if processor_has_bf16() else "fp32") if name == "auto" else name
    if name == "bf16" and not gpu_multiplies_bf16():
        logger.warning(
            "this part of a GPU gets products in bf16 wrong: leave train.precision to auto, or set it to tf32"
        )
    if name != "auto":
        return name
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) and gpu_multiplies_bf16()
    return "bf16" if has_bf16 else "tf32"


@cache
def gpu_multiplies_bf16() -> bool:
    """Whether products in bfloat16 can be relied on: on the whole GPU, and if they are those of float32.

    Held by NVIDIA's MPS to 58 or 98 of an H200's 132 multiprocessors, cuBLAS returns wrong ones for some shapes, and
    says nothing; with 32 or 66 they were right, and those of float32 always (docs/LOG.md).
    """
    shapes = ((3327, 512, 256), (3327, 256, 256), (320, 3327, 512), (256, 13114, 128))  # wrong with 58 of them
    return not has_part_of_a_gpu() and all(_multiplies_bf16(*shape) for shape in shapes)


def _multiplies_bf16(num_rows: int, size: int, num_columns: int, device: str = "cuda") -> bool:
    a = torch.linspace(0.0, 99.0, num_rows * size, device=device).view(size, num_rows).sin().bfloat16().t()
    b = torch.linspace(0.0, 77.0, size * num_columns, device=device).view(size, num_columns).cos().bfloat16()
    exact = a.float() @ b.float()
    errors = [(x @ b).float() - exact for x in (a, a.contiguous())]
    return all(float(error.norm()) < 0.01 * float(exact.norm()) for error in errors)


def has_part_of_a_gpu() -> bool:
    """Whether NVIDIA's MPS holds this program to some of the multiprocessors."""
    try:
        return float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")) < 100.0
    except ValueError:
        return False


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
