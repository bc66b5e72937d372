"""What the charts of training show: one series for each number that was logged, against steps and against time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphstrap.nn.methods.bgrl import target_decay_at
from graphstrap.report.health import MIN_SPREAD, Finding, Health
from graphstrap.run.recipe import Recipe

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


# Several seeds in one report: one verdict over all of them, curves with their spread, a row for each seed.


Chart = dict[str, Any]


def join_health(found: Mapping[int, Health], praise: str) -> Health:
    """The worst of the verdicts; each kind of finding once, with the seeds that have it. `praise` if there is none."""
    if len(found) == 1:
        return next(iter(found.values()))
    kinds: dict[str, list[tuple[int, Finding]]] = {}
    for seed, health in found.items():
        for finding in health.findings:
            kinds.setdefault(finding.kind, []).append((seed, finding))
    if not kinds:
        return Health("healthy", praise, ())
    findings = [_of_seeds(ones) for ones in kinds.values()]
    findings.sort(key=lambda one: one.severity != "bad")
    num_sick = sum(health.verdict != "healthy" for health in found.values())
    count = f"{num_sick} of {len(found)} seeds" if num_sick < len(found) else f"All {len(found)} seeds"
    headline = f"{count} {'needs' if num_sick == 1 else 'need'} a closer look. {findings[0].text}"
    return Health(findings[0].severity, headline, tuple(findings))


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
        chart = {**first, "steps": steps, "seconds": [round(_mean(one), 2) for one in zip(*seconds, strict=True)]}
        if low == high:  # such as the learning rate
            joined.append({**chart, "values": low})
        else:
            means = [_mean(column) for column in zip(*values, strict=True)]
            joined.append({**chart, "values": means, "low": low, "high": high})
    return joined


def mean_records(by_seed: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The logs of several seeds as one: the mean of every number, at the steps that all of them have logged."""
    if len(by_seed) == 1:
        return [dict(record) for record in by_seed[0]]
    logs = [{record["step"]: record for record in records if "step" in record} for records in by_seed]
    steps = sorted(set.intersection(*(set(log) for log in logs)))
    return [{**_means([log[step] for log in logs]), "step": step} for step in steps]


def _means(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [name for name, value in records[0].items() if isinstance(value, float)]
    shared = [name for name in names if all(isinstance(record.get(name), float) for record in records)]
    return {name: _mean([record[name] for record in records]) for name in shared}


def _of_seeds(ones: Sequence[tuple[int, Finding]]) -> Finding:
    seeds, finding = [str(seed) for seed, _ in ones], ones[0][1]
    named = f"Seed {seeds[0]}" if len(seeds) == 1 else f"Seeds {', '.join(seeds[:-1])} and {seeds[-1]}"
    example = "" if len(seeds) == 1 else f" (figures of seed {seeds[0]})"
    return Finding(finding.kind, finding.severity, f"{named}{example}: {finding.text}", finding.advice)


def _at(chart: Chart, name: str, steps: Sequence[int]) -> list[float]:
    values = dict(zip(chart["steps"], chart[name], strict=True))
    return [values[step] for step in steps]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
