"""What the charts of training show: one series for each number that was logged, against steps and against time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphstrap.methods.bgrl import target_decay_at
from graphstrap.recipe import Recipe
from graphstrap.report.health import MIN_SPREAD

Records = Sequence[Mapping[str, Any]]

# name in the log, title, what a reader should know
_CHARTS = (
    ("loss", "Loss", "falls, then flattens"),
    ("effective_rank", "Effective rank", "directions in use; near 1 is collapse"),
    ("spread", "Spread", "0 means that all nodes are alike"),
    ("mean_norm", "Mean length", "of the embeddings; should not explode"),
    ("learning_rate", "Learning rate", "warm-up, then the schedule"),
    ("target_decay", "Target decay", "how slowly the target network follows"),
    ("accuracy", "Accuracy while training", "linear probe, protocol paper, one split, in %"),
)


def training_series(records: Records, recipe: Recipe) -> list[dict[str, Any]]:
    """One object a chart: name, title, hint, steps, seconds, values. Charts without two points are left out."""
    seconds = elapsed_seconds(records)
    rows = [dict(record) | _decay(record, recipe) for record in records]
    charts = []
    for name, title, hint in _CHARTS:
        points = [(row["step"], at, row[name]) for row, at in zip(rows, seconds, strict=True) if _is_number(row, name)]
        if len(points) < 2:
            continue
        steps, times, values = (list(column) for column in zip(*points, strict=True))
        chart: dict[str, Any] = {"name": name, "title": title, "hint": hint, "steps": steps, "values": values}
        chart["seconds"] = [round(at, 2) for at in times]
        if name == "spread":
            chart["floor"] = MIN_SPREAD
        charts.append(chart)
    return charts


def elapsed_seconds(records: Records) -> list[float]:
    """Training time at each record, added up from the speeds that were logged; pauses between sessions do not count."""
    total, before, times = 0.0, 0, []
    for record in records:
        step, speed = int(record.get("step", before)), record.get("steps_per_second") or 0.0
        if speed > 0:
            total += (step - before) / speed
        before = step
        times.append(total)
    return times


def _decay(record: Mapping[str, Any], recipe: Recipe) -> dict[str, float]:
    if recipe.method.name != "bgrl" or "step" not in record:
        return {}
    decay = target_decay_at(record["step"], base=recipe.method.target_decay, total_steps=recipe.train.steps)
    return {"target_decay": float(decay)}


def _is_number(row: Mapping[str, Any], name: str) -> bool:
    value = row.get(name)
    return "step" in row and isinstance(value, int | float) and math.isfinite(value)
