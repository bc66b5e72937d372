"""Measurements as tables of text, the same at the terminal and in docs/performance.md and docs/encoders.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphstrap_lab.bench.table import summarize

Record = dict[str, Any]  # what `record.write_record` writes; here only its rows and what was measured beside them

# Thakoor et al., ICLR 2022, table 3, BGRL (and appendix for the small graphs).
PAPER_ACCURACY = {
    "wikics": "79.98 ± 0.10",
    "amazon-computers": "90.34 ± 0.19",
    "amazon-photo": "93.17 ± 0.30",
    "coauthor-cs": "93.31 ± 0.13",
    "coauthor-physics": "95.73 ± 0.05",
    "cora": "83.83 ± 1.61",
    "citeseer": "72.32 ± 0.89",
    "pubmed": "86.03 ± 0.33",
    "dblp": "84.07 ± 0.23",
}
_ADAMW = ("adamw", "adamw-reference")


@dataclass(frozen=True)
class Cells:
    headers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    num_texts: int = 1  # leading columns that hold words, not numbers


def step_cells(record: Record) -> Cells:
    headers = ("dataset", "precision", "ours, ms", "plain PyG, ms", "faster", "ours", "plain PyG", "smaller")
    rows = [
        (
            row["dataset"],
            row["precision"],
            f"{row['ours_ms']:.2f} ± {row['ours_ms_iqr']:.2f}",
            f"{row['baseline_ms']:.2f} ± {row['baseline_ms_iqr']:.2f}",
            f"{row['speedup']:.1f}×",
            size(row["ours_bytes"]),
            size(row["baseline_bytes"]),
            f"{row['baseline_bytes'] / row['ours_bytes']:.1f}×",
        )
        for row in record["rows"]
    ]
    return Cells(headers, rows, "Median ± distance between the quartiles; peak memory of each side alone.", num_texts=2)


def scale_cells(record: Record) -> Cells:
    headers = ("nodes", "edges", "step, ms", "memory", "bytes a node")
    rows = [
        (
            f"{row['num_nodes']:,}",
            f"{row['num_edges']:,}",
            f"{row['step_ms']:.2f} ± {row['step_ms_iqr']:.2f}",
            size(row["peak_bytes"]),
            f"{row['peak_bytes'] / row['num_nodes']:,.0f}",
        )
        for row in record["rows"]
    ]
    slopes = record["slopes"]
    note = ""
    if slopes["time"] is not None:
        note = f"From 100,000 nodes up time grows as N^{slopes['time']:.2f} and memory as N^{slopes['memory']:.2f}."
    return Cells(headers, rows, note, num_texts=0)


def ops_cells(record: Record) -> Cells:
    headers = ("dataset", "part", "in a step", "ms", "GFLOP", "MB", "floor, ms", "times the floor")
    rows = [
        (
            row["dataset"],
            row["part"],
            str(row["per_step"]),
            f"{row['ms']:.3f}",
            f"{row['flops'] / 1e9:.2f}",
            f"{row['bytes'] / 1e6:.1f}",
            f"{row['floor_ms']:.3f}",
            f"{row['times_floor']:.1f}",
        )
        for row in record["rows"]
    ]
    rates = record["rates"]
    matrix = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in rates["flops_per_second"].items())
    memory, cache = (rates[f"{kind}_bytes_per_second"] / 1e9 for kind in ("memory", "cache"))
    held = f"{rates['cache_bytes'] / 2**20:.0f} MiB"
    note = f"Measured: memory {memory:,.0f} GB/s, cache ({held}) {cache:,.0f} GB/s, products {matrix}."
    return Cells(headers, rows, note, num_texts=2)


def table_cells(record: Record) -> Cells:
    headers = ("graph", "recipe", "seeds", "published", "reference", "paper", "seconds a seed", "at once", "GPU memory")
    rows = [
        (
            line["graph"],
            line["recipe"],
            str(line["num_seeds"]),
            PAPER_ACCURACY.get(line["graph"], ""),
            *(f"{line[protocol]:.2f} ± {line[f'{protocol}_std']:.2f}" for protocol in ("reference", "paper")),
            f"{line['train_seconds']:.1f}",
            str(line["num_together"]),
            "" if line["peak_gpu_bytes"] is None else size(line["peak_gpu_bytes"]),
        )
        for line in summarize(record["rows"])
    ]
    note = (
        "Accuracy in % by the protocols `reference` and `paper`, mean ± standard deviation over seeds. Seconds are "
        "those of training, shared out over the seeds that were trained at once; memory is that of all of them."
    )
    return Cells(headers, rows, note, num_texts=2)


def twitch_cells(record: Record) -> Cells:
    """`lab/benchmarks/twitch.py`: a row for each encoder; means over the countries that all of its columns know."""
    raw = {row["tested"]: row["auc"] for row in record["rows"] if "auc" in row}
    trained = [row for row in record["rows"] if "bgrl" in row and row["tested"] in raw]
    rows = []
    for encoder in dict.fromkeys(row["encoder"] for row in trained):
        own = {row["tested"]: row for row in trained if row["encoder"] == encoder}
        by_country = (f"{np.mean(own[country]['bgrl']):.2f}" if country in own else "" for country in raw)
        plain = f"{np.mean([raw[country] for country in own]):.2f}"
        rows.append((encoder, plain, *(_over_seeds(own.values(), key) for key in ("random_init", "bgrl")), *by_country))
    note = "ROC AUC in %: means over countries ± standard deviation over seeds; then BGRL's by the country tested."
    return Cells(("encoder", "raw features", "random init", "BGRL", *raw), rows, note)


def arxiv_cells(record: Record) -> Cells:
    """`lab/benchmarks/arxiv_like.py`: a row for each method; time and memory where it had the GPU to itself."""
    headers = ("method", "steps", "`adamw` val", "test", "`adamw-reference` val", "test", "seconds", "peak memory")
    rows = []
    for row in record["rows"]:
        if "refused" in row:
            rows.append((row["method"], row["refused"], *[""] * 6))
            continue
        scores = (f"{row[f'{protocol} {part}']:.2f}" for protocol in _ADAMW for part in ("val", "test"))
        alone = row.get("alone_on_the_gpu", True) and "train_seconds" in row
        cost = (f"{row['train_seconds']:.0f}", size(row["peak_bytes"])) if alone and "peak_bytes" in row else ("", "")
        rows.append((row["method"], f"{row['steps']:,}", *scores, *cost))
    note = (
        "Accuracy in % on validation and test nodes of a synthetic graph: whether training finds what was planted. "
        "Seconds and memory of methods that had the GPU to themselves."
    )
    return Cells(headers, rows, note)


def _over_seeds(rows: Iterable[Record], key: str) -> str:
    by_seed = np.mean([row[key] for row in rows], axis=0)
    spread = f" ± {np.std(by_seed, ddof=1):.2f}" if len(by_seed) > 1 else ""
    return f"{np.mean(by_seed):.2f}{spread}"


CELLS: dict[str, Callable[[Record], Cells]] = {
    "step": step_cells,
    "scale": scale_cells,
    "ops": ops_cells,
    "table": table_cells,
    "twitch": twitch_cells,
    "arxiv-like": arxiv_cells,
}


def size(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
