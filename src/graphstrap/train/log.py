"""The metrics of one model's training: what is measured, where it is written, and how fast training is.

Numbers are noted on the device and read one note later, so that a GPU never waits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from graphstrap.errors import DivergedError, InputError
from graphstrap.io.registry import import_extra
from graphstrap.ops.adamw import AdamW

MetricsSink = Callable[[Mapping[str, Any]], None]
"""Called with every record that is logged, to send it somewhere besides the run folder."""


class RunFolder(Protocol):
    """What training asks of a run folder."""

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
        """Leave out what runs inside, from the moment that this tensor is computed."""
        if after.is_cuda:
            torch.cuda.synchronize(after.device)
        begin = time.monotonic()
        yield
        self._left_out += time.monotonic() - begin


class MetricsLog:
    """The records of this session, each also written to the run folder and sent to the sinks."""

    def __init__(self, run: RunFolder | None, *, start: int, clock: Clock, sinks: Sequence[MetricsSink] = ()) -> None:
        self.records: list[dict[str, Any]] = []
        self.speed, self.loss = 0.0, float("nan")
        self._run, self._clock, self._sinks = run, clock, sinks
        self._last_step, self._last_time = start, clock.now()
        self._waiting: _Note | None = None

    def note(self, step: int, loss: Tensor, stats: dict[str, Tensor], values: dict[str, float]) -> None:
        """Take the numbers of a step, and write those noted before, which have arrived by now."""
        moments = embedding_moments(stats["embedding"]) if "embedding" in stats else ()
        note = _Note(step, values, [loss.detach(), *moments], time=self._clock.now())
        self.flush()
        self._waiting = note
        if not loss.is_cuda:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
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
        record |= note.values
        record["steps_per_second"] = round(self.speed, 3)
        self.records.append(record)
        if self._run is not None:
            self._run.log(record)
        for send in self._sinks:
            send(record)

    def check(self, loss: float, step: int) -> None:
        """Stop where the loss is no number any more; the run folder says so."""
        if math.isfinite(loss):
            return
        if self._run is not None:
            self._run.log({"step": step, "diverged": True})
        raise DivergedError(
            f"the loss became {loss} by step {step}: try a lower train.learning_rate or encoder.norm=batch; "
            "the last checkpoint, if any, is from before"
        )


class _Note:
    """Numbers on their way from the device."""

    def __init__(self, step: int, values: dict[str, float], tensors: list[Tensor], *, time: float) -> None:
        self.step, self.values, self.time, self._tensors = step, values, time, tensors
        self._arrived: torch.cuda.Event | None = None
        if tensors[0].is_cuda:
            self._tensors = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
            for ours, theirs in zip(self._tensors, tensors, strict=True):
                ours.copy_(theirs, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def read(self) -> list[Tensor]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensors


# ---- signs of collapse: how far embeddings spread, how long they are, how many directions they use -------------------


@torch.no_grad()
def embedding_moments(h: Tensor) -> tuple[Tensor, Tensor]:
    """Mean norm (), and covariance (D, D) over nodes: a few small tensors, where the embeddings are."""
    h = h.float()
    centred = h - h.mean(0)
    return h.norm(dim=1).mean(), centred.T @ centred / len(h)


def describe_moments(mean_norm: Tensor, covariance: Tensor) -> dict[str, float]:
    """`spread`: standard deviation over nodes divided by the mean norm (0 when all nodes are alike); `mean_norm`;
    `effective_rank`: exp of the entropy of the normalised singular values (Roy and Vetterli, 2007), from 1 to D."""
    length, covariance = mean_norm.double(), covariance.double()
    deviation = covariance.trace().sqrt()
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices this small take twice the time on two threads, and many times on sixteen
    try:
        singular = torch.linalg.eigvalsh(covariance).clamp(min=0).sqrt()
    finally:
        torch.set_num_threads(num_threads)
    share = singular / singular.sum().clamp(min=1e-12)
    entropy = -(share * share.clamp(min=1e-12).log()).sum()
    values = torch.stack([deviation / length.clamp(min=1e-12), length, entropy.exp()]).tolist()
    return dict(zip(("spread", "mean_norm", "effective_rank"), values, strict=True))


# ---- sinks: TensorBoard and MLflow, each imported when it is asked for -----------------------------------------------


def make_sinks(names: Iterable[str]) -> list[MetricsSink]:
    """Sinks from `tensorboard:FOLDER` and `mlflow` (or `mlflow:EXPERIMENT`, where MLFLOW_TRACKING_URI says)."""
    sinks = []
    for name in names:
        kind, _, rest = name.partition(":")
        if kind == "tensorboard" and rest:
            sinks.append(_tensorboard(rest))
        elif kind == "mlflow":
            sinks.append(_mlflow(rest))
        else:
            raise InputError(f"metrics can be sent to tensorboard:FOLDER, mlflow or mlflow:EXPERIMENT, got {name!r}")
    return sinks


def finite_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """What can be drawn of a record: all finite numbers but the step."""
    return {
        name: float(value)
        for name, value in record.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _tensorboard(folder: str) -> MetricsSink:
    tensorboard = import_extra("torch.utils.tensorboard", "TensorBoard is not installed: pip install tensorboard")
    writer = tensorboard.SummaryWriter(folder)

    def send(record: Mapping[str, Any]) -> None:
        for name, value in finite_numbers(record).items():
            writer.add_scalar(name, value, record["step"])
        writer.flush()

    return send


def _mlflow(experiment: str) -> MetricsSink:
    mlflow = import_extra("mlflow", "MLflow is not installed: pip install mlflow")
    try:
        if experiment:
            mlflow.set_experiment(experiment)
        if mlflow.active_run() is None:
            mlflow.start_run()
    except mlflow.MlflowException as error:
        raise InputError(f"MLflow cannot be used, set MLFLOW_TRACKING_URI: {error}") from error

    def send(record: Mapping[str, Any]) -> None:
        mlflow.log_metrics(finite_numbers(record), step=record["step"])

    return send
