"""Entropies of attention: the histogram is that of the nodes' entropies, and a report needs no second training."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphstrap.api.estimator import Embedder
from graphstrap.cli._app import run
from graphstrap.io.datasets import load
from graphstrap_lab.reproduce import entropies
from graphstrap_lab.reproduce.cells import Filling
from graphstrap_lab.reproduce.entropies import (
    BIN_WIDTH,
    entropy_recipe,
    merge_counts,
    node_entropies,
    summarize_entropies,
)
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.reports import fill, make_report
from graphstrap_lab.reproduce.tables import Table, find_table

VARIANTS = ("bgrl-gat", "grace-gat", "grace-2-gat")


def test_a_histogram_holds_every_node_in_its_bin() -> None:
    values = torch.tensor([0.0, 1e-9, -0.01, -0.049, -0.051, -1.02, -1.02], dtype=torch.float64)
    found = summarize_entropies(values)
    assert sum(found["counts"]) == len(values)
    assert found["counts"][:2] == [4, 1]
    assert found["counts"][int(1.02 / BIN_WIDTH)] == 2
    assert found["least"] == -1.02
    np.testing.assert_allclose(found["quartiles"], np.quantile(values.numpy(), (0.25, 0.5, 0.75)), atol=1e-5)
    rows: list[dict[str, Any]] = [{"entropy": found}, {"entropy": {"counts": [1, 0, 6]}}, {"oom": "OOM"}]
    shares = merge_counts(rows)
    assert shares is not None
    assert sum(shares) == pytest.approx(1.0)
    assert shares[:3] == pytest.approx([5 / 14, 1 / 14, 6 / 14])
    assert merge_counts([{}]) is None


@pytest.mark.parametrize("dataset", ["ppi", "cora"])
def test_rows_differ_in_their_method_alone(dataset: str) -> None:
    recipes = {variant: entropy_recipe(variant, dataset) for variant in VARIANTS}
    assert len({recipe.encoder for recipe in recipes.values()}) == 1
    assert len({recipe.views for recipe in recipes.values()}) == 1
    assert [recipe.method.name for recipe in recipes.values()] == ["bgrl", "grace", "grace"]
    assert [getattr(recipe.method, "num_negatives", 0) for recipe in recipes.values()] == [0, 0, 2]
    assert recipes["bgrl-gat"].encoder.name == "gat"
    assert recipes["bgrl-gat"].train.steps == (20_000 if dataset == "ppi" else 1000)


def test_the_figure_is_computed_once_and_shown_from_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropies, "_QUICK", {**entropies._QUICK, "train.steps": 4, "train.warmup_steps": 1})
    ledger = Ledger(tmp_path / "ledger.jsonl")
    notes: list[str] = []
    table = Table("attention-entropy", VARIANTS[:2], ("digits", "no-such-graph"), kind="entropy")
    how = Filling(quick=True, device="cpu", note=notes.append)
    for _ in range(2):
        fill(table, ledger, how, variants=table.variants, datasets=table.datasets)
    assert [(row["dataset"], row["variant"]) for row in ledger.rows] == [
        ("digits", "bgrl-gat"),
        ("digits", "grace-gat"),
    ]
    assert sum("not at hand" in note for note in notes) == 2
    row, graph = ledger.rows[0], load("digits")
    model = Embedder(recipe=entropy_recipe("bgrl-gat", "digits", quick=True), seed=0, device="cpu").fit(graph).model_
    values = node_entropies(model, graph, device=torch.device("cpu"))
    assert row["entropy"] == summarize_entropies(values)
    degrees = graph.in_degrees + 1
    assert bool((values <= 1e-6).all())
    assert bool((values >= -degrees.double().log() - 1e-6).all())
    report = make_report(table, ledger, quick=True)
    assert report.grids[0].lines[2][2] == "not computed"
    points = list(csv.DictReader(io.StringIO(report.csv)))
    assert sum(int(point["nodes"]) for point in points) == 2 * graph.num_nodes
    assert report.draw is not None
    report.draw(tmp_path / "entropies.svg")
    assert "<svg" in (tmp_path / "entropies.svg").read_text()


def test_ppi_is_an_empty_line_that_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = make_report(find_table("attention-entropy"), Ledger(tmp_path / "none.jsonl"))
    assert empty.draw is None
    assert empty.grids[0].lines[0][:3] == ["ppi", "BGRL, GAT", "no data here"]
    assert any("ppi" in note and "not at hand" in note for note in empty.notes)
    assert run(["reproduce", "attention-entropy", "--show", "--quick", "--ledger", str(tmp_path / "none.jsonl")]) == 0
    out = capsys.readouterr().out
    assert "twitch-ptbr" in out
    assert "twitch-de" not in out


@pytest.mark.gpu
def test_a_gpu_finds_the_entropies_that_a_cpu_finds() -> None:
    graph = load("digits")
    settings = {"train.steps": 10, "train.precision": "fp32"}
    recipe = entropy_recipe("grace-2-gat", "digits", quick=True).with_settings(settings)
    model = Embedder(recipe=recipe, seed=0, device="cuda").fit(graph).model_
    on_gpu, on_cpu = (node_entropies(model, graph, device=torch.device(name)) for name in ("cuda", "cpu"))
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, atol=2e-3, rtol=0)
