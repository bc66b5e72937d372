"""MAG240M's figures as a table and as curves, from what the ledger holds; synthetic graphs are always called so."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphstrap_lab.reproduce.compare import difference_text
from graphstrap_lab.reproduce.ledger import Ledger, Row, of_one_graph
from graphstrap_lab.reproduce.mag_cells import STEPS, SYNTHETIC_STEPS, is_synthetic, mag_settings
from graphstrap_lab.reproduce.render import Grid, Report, computed_on
from graphstrap_lab.reproduce.tables import Table
from graphstrap_lab.reproduce.variants import VARIANTS

LEGEND = (
    "Accuracy on validation papers in %, at the last step: mean ± standard deviation over seeds (number of seeds), and "
    "the highest of the course. The difference is to the first row, seed by seed; ! by a paired t-test at 1 %. "
    f"Ours are of {STEPS:,} steps on MAG240M, where it is at hand, and of {SYNTHETIC_STEPS:,} on synthetic graphs, "
    "where an MPNN is smaller."
)
IN_THE_PAPER = {
    "mag-auxiliary": "(5 seeds, 50,000 steps): BGRL helps much, GRACE with 256 negatives less",
    "mag-unlabelled": "(5 seeds, 500,000 steps): the more unlabelled papers, the better, up to 73.89 with 10",
    "mag-projector": "(5 seeds): with a projector it learns more slowly and ends lower",
    "mag-gcn": "(3 seeds): both help, and BGRL learns faster and more steadily than GRACE",
    "mag-frozen": "(5 seeds): GRACE is above BGRL, and label propagation above both",
}
ABSENT = (
    "mag240m was not at hand, so its cells are empty: unpack OGB-LSC's folder and make a store of it in the folder "
    "$GRAPHSTRAP_DATA, `graphstrap prepare --ogb mag240m_kddcup2021 --pca 128 --feature-dtype fp16 --to mag240m.store`."
)
SYNTHETIC = "mag-like graphs are synthetic (docs/generated.md): they say whether training finds what was planted."


def report_mag(
    table: Table, ledger: Ledger, *, variants: Sequence[str], datasets: Sequence[str], quick: bool
) -> Report:
    from graphstrap_lab.reproduce.plots import plot_courses

    rows = {(d, v): find_mag(ledger, v, d, quick=quick) for d in datasets for v in variants}
    found = [row for own in rows.values() for row in own]
    grids = [_grid(dataset, {v: rows[dataset, v] for v in variants}) for dataset in datasets]
    courses = {
        (graph_title(d), VARIANTS[v].title): [row.get("curve") or _point(row) for row in own if row.get("accuracy")]
        for (d, v), own in rows.items()
    }
    courses = {key: own for key, own in courses.items() if own}
    notes = [
        f"{LEGEND} The paper draws its curves {IN_THE_PAPER[table.name]}.",
        *([SYNTHETIC] if any(map(is_synthetic, datasets)) else []),
    ]
    if "mag240m" in datasets and not any(row["dataset"] == "mag240m" for row in found):
        notes.append(ABSENT)
    notes += [computed_on(found)] if found else []
    draw = (lambda path: plot_courses(courses, path, measure="accuracy on validation papers, %")) if courses else None
    return Report(table, quick, grids, notes, _to_csv(rows), draw)


def find_mag(ledger: Ledger, variant: str, dataset: str, *, quick: bool) -> list[Row]:
    settings = mag_settings(variant, dataset, quick)
    return of_one_graph(ledger.find(dataset=dataset, variant=variant, settings=settings))


def graph_title(dataset: str) -> str:
    return f"{dataset} (synthetic)" if is_synthetic(dataset) else dataset


def _grid(dataset: str, rows: Mapping[str, Sequence[Row]]) -> Grid:
    first = next(iter(rows))
    absent = "not computed" if is_synthetic(dataset) or any(rows.values()) else "no data here"
    lines = [
        [VARIANTS[v].title, *_texts(own, rows[first] if v != first else [], absent=absent)] for v, own in rows.items()
    ]
    header = ["method", "accuracy", "highest", "difference", "seconds a seed"]
    return Grid(f"{graph_title(dataset)}, validation papers", header, lines)


def _texts(rows: Sequence[Row], others: Sequence[Row], *, absent: str) -> list[str]:
    values = {row["seed"]: row["accuracy"]["validation"] for row in rows if row.get("accuracy")}
    if not values:
        return [next((row["oom"] for row in rows if row.get("oom")), absent), "", "", ""]
    numbers = list(values.values())
    spread = f" ± {np.std(numbers, ddof=1):.2f}" if len(numbers) > 1 else ""
    highest = [row["best"] for row in rows if "best" in row]
    theirs = {row["seed"]: row["accuracy"]["validation"] for row in others if row.get("accuracy")}
    differences = [values[seed] - theirs[seed] for seed in values if seed in theirs]
    return [
        f"{np.mean(numbers):.2f}{spread} ({len(numbers)})",
        f"{np.mean(highest):.2f}" if highest else "",
        difference_text(differences) if differences else "",
        f"{np.mean([row['train_seconds'] for row in rows if 'train_seconds' in row]):.0f}",
    ]


def _point(row: Row) -> dict[str, Any]:
    """Of a row without a course: the whole width of the picture at its height."""
    value = row["accuracy"]["validation"]
    return {"step": [0, 1], "accuracy": [value, value]}


def _to_csv(rows: Mapping[tuple[str, str], Sequence[Row]]) -> str:
    """One line a point."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["dataset", "synthetic", "method", "seed", "step", "validation_accuracy"])
    for (dataset, variant), own in rows.items():
        for row in (row for row in own if row.get("accuracy")):
            curve = row.get("curve") or {"step": [""], "accuracy": [row["accuracy"]["validation"]]}
            about = (dataset, is_synthetic(dataset), variant, row["seed"])
            writer.writerows([*about, *point] for point in zip(curve["step"], curve["accuracy"], strict=True))
    return buffer.getvalue()
