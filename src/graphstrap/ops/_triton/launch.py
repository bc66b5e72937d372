"""Whether Triton is there, and how its kernels are started."""

from __future__ import annotations

from importlib import import_module
from typing import Any

try:
    import_module("triton")
except ImportError:  # a PyTorch without CUDA comes without Triton
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = True


def launch(kernel: Any, grid: tuple[int, ...]) -> Any:
    """kernel[grid], untyped: Triton has no stubs."""
    return kernel[grid]
