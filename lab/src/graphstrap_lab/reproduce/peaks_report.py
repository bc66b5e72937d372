"""Table 1 as text and as a picture, from what the ledger holds."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.memory import part_text
from graphstrap_lab.reproduce.paper import printed
from graphstrap_lab.reproduce.peaks import find_peak, fitted_exponent, generated_peaks
from graphstrap_lab.reproduce.render import Grid, Report, absent_notes, computed_on
from graphstrap_lab.reproduce.tables import SELDOM_AT_HAND, Table
from graphstrap_lab.reproduce.variants import VARIANTS

LEGEND = (
    "Ours: the peak of three training steps with the graph, the features, the weights and the optimiser's state; on "
    "CUDA that of PyTorch's allocator, on a CPU the extra resident memory of a fresh process. The paper's number (in "
    "float32, on a V100 with 16 GB) and ours as a part of it follow. Seeds hardly change memory: one each, no test. "
    "Generated graphs have 16 edges a node, hubs, 64 feature columns and layers of 64; exponents are least-squares "
    "slopes between logarithms over the four largest sizes."
)


def report_peaks(
    table: Table,
    ledger: Ledger,
    *,
    variants: Sequence[str],
    datasets: Sequence[str],
    device: str,
    memory_limit: int | None = None,
    quick: bool = False,
) -> Report:
    """Under a memory limit, what was measured to need more is shown as out of memory, too."""
    from graphstrap_lab.reproduce.plots import plot_memory

    peaks = {
        (v, d): find_peak(ledger, d, v, device=device, memory_limit=memory_limit) for v in variants for d in datasets
    }
    made = {v: generated_peaks(ledger, v, device=device) for v in variants}
    exponents = {v: fitted_exponent(rows) for v, rows in made.items()}
    rows = [*(row for row in peaks.values() if row is not None), *(row for own in made.values() for row in own)]
    points = {
        v: [(row["num_nodes"], row["peak_bytes"], row in peaks.values()) for row in rows if _is_point(row, v)]
        for v in variants
    }
    grids = [_grid(table, peaks, variants, datasets, memory_limit), _made_grid(made, exponents, memory_limit)]
    notes = [LEGEND, *absent_notes(rows, datasets), *([computed_on(rows)] if rows else [])]
    has_points = any(points.values())
    draw = (lambda path: plot_memory(points, exponents, path)) if has_points else None
    return Report(table, quick, [grid for grid in grids if grid.lines], notes, _to_csv(rows), draw)


def peak_text(row: Row | None, limit: int | None, *, absent: str = "not measured") -> str:
    """`1.32 GB`, or `OOM: ...`."""
    if row is None:
        return absent
    if row.get("oom"):
        return str(row["oom"])
    needed: int = row["peak_bytes"]
    if limit is not None and needed > limit:
        return f"OOM: needs {part_text(needed, limit)}"
    return f"{needed / 1e9:.2f} GB"


def _is_point(row: Row, variant: str) -> bool:
    return row["variant"] == variant and bool(row.get("peak_bytes"))


def _grid(
    table: Table,
    peaks: dict[tuple[str, str], Row | None],
    variants: Sequence[str],
    datasets: Sequence[str],
    limit: int | None,
) -> Grid:
    header = ["method", *(title for dataset in datasets for title in (dataset, "paper"))]
    lines = []
    for variant in variants:
        line = [VARIANTS[variant].title + "*"]
        for dataset in datasets:
            row, paper = peaks[variant, dataset], printed(table.name, variant, dataset)
            text = "" if paper is None else paper.text if paper.mean is None else f"{paper.mean:.2f} GB"
            if row is not None and row.get("peak_bytes") and paper is not None and paper.mean is not None:
                text += f", {row['peak_bytes'] / 1e9 / paper.mean:.2f}×"
            absent = "no data here" if dataset in SELDOM_AT_HAND else "not measured"
            line += [peak_text(row, limit, absent=absent), text]
        lines.append(line)
    found = {str(row.get("precision")) for row in peaks.values() if row is not None}
    precision = f", products in {' and '.join(sorted(found))}" if found else ""
    return Grid(f"Peak memory of a training step{precision}", header, lines)


def _made_grid(made: dict[str, list[Row]], exponents: dict[str, float | None], limit: int | None) -> Grid:
    sizes = sorted({int(row["num_nodes"]) for rows in made.values() for row in rows})
    lines = []
    for variant, rows in made.items():
        by_size = {row["num_nodes"]: row for row in rows}
        exponent = exponents[variant]
        texts = [peak_text(by_size[size], limit) if size in by_size else "" for size in sizes]
        lines.append([VARIANTS[variant].title, *texts, "" if exponent is None else f"N^{exponent:.2f}"])
    header = ["method", *(f"{size:,}" for size in sizes), "grows as"]
    return Grid("Generated graphs of so many nodes", header, lines if sizes else [])


def _to_csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = ("variant", "dataset", "num_nodes", "num_edges", "peak_bytes", "oom", "precision", "device", "hardware")
    writer.writerow(["method", *names[1:], "paper_gb", "part_of_paper"])
    for row in rows:
        paper = printed("table-1", row["variant"], row["dataset"])
        size = None if paper is None else paper.mean
        part = round(row["peak_bytes"] / 1e9 / size, 4) if size and row.get("peak_bytes") else None
        writer.writerow([*(row.get(name) for name in names), size or (paper and paper.text), part])
    return buffer.getvalue()
