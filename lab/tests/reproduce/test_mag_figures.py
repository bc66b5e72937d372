"""MAG240M's figures: rows differ in what they claim to, cut cells go on, no validation label helps, and a synthetic
graph is called so."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphstrap.api.baselines import _propagated
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.io.store import write_store
from graphstrap.run.recipe import Recipe
from graphstrap.train import loop
from graphstrap.train.batches import make_batches
from graphstrap_lab.reproduce import mag
from graphstrap_lab.reproduce.cells import Filling
from graphstrap_lab.reproduce.deadline import training_seconds
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.mag import NUM_LABELLED, labelled_parts, mag_recipe
from graphstrap_lab.reproduce.render import to_markdown
from graphstrap_lab.reproduce.reports import fill, make_report
from graphstrap_lab.reproduce.tables import TABLES, Table

TINY = "mag-like-0.00005"
FIGURES = [table for table in TABLES.values() if table.kind == "mag"]


@pytest.fixture(scope="module")
def tiny() -> Graph:
    return load(TINY)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mag, "QUICK_STEPS", 6)
    monkeypatch.setattr(mag, "_QUICK", {**mag._QUICK, "train.checkpoint_seconds": 0.0})


def filled(path: Path, *variants: str) -> Ledger:
    table = Table("mag-auxiliary", variants, (TINY,), kind="mag")
    how = Filling(quick=True, device="cpu", note=lambda text: None, unfinished=path.parent / "unfinished")
    ledger = Ledger(path)
    fill(table, ledger, how, variants=variants, datasets=[TINY])
    return ledger


@pytest.mark.parametrize("table", FIGURES, ids=lambda table: table.name)
@pytest.mark.parametrize("dataset", ["mag240m", "mag-like-0.01"])
def test_every_row_has_as_many_labelled_roots(table: Table, dataset: str) -> None:
    for variant in (name for name in table.variants if name != "mag-label-propagation"):
        recipe = mag_recipe(variant, dataset)
        assert recipe.train.steps == (50_000 if dataset == "mag240m" else 1000)
        assert recipe.train.warmup_steps == recipe.train.steps // 10
        if recipe.method.name == "semi-supervised":
            ratio = recipe.method.unlabelled_ratio
            assert round(recipe.sampling.batch_size / (1.0 + ratio)) == NUM_LABELLED
            assert recipe.sampling.by_time
    assert len({mag.mag_settings(v, dataset, False) for v in table.variants}) == len(table.variants)


def test_rows_of_a_figure_differ_in_their_method_alone() -> None:
    rows = [mag_recipe(v, "mag240m") for v in TABLES["mag-auxiliary"].variants]
    assert len({(recipe.encoder, recipe.views, recipe.train, recipe.sampling) for recipe in rows}) == 1
    assert [recipe.method.auxiliary_weight for recipe in rows] == [0.0, 1.0, 1.0]
    one, other = (mag_recipe(v, "mag240m").method for v in TABLES["mag-projector"].variants)
    assert replace(other, projector_size=0) == one
    assert mag_recipe("mag-gcn-bgrl-0", "mag240m").encoder.name == "gcn"


def test_a_cell_that_was_cut_goes_on_and_ends_as_if_it_had_not_been(
    tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = filled(tmp_path / "whole" / "ledger.jsonl", "mag-bgrl-1").rows[0]
    record, path = loop._Session.record, tmp_path / "cut" / "ledger.jsonl"

    def cut(self: Any, step: int, *values: Any, **more: Any) -> None:
        record(self, step, *values, **more)
        if step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop._Session, "record", cut)
        with pytest.raises(KeyboardInterrupt):
            filled(path, "mag-bgrl-1")
    assert len(list((tmp_path / "cut" / "unfinished").iterdir())) == 1
    (resumed,) = filled(path, "mag-bgrl-1").rows
    assert resumed["curve"] == whole["curve"]
    assert resumed["curve"]["step"] == [1, 2, 3, 4, 5, 6]
    assert not list((tmp_path / "cut" / "unfinished").iterdir())
    assert len(filled(path, "mag-bgrl-1").rows) == 1


def test_frozen_rows_and_what_is_shown(tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mag, "NUMBERS_OF_STEPS", (2,))
    variants = ("mag-frozen-bgrl", "mag-label-propagation")
    ledger = filled(tmp_path / "ledger.jsonl", *variants)
    assert all(row["synthetic"] and 0 <= row["accuracy"]["validation"] <= 100 for row in ledger.rows)
    assert ledger.rows[1]["accuracy"]["validation"] > 20  # of 153 classes
    report = make_report(TABLES["mag-frozen"], ledger, variants=variants, datasets=[TINY, "mag240m"], quick=True)
    text = to_markdown(report)
    assert f"{TINY} (synthetic), validation papers" in text
    assert "mag240m was not at hand" in text
    lines = list(csv.DictReader(io.StringIO(report.csv)))
    assert [line["synthetic"] for line in lines] == ["True", "True"]
    assert report.draw is not None
    report.draw(tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text()


@pytest.mark.parametrize("table", FIGURES, ids=lambda table: table.name)
def test_what_is_absent_is_told_from_what_was_not_computed(table: Table, tmp_path: Path) -> None:
    report = make_report(table, Ledger(tmp_path / "none"))
    assert [{line[1] for line in grid.lines} for grid in report.grids] == [{"no data here"}, {"not computed"}]
    assert report.notes[0].endswith(f"The paper draws its curves {table.in_the_paper}.")


@pytest.mark.parametrize("most_scores", [1 << 27, 1 << 16])
def test_labels_travel_alike_together_or_some_classes_at_a_time(
    tiny: Graph, most_scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mag, "_MOST_SCORES", most_scores)
    train, stop, val = labelled_parts(tiny, seed=0)
    assert tiny.labels is not None
    found = mag._classes(tiny, tiny.labels, train, val, num_steps=3, restart=0.1)
    expected = _propagated(tiny, train.numpy(), 3, 0.1)[val]
    assert float((found == expected).double().mean()) > 0.95  # sums in another order break ties otherwise
    poisoned = tiny.labels.clone()
    poisoned[torch.cat([stop, val])] = (poisoned[torch.cat([stop, val])] + 7) % 153
    again = mag._classes(tiny, poisoned, train, val, num_steps=3, restart=0.1)
    assert torch.equal(found, again)


def test_parts_are_disjoint_and_hold_every_label_but_the_test_ones(tiny: Graph) -> None:
    parts = labelled_parts(tiny, seed=1)
    nodes = torch.cat(parts)
    assert len(torch.unique(nodes)) == len(nodes)
    assert tiny.splits is not None
    assert torch.equal(torch.sort(torch.cat(parts[:2])).values, tiny.splits.train[:, 0].nonzero().squeeze(1))
    assert not bool(tiny.splits.test[nodes].any())


def test_roots_are_of_the_types_that_were_named(tiny: Graph) -> None:
    recipe = mag_recipe("mag-frozen-bgrl", TINY, quick=True)
    assert recipe.sampling.root_types == ("paper",)
    without_labels = replace(tiny, labels=None, splits=None)
    batches = make_batches(without_labels, recipe=recipe, seed=0, device=torch.device("cpu"))
    batch = batches(1)
    batches.close()
    assert batch.node_ids is not None
    assert bool((batch.roots_of(batch.node_ids) < tiny.type_offsets[1]).all())
    wrong = recipe.with_settings({"sampling.root_types": ["book"]})
    with pytest.raises(InputError, match="book"):
        make_batches(without_labels, recipe=wrong, seed=0, device=torch.device("cpu"))
    assert Recipe().sampling.root_types == ()


def test_seconds_are_those_of_all_sessions() -> None:
    records = [{"step": 10, "steps_per_second": 5.0}, {"step": 30, "steps_per_second": 2.0}]
    assert training_seconds(records) == 12.0


def test_a_synthetic_graph_goes_by_its_scale_and_a_store_by_its_name(
    tiny: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tiny.name == TINY
    with pytest.raises(InputError, match="scale"):
        load("mag-like-much")
    monkeypatch.setenv("GRAPHSTRAP_DATA", str(tmp_path))
    write_store(load("digits"), tmp_path / "mag240m.store")
    assert load("mag240m").name == "mag240m"


@pytest.mark.gpu
@pytest.mark.parametrize("table", ["mag-unlabelled", "mag-projector", "mag-frozen"])
def test_figures_are_computed_on_a_gpu(table: str, tmp_path: Path, short: None) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    how = Filling(quick=True, device="cuda", note=lambda text: None, unfinished=tmp_path / "unfinished")
    fill(TABLES[table], ledger, how, variants=TABLES[table].variants, datasets=[TINY])
    assert [row["variant"] for row in ledger.rows] == list(TABLES[table].variants)
    assert all(row["device"] == "cuda" for row in ledger.rows)
