"""Learning curves: the probe at each point is that of training cut there, and a report needs no second training."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from graphstrap.api.estimator import Embedder
from graphstrap.evaluation.protocols import evaluate
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap_lab.reproduce import entropies, reports, variants
from graphstrap_lab.reproduce.cells import Filling
from graphstrap_lab.reproduce.learning import LEARNING, NUM_POINTS, learning_recipe
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.reports import fill, make_report
from graphstrap_lab.reproduce.tables import Table, find_table

VARIANTS = ("bgrl-gat", "grace-2-gat")


@pytest.mark.parametrize("variant", find_table("learning-curves").variants)
def test_rows_train_as_their_table_does_and_are_asked_twenty_times(variant: str) -> None:
    recipe = learning_recipe(variant, "ppi")
    assert recipe.train.steps == (20_000 if variant.endswith("-gat") else 10_000)
    assert recipe.train.evaluate_every == recipe.train.steps // NUM_POINTS
    assert recipe.encoder.name == ("gat" if variant.endswith("-gat") else "mean-pooling")


def test_curves_are_computed_once_and_shown_from_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropies, "_QUICK", {**entropies._QUICK, "train.steps": 4, "train.warmup_steps": 1})
    ledger = Ledger(tmp_path / "ledger.jsonl")
    table = Table("learning-curves", VARIANTS, ("digits", "no-such-graph"), kind="learning")
    notes: list[str] = []
    for _ in range(2):
        fill(
            table,
            ledger,
            Filling(quick=True, device="cpu", note=notes.append),
            variants=VARIANTS,
            datasets=table.datasets,
            num_seeds=2,
        )
    assert [(row["variant"], row["seed"]) for row in ledger.rows] == [(v, seed) for v in VARIANTS for seed in (0, 1)]
    assert sum("not at hand" in note for note in notes) == 2
    row, graph = ledger.rows[2], load("digits")
    assert row["metric"] == "accuracy"
    assert row["curve"]["step"] == [1, 2, 3, 4]
    model = Embedder(recipe=learning_recipe("grace-2-gat", "digits", quick=True), seed=0, device="cpu").fit(graph)
    last = evaluate(model.embed(graph), graph, protocol="paper", num_runs=1).mean
    assert row["curve"]["accuracy"][-1] == pytest.approx(last, abs=0.01)
    report = make_report(table, ledger, quick=True)
    lines = {(line[0], line[1]): line for line in report.grids[0].lines}
    assert "± " in lines["digits", "BGRL, GAT"][5]
    assert lines["no-such-graph", "BGRL, GAT"][2] == "not computed"
    points = list(csv.DictReader(io.StringIO(report.csv)))
    assert len(points) == sum(len(one["curve"]["step"]) for one in ledger.rows)
    assert report.draw is not None
    report.draw(tmp_path / "curves.svg")
    assert "<svg" in (tmp_path / "curves.svg").read_text()


def test_ppi_is_an_empty_line_that_says_so(tmp_path: Path) -> None:
    empty = make_report(find_table("figure-2"), Ledger(tmp_path / "none.jsonl"))
    assert empty.draw is None
    assert empty.grids[0].lines[0][:3] == ["ppi", "BGRL", "no data here"]
    assert any("ppi" in note and "not at hand" in note for note in empty.notes)


def test_a_row_is_found_under_the_name_that_it_shares_and_by_its_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GCA without centralities is GRACE: one row, shown as both. Another graph of the same name is another cell."""
    monkeypatch.setattr(variants, "QUICK_STEPS", 4)
    monkeypatch.setattr(variants, "_FEWER_QUICK_STEPS", {})
    table = Table("learning-curves", ("grace", "gca-standard"), ("digits",), kind="learning")
    digits = load("digits")

    def filled(graph: Graph) -> Ledger:
        monkeypatch.setitem(reports._WORK, "learning", replace(LEARNING, load=lambda name, how: graph))
        ledger, how = Ledger(tmp_path / "ledger.jsonl"), Filling(quick=True, device="cpu", note=lambda text: None)
        fill(table, ledger, how, variants=table.variants, datasets=table.datasets, num_seeds=1)
        return ledger

    assert len(filled(digits).rows) == len(filled(digits).rows) == 1
    lines = make_report(table, Ledger(tmp_path / "ledger.jsonl"), quick=True).grids[0].lines
    assert lines[0][2:] == lines[1][2:]
    assert lines[0][2] != "not computed"
    assert digits.labels is not None
    assert len(filled(replace(digits, labels=(digits.labels + 1) % 10)).rows) == 2
