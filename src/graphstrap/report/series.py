"""What the charts of training show: one series for each number that was logged, against steps and against time; of
several seeds, the mean and the spread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from graphstrap.report.health import MIN_SPREAD, Records, is_finite, mean
from graphstrap.run.recipe import Recipe

Chart = dict[str, Any]

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


def training_series(records: Records, recipe: Recipe) -> list[Chart]:
    """One object a chart: name, title, hint, steps, seconds, values. Charts without two points are left out."""
    seconds = elapsed_seconds(records)
    scheduled = partial(recipe.method_class.scheduled, recipe.method, total_steps=recipe.train.steps)
    stepped = [{**record, **scheduled(step=record["step"])} if "step" in record else {} for record in records]
    charts = []
    for name, title, hint in _CHARTS:
        logged = [(one, at) for one, at in zip(stepped, seconds, strict=True) if is_finite(one.get(name))]
        points = [(one["step"], at, one[name]) for one, at in logged]
        if len(points) < 2:
            continue
        steps, times, values = (list(column) for column in zip(*points, strict=True))
        chart: Chart = {"name": name, "title": title, "hint": hint, "steps": steps, "values": values}
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


def join_charts(by_seed: Sequence[Sequence[Chart]]) -> list[Chart]:
    """The mean of each chart over seeds, at the steps that all have logged; `low` and `high` where they differ."""
    if len(by_seed) == 1:
        return list(by_seed[0])
    joined = []
    for first in by_seed[0]:
        same = [chart for charts in by_seed for chart in charts if chart["name"] == first["name"]]
        steps = sorted(set.intersection(*(set(chart["steps"]) for chart in same)))
        if len(same) < len(by_seed) or len(steps) < 2:
            continue
        values, seconds = ([_at(chart, name, steps) for chart in same] for name in ("values", "seconds"))
        low, high = ([pick(column) for column in zip(*values, strict=True)] for pick in (min, max))
        chart = {**first, "steps": steps, "seconds": [round(mean(one), 2) for one in zip(*seconds, strict=True)]}
        if low == high:  # such as the learning rate
            joined.append({**chart, "values": low})
        else:
            means = [mean(column) for column in zip(*values, strict=True)]
            joined.append({**chart, "values": means, "low": low, "high": high})
    return joined


def _at(chart: Chart, name: str, steps: Sequence[int]) -> list[float]:
    values = dict(zip(chart["steps"], chart[name], strict=True))
    return [values[step] for step in steps]
