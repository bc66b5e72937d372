"""A table or figure, computed where the ledger lacks it, and shown: which functions do this depends on its kind."""

from __future__ import annotations

from collections.abc import Sequence

from graphstrap_lab.reproduce.accuracies import report_accuracies, report_curves
from graphstrap_lab.reproduce.cells import Filling
from graphstrap_lab.reproduce.entropies import ENTROPIES, report_entropies
from graphstrap_lab.reproduce.learning import LEARNING, report_learning
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.mag import MAG, report_mag
from graphstrap_lab.reproduce.peaks import fill_peaks, report_peaks
from graphstrap_lab.reproduce.render import Asked, Report
from graphstrap_lab.reproduce.run import ACCURACIES, fill_ledger
from graphstrap_lab.reproduce.tables import Table

_WORK = {"accuracy": ACCURACIES, "curves": ACCURACIES, "entropy": ENTROPIES, "learning": LEARNING, "mag": MAG}
_REPORTS = {
    "accuracy": report_accuracies,
    "curves": report_curves,
    "entropy": report_entropies,
    "learning": report_learning,
    "mag": report_mag,
    "memory": report_peaks,
}


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
    if table.kind != "memory":
        work = _WORK[table.kind]
        fill_ledger(table, ledger, how, variants=variants, datasets=datasets, num_seeds=num_seeds, work=work)
    elif how.workers.is_first:  # what is measured is to have the device for itself
        fill_peaks(table, ledger, how, variants=variants, datasets=datasets)


def make_report(
    table: Table,
    ledger: Ledger,
    *,
    variants: Sequence[str] = (),
    datasets: Sequence[str] = (),
    quick: bool = False,
    device: str = "cpu",
    memory_limit: int | None = None,
) -> Report:
    """What the ledger holds of a table; of table 1, what was measured on this kind of device, "cpu" or "cuda"."""
    rows, columns = variants or table.variants, datasets or table.datasets
    return _REPORTS[table.kind](Asked(table, ledger, rows, columns, quick, device, memory_limit))
