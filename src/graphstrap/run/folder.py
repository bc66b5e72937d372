"""Run: the folder of one training run, with all that is needed to inspect it, go on with it and use what it learned.

    run.json                  format version, source of the graph, seed, graph statistics, environment, git state
    recipe.toml               every setting, resolved
    metrics.jsonl             one JSON object a line
    restarts.jsonl            when, where and from which step it went on; none where it was never cut
    run.lock                  held by the process that trains
    checkpoint.safetensors    parameters, optimiser state and step; replaced atomically
    start.safetensors         the model that a warm start began from
    model.safetensors         the finished model; its presence means that the run is finished

The folder appears whole or not at all, and every file in it is replaced whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.views import fingerprint_of
from graphstrap.io import files
from graphstrap.ops.adamw import AdamW
from graphstrap.run.environment import describe_environment, describe_git
from graphstrap.run.recipe import Recipe, parse_recipe

T = TypeVar("T")

FORMAT_VERSION = 1
LOCK_FILE = "run.lock"
MODEL_FILE, START_FILE = "model.safetensors", "start.safetensors"
INSTANT_FILE = "instant.safetensors"  # what can be asked of a run while it trains


class Run:
    """An existing run folder: make one with `Run.create`, open one with `Run.open`."""

    def __init__(self, folder: Path, *, info: dict[str, Any], recipe: Recipe) -> None:
        self.folder, self.info, self.recipe = folder, info, recipe
        self._began = (folder / LOCK_FILE).exists() or self.checkpoint_path.exists()  # some process has trained in it
        self._is_locked = False

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        recipe: Recipe,
        source: Mapping[str, Any],
        seed: int,
        device: str,
        graph: Graph,
        start: tuple[dict[str, Tensor], dict[str, Any]] | None = None,
    ) -> Run:
        """Make the folder, under a temporary name until it is complete. An existing one is refused.

        `start` is the model that a warm start begins from: a cut before the first checkpoint must not lose it.
        """

        def check() -> None:
            if folder.exists():
                raise InputError(
                    f"run folder {folder} exists: choose another --run, or go on with `graphstrap resume {folder}`"
                )

        info = {
            "format": FORMAT_VERSION,
            "id": secrets.token_hex(8),  # its checkpoints bear it
            "source": dict(source),
            "seed": seed,
            "device": device,
            "graph": describe_graph(graph) | describe_labels(graph, recipe),
            "warm_start": start is not None,
            "environment": describe_environment(),
            "git": describe_git(),
        }
        with files.os_errors(f"run folder {folder} cannot be made"):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with files.atomic_folder(folder, check=check) as temporary:
            (temporary / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
            (temporary / "run.json").write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
            if start is not None:
                save_tensors(temporary / START_FILE, start[0], kind="model", info=start[1])
        return cls(folder, info=info, recipe=recipe)

    @classmethod
    def open(cls, folder: Path) -> Run:
        if not folder.is_dir():
            raise InputError(f"there is no run folder {folder}: make one with `graphstrap fit SOURCE --run {folder}`")
        try:
            info = json.loads(files.read_text(folder / "run.json"))
            text = files.read_text(folder / "recipe.toml")
        except (ValueError, RecursionError) as error:
            raise InputError(f"{folder} is not a run folder, or is damaged: {error}") from error
        if not isinstance(info, dict) or not isinstance(info.get("format"), int):
            raise InputError(f"{folder}/run.json is not one that Graphstrap wrote")
        if info["format"] > FORMAT_VERSION:
            raise InputError(f"{folder} was made by a newer Graphstrap (format {info['format']}): upgrade to read it")
        for key, kind in (("source", dict), ("seed", int), ("device", str), ("graph", dict)):
            if not isinstance(info.get(key), kind):
                raise InputError(f"{folder}/run.json is damaged: {key!r} is missing or of the wrong kind")
        if not isinstance(info["graph"].get("fingerprint"), str):
            raise InputError(f"{folder}/run.json is damaged: the graph's fingerprint is missing")
        return cls(folder, info=info, recipe=parse_recipe(text, origin=str(folder / "recipe.toml")))

    @property
    def checkpoint_path(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def is_finished(self) -> bool:
        return (self.folder / MODEL_FILE).exists()

    @property
    def readable_model(self) -> str | None:
        """The file of its model; while it trains, that of what needs no training; None where there is neither."""
        return next((name for name in (MODEL_FILE, INSTANT_FILE) if (self.folder / name).exists()), None)

    @property
    def has_begun(self) -> bool:
        """Whether a step of it is saved or logged."""
        return self.checkpoint_path.exists() or bool(self.metrics())

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def checkpoint(self, module: nn.Module, optimizer: AdamW, step: int) -> None:
        """Save a step; the log is on the disk before it, since what comes later is logged again and this is not."""
        files.flush_lines(self.folder / "metrics.jsonl")
        info = {"step": step, "format": FORMAT_VERSION, "run": self.info.get("id")}
        write_checkpoint(self.checkpoint_path, module, optimizer, info=info)

    def saved_step(self) -> int:
        """The step of the last checkpoint; 0 where there is none, all steps where the model is there without one."""
        if self.checkpoint_path.exists():
            return self._check(read_info(self.checkpoint_path, kind="checkpoint"))
        return self.recipe.train.steps if self.is_finished else 0

    def saved_shapes(self) -> tuple[Path, dict[str, tuple[int, ...]]] | None:
        """The last checkpoint and the shapes of its model's tensors, if there is one."""
        if not self.checkpoint_path.exists():
            return None
        return self.checkpoint_path, module_shapes(self.checkpoint_path)

    def restore(self, module: nn.Module, optimizer: AdamW) -> int:
        """Load the last checkpoint, if there is one, forget metrics logged after it, and note where and when training
        goes on. Returns its step."""
        for left_over in self.folder.glob(".*.tmp*"):  # of a write that a power cut ended
            left_over.unlink(missing_ok=True)
        step = 0
        if self.checkpoint_path.exists():
            step = load_checkpoint(self.checkpoint_path, module, optimizer, check=self._check)
        records = [record for record in self.metrics() if record.get("step", 0) <= step]
        with files.atomic_write(self.folder / "metrics.jsonl") as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        if self._began:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            record = {"step": step, "time": now, "pid": os.getpid(), "host": socket.gethostname()}
            files.append_lines(self.folder / "restarts.jsonl", [record])
        self._began = True
        return step

    def _check(self, info: Mapping[str, Any]) -> int:
        """The step of a checkpoint, if it is one of this run's. Those of older versions bear no run."""
        step = info.get("step")
        if type(step) is not int or not 0 <= step <= self.recipe.train.steps:
            raise InputError(f"{self.checkpoint_path} is damaged (its step is {step!r}): delete it to start anew")
        if info.get("run") != self.info.get("id"):
            raise InputError(
                f"{self.checkpoint_path} is from another run: put this run's own one back, or delete it to start anew"
            )
        return step

    # ---- who trains, and when it went on -----------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Allow one training at a time in a folder; its holder may ask for the lock again."""
        if self._is_locked:
            yield
            return
        with files.lock_file(self.folder / LOCK_FILE, what=f"run folder {self.folder}"):
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def restarts(self) -> list[dict[str, Any]]:
        """One record for each time that training went on: `step`, `time`, `pid`, `host`."""
        records = files.read_lines(self.folder / "restarts.jsonl")
        return [record for record in records if type(record.get("step")) is int]

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def log(self, record: Mapping[str, Any]) -> None:
        files.append_lines(self.folder / "metrics.jsonl", [record])

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder)

    def last_logged(self, name: str) -> float | None:
        """A number as it was logged last; None where it never was, or the log is gone."""
        return next((float(one[name]) for one in reversed(self.metrics()) if name in one), None)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """What was logged: numbers and flags by name. Anything else in the file is damage, and left out."""
    records = [{k: v for k, v in one.items() if _is_number(v)} for one in files.read_lines(folder / "metrics.jsonl")]
    return [one for one in records if type(one.get("step", 0)) is int]


@contextmanager
def removed_if_refused(folder: Path | None, runs: Sequence[Run | None]) -> Iterator[None]:
    """Remove a new folder if the input turns out to be bad before any of its runs has taken a step, so that the same
    command, put right, finds its name free."""
    try:
        yield
    except InputError:
        if folder is not None and not any(run.has_begun for run in runs if run is not None):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def describe_graph(graph: Graph) -> dict[str, Any]:
    return {
        "name": graph.name,
        "fingerprint": graph.fingerprint,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": list(graph.num_features),
        "num_classes": graph.num_classes,
        "cleaning": asdict(graph.cleaning),
    }


def describe_labels(graph: Graph, recipe: Recipe) -> dict[str, Any]:
    """A hash of the labels, where they are learned from."""
    if not recipe.method_class.learns_labels or graph.labels is None:
        return {}
    tensors = [graph.labels] + ([] if graph.splits is None else [graph.splits.train])
    return {"labels": fingerprint_of([], np.array(graph.class_names or ()), tensors)}


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


# ---- named tensors in one safetensors file, and the checkpoint of a training: parameters and optimiser state ---------
#
# A file is written atomically, with its kind and a checksum, and read back with both checked. Nothing is unpickled; a
# truncated, damaged or foreign file gives an InputError.

_KEY = "graphstrap"
_ADVICE = "restore it from a copy, or fit again"


def save_tensors(path: Path, tensors: dict[str, Tensor], *, kind: str, info: dict[str, Any]) -> None:
    """Write all tensors and a JSON object, or nothing."""
    on_cpu = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One key, because safetensors writes several in an order that changes: the same tensors are to give the same bytes.
    metadata = {_KEY: json.dumps({"kind": kind, "info": info, "checksum": _checksum(on_cpu, info)})}
    with files.atomic_write(path) as temporary:
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
    files.check_readable(path)
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
