"""Mirrors: places besides the run folder that metrics are sent to while training, TensorBoard and MLflow.

A mirror is called with every record that the log writes down. Each needs its own package, which is imported when it is
asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphstrap.errors import InputError

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
    if experiment:
        mlflow.set_experiment(experiment)

    def send(record: Mapping[str, Any]) -> None:
        mlflow.log_metrics(numbers_of(record), step=record["step"])

    return send
