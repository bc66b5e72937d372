"""The figures at the top of the page: of the run, and of every seed where there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphstrap.report.health import Health
from graphstrap.report.page import METRICS, VERDICTS, count, escape, table
from graphstrap.report.scores import Scores
from graphstrap.report.series import elapsed_seconds
from graphstrap.run.folder import Run

Logs = Mapping[int, list[dict[str, Any]]]  # what each seed's training logged


def tiles(run: Run, logs: Logs, scores: Scores | None) -> str:
    """The figures one wants first; over seeds their mean."""
    graph, lasts = run.info["graph"], [records[-1] if records else {} for records in logs.values()]
    figures = {"nodes": count(graph.get("num_nodes")), "directed edges": count(graph.get("num_edges"))}
    if len(logs) > 1:
        figures["seeds"] = str(len(logs))
    figures["steps"] = f"{max(last.get('step', 0) for last in lasts):,}"
    times = [elapsed_seconds(records) for records in logs.values()]
    figures["training time"] = _duration(max((time[-1] for time in times if time), default=0.0))
    losses, ranks = _finals(lasts, "loss"), _finals(lasts, "effective_rank")
    if losses:
        figures["final loss"] = f"{np.mean(losses):.3f}"
    if ranks:
        figures["effective rank"] = f"{np.mean(ranks):.0f} of {run.recipe.encoder.embedding_size}"
    if scores is not None and scores.tables:
        best = list(next(iter(scores.tables.values())).values())[-1]
        figures[f"{METRICS.get(best.metric, best.metric)}, {best.protocol}"] = f"{best.mean:.1f} %"
    cells = (f"<div><dd>{escape(value)}</dd><dt>{escape(name)}</dt></div>" for name, value in figures.items())
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def seed_table(logs: Logs, healths: Mapping[int, Health], scores: Scores | None, score_of: Mapping[int, float]) -> str:
    """A row for each seed: its verdict, where its training ended, its score by the first protocol."""
    first = next(iter(scores.tables.values())) if scores is not None and score_of else {}
    metric = next((f"{METRICS.get(one.metric, one.metric)}, {one.protocol}, %" for one in first.values()), "")
    rows = []
    for seed, records in logs.items():
        last = records[-1] if records else {}
        pill = (
            f'<span class="{healths[seed].verdict}"><span class="pill">{VERDICTS[healths[seed].verdict]}</span></span>'
        )
        figures = [_figure(last.get("loss")), _figure(last.get("effective_rank"), digits=1)]
        figures += [_figure(last.get("spread"), digits=2), _figure(last.get("mean_norm"), digits=1)]
        rows.append([str(seed), pill, *figures, *([_figure(score_of.get(seed), digits=1)] if metric else [])])
    header = [
        "seed",
        "",
        "final loss",
        "effective rank",
        "spread",
        "mean length",
        *([escape(metric)] if metric else []),
    ]
    return f'<div class="scroll">{table(header, rows, css_class="seeds")}</div>'


def _finals(lasts: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [last[name] for last in lasts if isinstance(last.get(name), float)]


def _figure(value: Any, *, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else "–"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
