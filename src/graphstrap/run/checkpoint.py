"""Named tensors in one safetensors file, and the checkpoint of a training: parameters and optimiser state.

A file is written atomically, with its kind and a checksum, and read back with both checked. Nothing is unpickled; a
truncated, damaged or foreign file gives an InputError.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.io.files import atomic_write, check_readable
from graphstrap.ops.adamw import AdamW

_KEY = "graphstrap"
_ADVICE = "restore it from a copy, or fit again"
T = TypeVar("T")


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


def load_tensors(path: Path, *, kind: str, advice: str = _ADVICE) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the JSON object of an undamaged file of this kind; `advice` ends the message about any other."""
    with _opened(path, advice) as file:
        metadata = _metadata(file, path, kind)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if metadata.get("checksum") != _checksum(tensors, metadata["info"]):
        raise InputError(f"{path} is damaged (its checksum does not match): {advice}")
    return tensors, metadata["info"]


def read_info(path: Path, *, kind: str) -> dict[str, Any]:
    """The JSON object, from the header alone."""
    with _opened(path, _ADVICE) as file:
        info: dict[str, Any] = _metadata(file, path, kind)["info"]
        return info


@contextmanager
def _opened(path: Path, advice: str) -> Iterator[Any]:
    """The file, open for reading; a damaged one gives an InputError of one sentence."""
    check_readable(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except (SafetensorError, OSError, ValueError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged or cut short ({_first_line(error)}): {advice}") from error


def _metadata(file: Any, path: Path, kind: str) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads((file.metadata() or {}).get(_KEY, "{}"))
    if metadata.get("kind") != kind:
        raise InputError(f"{path} is not a Graphstrap {kind}: give the folder that `graphstrap fit --run` made")
    if not isinstance(metadata["info"], dict):
        raise ValueError("its header is no object")
    return metadata


def _checksum(tensors: dict[str, Tensor], info: dict[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(info).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def write_checkpoint(path: Path, module: nn.Module, optimizer: AdamW, *, info: dict[str, Any]) -> None:
    tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, parameter in enumerate(optimizer.parameters):
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in optimizer.moments(parameter).items()}
    save_tensors(path, tensors, kind="checkpoint", info=info)


def module_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the module's tensors, from the header alone."""
    with _opened(path, _ADVICE) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return with_prefix(shapes, "module.")


def load_checkpoint(path: Path, module: nn.Module, optimizer: AdamW, *, check: Callable[[Mapping[str, Any]], T]) -> T:
    """Put a checkpoint into a module and its optimiser, after `check` of its info, whose answer is returned."""
    tensors, info = load_tensors(path, kind="checkpoint")
    answer = check(info)
    load_state(module, with_prefix(tensors, "module."), path)
    for index, parameter in enumerate(optimizer.parameters):
        saved = with_prefix(tensors, f"optimizer.{index}.")
        moment = (parameter.shape, parameter.dtype)
        wanted = {"step": (torch.Size(), torch.float32), "exp_avg": moment, "exp_avg_sq": moment}
        if {name: (tensor.shape, tensor.dtype) for name, tensor in saved.items()} != wanted:
            raise InputError(f"{path} does not fit this recipe: its optimiser state is from another model")
        optimizer.state[parameter] = {name: tensor.to(parameter.device) for name, tensor in saved.items()}
    return answer


def load_state(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """`load_state_dict`, with an error that a user can read."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{path} does not fit this recipe: it is from another model") from error


def with_prefix(tensors: Mapping[str, T], prefix: str) -> dict[str, T]:
    """The entries whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
