"""The products that training is made of, each behind one signature. The only package that knows about devices and
speed.

Backends: `torch`, the readable reference, and `csr`, the fast one. The choice is made once
for each device; the environment variable GRAPHSTRAP_BACKEND forces it.
"""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.ops import _csr, _torch, _triton
from graphstrap.view import View

NORMS = ("symmetric", "mean", "sum")
BACKENDS: dict[str, ModuleType] = {"torch": _torch, "csr": _csr}


class Backend(NamedTuple):
    name: str
    reason: str


@cache
def backend(device_type: str) -> Backend:
    """Which backend serves a kind of device, and why."""
    forced = os.environ.get("GRAPHSTRAP_BACKEND", "auto")
    if forced != "auto" and forced not in BACKENDS:
        raise InputError(f"GRAPHSTRAP_BACKEND must be auto, {' or '.join(BACKENDS)}, got {forced!r}")
    if forced != "auto":
        return Backend(forced, "forced by GRAPHSTRAP_BACKEND")
    engine = "a Triton kernel" if device_type == "cuda" and _triton.IS_AVAILABLE else "embedding_bag"
    return Backend("csr", f"the fastest one for {device_type}: {engine} over CSR, no E x D intermediate")


def propagate(graph: Graph, view: View, h: Tensor, *, norm: str = "symmetric") -> Tensor:
    """Sum each node's neighbours and itself over the edges that the view keeps.

    symmetric:  D^-1/2 (A + I) D^-1/2 h        mean:  D^-1 (A + I) h        sum:  (A + I) h

    D is the weighted in-degree of the masked graph plus the self-loop, at both ends. h is (N, D), and so is the result.
    """
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
    result: Tensor = BACKENDS[backend(h.device.type).name].propagate(graph, view, h, norm)
    return result


def project(graph: Graph, view: View, weight: Tensor, *, block: int = 0) -> Tensor:
    """Features of one node type times a weight, under the view's feature mask: (X o mask) W, of shape (N_t, D)."""
    result: Tensor = BACKENDS[backend(weight.device.type).name].project(graph, view, weight, block)
    return result


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x where positive, slope times x elsewhere; `slope` has shape (1,)."""
    result: Tensor = BACKENDS[backend(x.device.type).name].prelu(x, slope)
    return result


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """(N,) cosine similarity of each row of q with the same row of t. Gradient flows to q alone."""
    result: Tensor = BACKENDS[backend(q.device.type).name].row_cosine(q, t)
    return result


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"--device must be auto, cpu or cuda, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"--device must be auto, cpu or cuda, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda was asked for, but PyTorch sees no CUDA device here: use --device cpu")
    return device
