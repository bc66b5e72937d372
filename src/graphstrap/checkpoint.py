"""Checkpoint: parameters and optimiser state of a training that is to go on, in one file, replaced atomically."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from graphstrap.adamw import AdamW
from graphstrap.errors import InputError
from graphstrap.io.tensors import load_tensors, read_shapes, save_tensors

T = TypeVar("T")


def write_checkpoint(path: Path, module: nn.Module, optimizer: AdamW, *, info: dict[str, Any]) -> None:
    tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, parameter in enumerate(optimizer.parameters):
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in optimizer.moments(parameter).items()}
    save_tensors(path, tensors, kind="checkpoint", info=info)


def module_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the module's tensors, from the header alone."""
    return with_prefix(read_shapes(path), "module.")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    path: Path
    tensors: dict[str, Tensor]
    info: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        return cls(path, *load_tensors(path, kind="checkpoint"))

    def load_into(self, module: nn.Module, optimizer: AdamW) -> None:
        load_state(module, with_prefix(self.tensors, "module."), self.path)
        for index, parameter in enumerate(optimizer.parameters):
            saved = with_prefix(self.tensors, f"optimizer.{index}.")
            _check_moments(saved, parameter, self.path)
            optimizer.state[parameter] = {name: tensor.to(parameter.device) for name, tensor in saved.items()}


def load_state(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """`load_state_dict`, with an error that a user can read."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{path} does not fit this recipe: it is from another model") from error


def _check_moments(saved: dict[str, Tensor], parameter: Tensor, path: Path) -> None:
    """Whether these are the optimiser's numbers for this parameter."""
    wanted = {"step": ((), torch.float32)} | {
        name: (tuple(parameter.shape), parameter.dtype) for name in ("exp_avg", "exp_avg_sq")
    }
    if {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in saved.items()} != wanted:
        raise InputError(f"{path} does not fit this recipe: its optimiser state is from another model")


def with_prefix(tensors: Mapping[str, T], prefix: str) -> dict[str, T]:
    """The tensors, or what else, whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
