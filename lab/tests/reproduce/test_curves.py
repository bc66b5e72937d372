"""The course of training is kept with BGRL's cells, and shown without training again."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from graphstrap_lab.reproduce import variants
from graphstrap_lab.reproduce.accuracies import mean_curve
from graphstrap_lab.reproduce.cells import NUM_POINTS, Filling, thin_curve
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.reports import fill, make_report
from graphstrap_lab.reproduce.tables import Table


def test_a_thinned_curve_keeps_both_ends() -> None:
    records = [{"step": step, "loss": 1.0 / step, "spread": 0.5} for step in range(1, 1001)]
    curve = thin_curve(records)
    assert (curve["step"][0], curve["step"][-1]) == (1, 1000)
    assert len(curve["step"]) <= NUM_POINTS + 2
    assert curve["loss"][-1] == pytest.approx(0.001)
    assert "mean_norm" not in curve
    assert thin_curve(records[:1])["step"] == [1]


def test_curves_are_averaged_over_seeds() -> None:
    rows = [{"curve": {"step": [1, 2], "loss": [1.0, 0.5]}}, {"curve": {"step": [1, 2], "loss": [2.0, 1.5]}}, {}]
    assert mean_curve(rows) == {"step": [1, 2], "loss": [1.5, 1.0]}
    assert mean_curve([{}]) is None


def test_the_figure_comes_from_the_cells_of_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "QUICK_STEPS", 20)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    notes: list[str] = []
    how = Filling(quick=True, device="cpu", note=notes.append)
    accuracies = Table("table-3", ("bgrl",), ("digits",))
    figure = Table("training-curves", ("bgrl",), ("digits",), kind="curves")
    for table in (accuracies, figure):
        fill(table, ledger, how, variants=table.variants, datasets=table.datasets, num_seeds=1)
    assert notes == ["digits: bgrl, seed 0"]
    report = make_report(figure, ledger, quick=True)
    points = list(csv.DictReader(io.StringIO(report.csv)))
    assert (points[0]["step"], points[-1]["step"]) == ("1", "20")
    assert 0 < float(points[-1]["loss"]) < float(points[0]["loss"])
    assert all(0.05 < float(point["spread"]) < 5 for point in points)
    assert report.draw is not None
    report.draw(tmp_path / "curves.svg")
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    empty = make_report(figure, Ledger(tmp_path / "none.jsonl"))
    assert empty.draw is None
    assert empty.grids[0].lines == [["digits", "BGRL", "not computed", "", "", ""]]
