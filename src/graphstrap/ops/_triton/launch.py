"""Whether Triton is there, and how its kernels are started."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

try:
    import_module("triton")
except ImportError:  # a PyTorch without CUDA comes without Triton
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = True


def may_round_to_tf32() -> bool:
    """Whether products of float32 run on the matrix units. (`allow_tf32`, the older name of this setting, cannot be
    asked where the newer one was set.)"""
    return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"


def launch(kernel: Any, grid: tuple[int, ...]) -> Any:
    """kernel[grid], untyped: Triton has no stubs."""
    return kernel[grid]
