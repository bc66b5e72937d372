"""Learning curves as a table and as a picture, from what the ledger holds."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np

from graphstrap_lab.reproduce.learning import learning_settings
from graphstrap_lab.reproduce.ledger import Ledger, Row, of_one_graph
from graphstrap_lab.reproduce.render import Grid, Report, absent_notes, computed_on
from graphstrap_lab.reproduce.tables import SELDOM_AT_HAND, Table
from graphstrap_lab.reproduce.variants import VARIANTS, name_in_ledger

LEGEND = (
    "What a linear probe makes of the embeddings, in %, after so much of the training: mean over seeds, at the end "
    "± standard deviation (number of seeds). The paper draws its curves, of PPI over 20 seeds, as a picture alone: a "
    "GAT trained by BGRL ends highest, and subsampling the negatives of GRACE costs accuracy."
)
_PARTS = {"a tenth": 0.1, "a quarter": 0.25, "half": 0.5}


def report_learning(
    table: Table, ledger: Ledger, *, variants: Sequence[str], datasets: Sequence[str], quick: bool
) -> Report:
    from graphstrap_lab.reproduce.plots import plot_courses

    rows = {(d, v): find_learning(ledger, v, d, quick=quick) for d in datasets for v in variants}
    found = [row for own in rows.values() for row in own]
    lines = [[d, VARIANTS[v].title, *_texts(d, own)] for (d, v), own in rows.items()]
    header = ["graph", "method", *_PARTS, "all", "highest", "measure", "seconds a seed"]
    courses = {(d, VARIANTS[v].title): [row["curve"] for row in own if "curve" in row] for (d, v), own in rows.items()}
    courses = {key: own for key, own in courses.items() if own}
    notes = [LEGEND, *absent_notes(found, datasets), *([computed_on(found)] if found else [])]
    draw = (lambda path: plot_courses(courses, path, measure="linear probe, %")) if courses else None
    return Report(table, quick, [Grid("Linear probe during training", header, lines)], notes, _to_csv(rows), draw)


def find_learning(ledger: Ledger, variant: str, dataset: str, *, quick: bool) -> list[Row]:
    settings = learning_settings(variant, dataset, quick)
    return of_one_graph(ledger.find(dataset=dataset, variant=name_in_ledger(variant), settings=settings))


def _texts(dataset: str, rows: Sequence[Row]) -> list[str]:
    shown = [row for row in rows if "curve" in row]
    if not shown:
        absent = "no data here" if dataset in SELDOM_AT_HAND and not rows else "not computed"
        return [next((row["oom"] for row in rows if row.get("oom")), absent), *([""] * (len(_PARTS) + 3))]
    steps, values = shown[0]["curve"]["step"], np.array([row["curve"]["accuracy"] for row in shown])
    means = values.mean(axis=0)
    at = [int(np.argmin(np.abs(np.array(steps) / steps[-1] - part))) for part in _PARTS.values()]
    spread = f" ± {values[:, -1].std(ddof=1):.2f}" if len(shown) > 1 else ""
    return [
        *(f"{means[place]:.2f}" for place in at),
        f"{means[-1]:.2f}{spread} ({len(shown)})",
        f"{means.max():.2f}",
        shown[0]["metric"],
        f"{np.mean([row['train_seconds'] for row in shown]):.0f}",
    ]


def _to_csv(rows: Mapping[tuple[str, str], Sequence[Row]]) -> str:
    """One line a point."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["dataset", "method", "seed", "measure", "step", "value"])
    for (dataset, variant), own in rows.items():
        for row in (row for row in own if "curve" in row):
            points = zip(row["curve"]["step"], row["curve"]["accuracy"], strict=True)
            writer.writerows([dataset, variant, row["seed"], row["metric"], *point] for point in points)
    return buffer.getvalue()
