"""Several seeds in one report: one verdict over all of them, curves with their spread, a row for each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphstrap.report.health import Finding, Health

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
