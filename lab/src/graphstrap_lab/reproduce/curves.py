"""The course of training: loss, spread and mean norm of the embeddings over steps (the paper's figures 6, 7 and 8).

They are read from what training logs, kept in the ledger with the cells of the first few seeds, and shown as the mean
over those seeds. `spread` is the standard deviation over nodes divided by the mean norm: 0 after a collapse.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphstrap_lab.reproduce.ledger import Row

Curve = dict[str, list[float]]
NAMES = ("loss", "spread", "mean_norm", "effective_rank")
NUM_POINTS = 100
NUM_CURVE_SEEDS = 3


def has_curve(variant: str) -> bool:
    """Rows whose course of training a figure shows."""
    return variant in ("bgrl", "bgrl-projector")


def thin_curve(records: Sequence[Mapping[str, Any]]) -> Curve:
    """Columns of at most about `NUM_POINTS` of the logged records, the first and the last among them."""
    every = max(1, len(records) // NUM_POINTS)
    chosen = [*records[:-1:every], *records[-1:]]
    curve: Curve = {"step": [int(record["step"]) for record in chosen]}
    for name in NAMES:
        if all(name in record for record in chosen):
            curve[name] = [float(f"{record[name]:.5g}") for record in chosen]
    return curve


def mean_curve(rows: Sequence[Row]) -> Curve | None:
    """The mean over the rows that have a curve; None where none has."""
    curves = [row["curve"] for row in rows if row.get("curve")]
    if not curves:
        return None
    alike = [curve for curve in curves if curve["step"] == curves[0]["step"]]
    names = [name for name in NAMES if all(name in curve for curve in alike)]
    means = {name: np.mean([curve[name] for curve in alike], axis=0).tolist() for name in names}
    return {"step": curves[0]["step"], **means}


def curves_to_csv(curves: Mapping[tuple[str, str], Curve]) -> str:
    """One line a point; the curves by graph and method."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["dataset", "method", "step", *NAMES])
    for (dataset, variant), curve in curves.items():
        for index, step in enumerate(curve["step"]):
            values = [f"{curve[name][index]:.5g}" if name in curve else "" for name in NAMES]
            writer.writerow([dataset, variant, step, *values])
    return buffer.getvalue()
