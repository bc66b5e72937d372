"""Entropies of attention as a table and as histograms side by side, from what the ledger holds."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from graphstrap_lab.reproduce.entropies import BIN_WIDTH, entropy_settings
from graphstrap_lab.reproduce.ledger import Ledger, Row, of_one_graph
from graphstrap_lab.reproduce.render import Grid, Report, absent_notes, computed_on
from graphstrap_lab.reproduce.tables import SELDOM_AT_HAND, Table
from graphstrap_lab.reproduce.variants import VARIANTS, name_in_ledger

LEGEND = (
    "Entropy of a node's attention, averaged over layers and heads, less that of attention to all its neighbours "
    "alike: 0 is uniform, and the lower, the fewer are looked at. Mean over nodes ± standard deviation over seeds "
    "(number of seeds); quartiles over nodes, and the least, are means over seeds. Spread is that of the embeddings at "
    "the last step, 0 after a collapse; the score is the linear probe's, in %. The paper shows its histogram, of PPI, "
    "as a picture alone: GRACE, and most of all with few negatives, has very low entropies; BGRL lies between these "
    "and uniform attention."
)
_COLUMNS = ["mean", "lower quartile", "median", "upper quartile", "least", "spread", "score"]


def report_entropies(
    table: Table, ledger: Ledger, *, variants: Sequence[str], datasets: Sequence[str], quick: bool
) -> Report:
    from graphstrap_lab.reproduce.plots import plot_entropies

    rows = {(d, v): find_entropies(ledger, v, d, quick=quick) for d in datasets for v in variants}
    found = [row for own in rows.values() for row in own]
    lines = [
        [dataset, VARIANTS[variant].title, *_texts(dataset, own, ledger)] for (dataset, variant), own in rows.items()
    ]
    histograms = {key: merged for key, own in rows.items() if (merged := merge_counts(own)) is not None}
    grid = Grid("Entropy of attention less that of uniform attention", ["graph", "method", *_COLUMNS], lines)
    notes = [LEGEND, *absent_notes(found, datasets), *([computed_on(found)] if found else [])]
    draw = (lambda path: plot_entropies(histograms, path)) if histograms else None
    return Report(table, quick, [grid], notes, _to_csv(rows), draw)


def find_entropies(ledger: Ledger, variant: str, dataset: str, *, quick: bool) -> list[Row]:
    settings = entropy_settings(variant, dataset, quick)
    return of_one_graph(ledger.find(dataset=dataset, variant=name_in_ledger(variant), settings=settings))


def merge_counts(rows: Sequence[Row]) -> list[float] | None:
    """The share of nodes in each bin from 0 down, over all seeds; None where nothing was computed."""
    counts = [row["entropy"]["counts"] for row in rows if "entropy" in row]
    if not counts:
        return None
    total = np.zeros(max(map(len, counts)))
    for own in counts:
        total[: len(own)] += own
    shares: list[float] = (total / total.sum()).tolist()
    return shares


def _texts(dataset: str, rows: Sequence[Row], ledger: Ledger) -> list[str]:
    """The columns of a line, or why there is nothing."""
    computed = [row for row in rows if "entropy" in row]
    if not computed:
        usual = "no data here" if dataset in SELDOM_AT_HAND and not ledger.find(dataset=dataset) else "not computed"
        return [next((row["oom"] for row in rows if row.get("oom")), usual), *([""] * (len(_COLUMNS) - 1))]
    means = [row["entropy"]["mean"] for row in computed]
    spread = f" ± {np.std(means, ddof=1):.3f}" if len(means) > 1 else ""
    values = np.mean([[*row["entropy"]["quartiles"], row["entropy"]["least"], row["spread"]] for row in computed], 0)
    scores = [score for row in computed for score in row["accuracy"].values()]
    protocol = next((name for row in computed for name in row["accuracy"]), "")
    score = f"{np.mean(scores):.2f} ({protocol})" if scores else ""
    return [f"{np.mean(means):.3f}{spread} ({len(means)})", *(f"{value:.3f}" for value in values), score]


def _to_csv(rows: dict[tuple[str, str], list[Row]]) -> str:
    """A line for each seed and bin: the share of nodes from `low` up to `high`."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["dataset", "method", "seed", "low", "high", "nodes"])
    for (dataset, variant), own in rows.items():
        for row in (row for row in own if "entropy" in row):
            for place, count in enumerate(row["entropy"]["counts"]):
                high = -BIN_WIDTH * place
                writer.writerow([dataset, variant, row["seed"], f"{high - BIN_WIDTH:.2f}", f"{high:.2f}", count])
    return buffer.getvalue()
