"""Named tensors in one safetensors file: written atomically, with a kind and a checksum, read back with both checked.

Nothing is ever unpickled. A truncated, damaged or foreign file gives an InputError.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.io.atomic import atomic_write
from graphstrap.plain import check_plain

_KEY = "graphstrap"


def save_tensors(path: Path, tensors: dict[str, Tensor], *, kind: str, info: dict[str, Any]) -> None:
    """Write all tensors and a JSON object, or nothing."""
    on_cpu = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One key, because safetensors writes several in an order that changes: the same tensors are to give the same bytes.
    metadata = {_KEY: json.dumps({"kind": kind, "info": info, "checksum": _checksum(on_cpu, info)})}
    with atomic_write(path) as temporary:
        try:
            save_file(on_cpu, temporary, metadata=metadata)
        except SafetensorError as error:
            raise InputError(f"cannot write {path}: {_first_line(error)}") from error


def load_tensors(path: Path, *, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the JSON object, after checking that the file is of this kind and undamaged."""
    check_plain(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = json.loads((file.metadata() or {}).get(_KEY, "{}"))
            if metadata.get("kind") != kind:
                raise InputError(f"{path} is not a Graphstrap {kind}: give the folder that `graphstrap fit --run` made")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            info = metadata["info"]
            if not isinstance(info, dict):
                raise ValueError("its header is no object")
    except (SafetensorError, OSError, ValueError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} is damaged or cut short ({_first_line(error)}): restore it from a copy, or fit again"
        ) from error
    if metadata.get("checksum") != _checksum(tensors, info):
        raise InputError(f"{path} is damaged (its checksum does not match): restore it from a copy, or fit again")
    return tensors, info


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's tensors, from its header alone."""
    check_plain(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"{path} is damaged or cut short ({_first_line(error)}): restore it from a copy, or fit again"
        ) from error


def _checksum(tensors: dict[str, Tensor], info: dict[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(info).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
