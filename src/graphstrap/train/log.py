"""The log of one model's training: numbers are noted on the device and read one note later, so that a GPU never
waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.ops.adamw import AdamW

# Signs of collapse: how far embeddings spread, how long they are, how many directions they use.
#
# In two halves, so that a GPU never waits: `embedding_moments` is a few small tensors made where the embeddings are,
# `describe_moments` turns them into numbers on the CPU, later.


@torch.no_grad()
def embedding_moments(h: Tensor) -> tuple[Tensor, Tensor]:
    """Mean norm (), and covariance (D, D) over nodes."""
    h = h.float()
    centred = h - h.mean(0)
    return h.norm(dim=1).mean(), centred.T @ centred / len(h)


def describe_moments(mean_norm: Tensor, covariance: Tensor) -> dict[str, float]:
    """`spread`: standard deviation over nodes divided by the mean norm (0 when all nodes are alike); `mean_norm`;
    `effective_rank`: exp of the entropy of the normalised singular values (Roy and Vetterli, 2007), from 1 to D."""
    length, covariance = mean_norm.double(), covariance.double()
    deviation = covariance.trace().sqrt()
    with _one_thread():
        singular = torch.linalg.eigvalsh(covariance).clamp(min=0).sqrt()
    share = singular / singular.sum().clamp(min=1e-12)
    entropy = -(share * share.clamp(min=1e-12).log()).sum()
    values = torch.stack([deviation / length.clamp(min=1e-12), length, entropy.exp()]).tolist()
    return dict(zip(("spread", "mean_norm", "effective_rank"), values, strict=True))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small take twice the time on two threads, and many times on sixteen."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def monitor_embeddings(h: Tensor) -> dict[str, float]:
    """Both halves at once."""
    return describe_moments(*embedding_moments(h))


# Mirrors: places besides the run folder that metrics are sent to while training, TensorBoard and MLflow.
#
# A mirror is called with every record that the log writes down. Each needs its own package, which is imported when it
# is asked for.


Mirror = Callable[[Mapping[str, Any]], None]


def make_mirrors(names: Iterable[str]) -> list[Mirror]:
    """`tensorboard:FOLDER` and `mlflow` (or `mlflow:EXPERIMENT`, where MLFLOW_TRACKING_URI says) to mirrors."""
    return [_make(name) for name in names]


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """What can be drawn of a record: all finite numbers but the step."""
    return {
        name: float(value)
        for name, value in record.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _make(name: str) -> Mirror:
    kind, _, rest = name.partition(":")
    if kind == "tensorboard" and rest:
        return _tensorboard(rest)
    if kind == "mlflow":
        return _mlflow(rest)
    raise InputError(f"metrics can be sent to tensorboard:FOLDER, mlflow or mlflow:EXPERIMENT, got {name!r}")


def _tensorboard(folder: str) -> Mirror:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("TensorBoard is not installed: pip install tensorboard") from error
    writer = SummaryWriter(folder)

    def send(record: Mapping[str, Any]) -> None:
        for name, value in numbers_of(record).items():
            writer.add_scalar(name, value, record["step"])
        writer.flush()

    return send


def _mlflow(experiment: str) -> Mirror:
    try:
        import mlflow
    except ImportError as error:
        raise InputError("MLflow is not installed: pip install mlflow") from error
    try:
        if experiment:
            mlflow.set_experiment(experiment)
        if mlflow.active_run() is None:
            mlflow.start_run()
    except mlflow.MlflowException as error:
        raise InputError(f"MLflow cannot be used, set MLFLOW_TRACKING_URI: {error}") from error

    def send(record: Mapping[str, Any]) -> None:
        mlflow.log_metrics(numbers_of(record), step=record["step"])

    return send


class Journal(Protocol):
    """What a run folder does for training."""

    def locked(self) -> AbstractContextManager[None]: ...

    def restore(self, module: nn.Module, optimizer: AdamW) -> int: ...

    def checkpoint(self, module: nn.Module, optimizer: AdamW, step: int) -> None: ...

    def log(self, record: Mapping[str, Any]) -> None: ...


class Clock:
    """Seconds of training; models that train side by side have one clock."""

    def __init__(self) -> None:
        self._left_out = 0.0

    def now(self) -> float:
        return time.monotonic() - self._left_out

    @contextmanager
    def stopped(self, after: Tensor) -> Iterator[None]:
        """What is not training: it begins when this tensor is computed."""
        if after.is_cuda:
            torch.cuda.synchronize(after.device)
        begin = time.monotonic()
        yield
        self._left_out += time.monotonic() - begin


class Log:
    """Metrics of this session, and the clock that says how old the last checkpoint is."""

    def __init__(
        self,
        run: Journal | None,
        *,
        start: int,
        check: Callable[[float, int], None],
        clock: Clock,
        mirrors: Sequence[Mirror] = (),
    ) -> None:
        self.records: list[dict[str, Any]] = []
        self.speed, self.loss = 0.0, float("nan")
        self._run, self._check, self._clock, self._mirrors = run, check, clock, mirrors
        self._last_step, self._last_time = start, clock.now()
        self._last_save = time.monotonic()
        self._waiting: _Note | None = None

    @property
    def seconds_since_save(self) -> float:
        return time.monotonic() - self._last_save

    def saved(self) -> None:
        self._last_save = time.monotonic()

    def note(self, step: int, loss: Tensor, stats: dict[str, Tensor], extra: dict[str, float]) -> None:
        """Take the numbers of a step; the ones noted before are read now, for they have arrived."""
        moments = embedding_moments(stats["embedding"]) if "embedding" in stats else ()
        note = _Note(step, extra, [loss.detach(), *moments], time=self._clock.now())
        self.settle()
        self._waiting = note
        if not loss.is_cuda:
            self.settle()

    def check(self, loss: float, step: int) -> None:
        """Stop where the loss is no number any more; the run folder says so."""
        if not math.isfinite(loss) and self._run is not None:
            self._run.log({"step": step, "diverged": True})
        self._check(loss, step)

    def settle(self) -> None:
        """Read and write down what waits."""
        note, self._waiting = self._waiting, None
        if note is None:
            return
        loss, *moments = note.read()
        self.loss = float(loss)
        self.check(self.loss, note.step)
        self.speed = (note.step - self._last_step) / max(1e-9, note.time - self._last_time)
        self._last_step, self._last_time = note.step, note.time
        record: dict[str, Any] = {"step": note.step, "loss": self.loss}
        if moments:
            record |= describe_moments(*moments)
        record |= note.extra
        record["steps_per_second"] = round(self.speed, 3)
        self.records.append(record)
        if self._run is not None:
            self._run.log(record)
        for mirror in self._mirrors:
            mirror(record)


class _Note:
    """Numbers on their way from the device."""

    def __init__(self, step: int, extra: dict[str, float], tensors: list[Tensor], *, time: float) -> None:
        self.step, self.extra, self.time = step, extra, time
        self._arrived: torch.cuda.Event | None = None
        if tensors[0].is_cuda:
            self._tensors = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
            for ours, theirs in zip(self._tensors, tensors, strict=True):
                ours.copy_(theirs, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()
        else:
            self._tensors = tensors

    def read(self) -> list[Tensor]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensors
