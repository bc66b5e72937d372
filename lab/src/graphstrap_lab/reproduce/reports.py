"""A table or figure, computed where the ledger lacks it, and shown: which functions do this depends on its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphstrap_lab.reproduce.compare import compare_rows
from graphstrap_lab.reproduce.curves import NAMES, Curve, curves_to_csv, mean_curve
from graphstrap_lab.reproduce.entropies import ENTROPIES
from graphstrap_lab.reproduce.entropies_report import report_entropies
from graphstrap_lab.reproduce.learning import LEARNING
from graphstrap_lab.reproduce.learning_report import report_learning
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.mag_cells import MAG
from graphstrap_lab.reproduce.mag_report import report_mag
from graphstrap_lab.reproduce.peaks import fill_peaks
from graphstrap_lab.reproduce.peaks_report import report_peaks
from graphstrap_lab.reproduce.render import Grid, Report, absent_notes, computed_on, report_accuracies
from graphstrap_lab.reproduce.run import Filling, fill_ledger
from graphstrap_lab.reproduce.tables import Table, find_rows
from graphstrap_lab.reproduce.variants import VARIANTS

_TITLES = [name.replace("_", " ") for name in NAMES]
_WORK = {"entropy": ENTROPIES, "learning": LEARNING, "mag": MAG}  # of the kinds whose cells are no accuracies
_CURVES_LEGEND = (
    "Mean over the first seeds; spread is the standard deviation over nodes divided by the mean norm, 0 after a "
    "collapse. The paper prints its curves (figures 6 to 8) as pictures alone: the loss does not reach 0, the spread "
    "stays of the order of 1, and norms neither vanish nor grow without bound."
)


def fill(
    table: Table,
    ledger: Ledger,
    how: Filling,
    *,
    variants: Sequence[str],
    datasets: Sequence[str],
    num_seeds: int | None = None,
) -> None:
    """Compute what the ledger lacks."""
    if table.kind == "memory":
        if how.workers.is_first:  # what is measured is to have the device for itself
            fill_peaks(ledger, how, variants=variants, datasets=datasets)
    else:
        work = _WORK.get(table.kind)
        fill_ledger(table, ledger, how, variants=variants, datasets=datasets, num_seeds=num_seeds, work=work)


def make_report(
    table: Table,
    ledger: Ledger,
    *,
    variants: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    quick: bool = False,
    device: str = "cpu",
    memory_limit: int | None = None,
) -> Report:
    """What the ledger holds of a table; of table 1, what was measured on this kind of device, "cpu" or "cuda"."""
    variants, datasets = variants or table.variants, datasets or table.datasets
    limits: dict[str, Any] = {"memory_limit": memory_limit, "quick": quick}
    if table.kind == "memory":
        return report_peaks(table, ledger, variants=variants, datasets=datasets, device=device, **limits)
    if table.kind == "entropy":
        return report_entropies(table, ledger, variants=variants, datasets=datasets, quick=quick)
    if table.kind == "learning":
        return report_learning(table, ledger, variants=variants, datasets=datasets, quick=quick)
    if table.kind == "mag":
        return report_mag(table, ledger, variants=variants, datasets=datasets, quick=quick)
    if table.kind == "curves":
        return _report_curves(table, ledger, variants=variants, datasets=datasets, quick=quick)
    report = report_accuracies(table, ledger, variants=variants, datasets=datasets, **limits)
    if table.name == "projector":
        grid = compare_rows(ledger, "bgrl-projector", "bgrl", datasets=datasets, quick=quick)
        return replace(report, grids=[*report.grids, grid])
    return report


def _report_curves(
    table: Table, ledger: Ledger, *, variants: Sequence[str], datasets: Sequence[str], quick: bool
) -> Report:
    from graphstrap_lab.reproduce.plots import plot_curves

    rows = {(d, v): find_rows(ledger, v, d, quick=quick) for d in datasets for v in variants}
    curves = {key: curve for key, own in rows.items() if (curve := mean_curve(own)) is not None}
    shown = [row for key in curves for row in rows[key] if row.get("curve")]
    lines = [[d, VARIANTS[v].title, *_course(curves.get((d, v)))] for d, v in rows]
    grid = Grid("At the first step, half way and at the last", ["graph", "method", *_TITLES], lines)
    notes = [_CURVES_LEGEND, *absent_notes(shown, datasets), *([computed_on(shown)] if shown else [])]
    draw = (lambda path: plot_curves(curves, path)) if curves else None
    return Report(table, quick, [grid], notes, curves_to_csv(curves), draw)


def _course(curve: Curve | None) -> list[str]:
    """`1.02, 0.31, 0.28` for each of the quantities."""
    if curve is None:
        return ["not computed", *([""] * (len(NAMES) - 1))]
    places = (0, len(curve["step"]) // 2, -1)
    return [", ".join(f"{curve[name][place]:.3g}" for place in places) if name in curve else "" for name in NAMES]
