"""Tables: what they show is what the ledger holds, with the paper's number beside it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_communities
from scipy.stats import ttest_ind

from graphstrap.api import baselines
from graphstrap.errors import InputError
from graphstrap.evaluation.registry import Evaluation
from graphstrap.graph import Splits
from graphstrap.io.datasets import load
from graphstrap.nn.methods.supervised import SupervisedSettings
from graphstrap.ops.memory import parse_bytes
from graphstrap.run.recipe import Recipe, shipped_recipes
from graphstrap_lab.grid import paired_p_value
from graphstrap_lab.reproduce import cells, mag, variants
from graphstrap_lab.reproduce.accuracies import Cell, compare_rows, make_cell, row_title
from graphstrap_lab.reproduce.cells import Filling, _accuracies, compute_cells, refusal_of
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.mag import mag_settings
from graphstrap_lab.reproduce.memory import as_published, estimate_bytes, part_text, refusal
from graphstrap_lab.reproduce.render import Asked, to_markdown
from graphstrap_lab.reproduce.reports import make_report
from graphstrap_lab.reproduce.run import fill_ledger
from graphstrap_lab.reproduce.tables import TABLES, Printed, Table, find_table, printed, seeds_for
from graphstrap_lab.reproduce.variants import (
    VARIANTS,
    changed_settings,
    find_variant,
    name_in_ledger,
    recipe_of,
    settings_digest,
    settings_id,
    usual_settings,
    why_not,
)

FIXTURES = Path(__file__).parents[3] / "tests" / "fixtures"


def fake_rows(values: list[float], *, variant: str = "bgrl", dataset: str = "amazon-photo") -> list[dict[str, object]]:
    wanted = settings_id(variant, dataset, quick=False)
    return [
        {
            "dataset": dataset,
            "variant": variant,
            "settings": wanted,
            "seed": seed,
            "accuracy": {"reference": value, "paper": value - 0.5},
        }
        for seed, value in enumerate(values)
    ]


def shown(table: Table, ledger: Ledger, variant: str, dataset: str, protocol: str, *, quick: bool = False) -> Cell:
    return make_cell(Asked(table, ledger, (variant,), (dataset,), quick), variant, dataset, protocol)


@pytest.mark.parametrize(
    "table", [one for one in TABLES.values() if one.kind in ("accuracy", "memory", "curves")], ids=lambda one: one.name
)
def test_every_row_of_every_table_has_a_recipe_on_every_graph(table: Table) -> None:
    for variant in table.variants:
        for dataset in (name for name in table.datasets if not why_not(variant, name)):
            assert dataset in shipped_recipes()
            full, quick = recipe_of(variant, dataset), recipe_of(variant, dataset, quick=True)
            assert quick.train.steps <= min(150, full.train.steps)
            if VARIANTS[variant].kind == "trained":
                kept = name_in_ledger(variant)
                assert full.method.name == kept.split("-")[0] or full.method.name == kept
    assert table.title


def test_what_the_paper_prints_is_shown() -> None:
    cell = printed("table-3", "bgrl", "amazon-photo")
    assert cell is not None
    assert (cell.mean, cell.std, cell.is_starred) == (93.17, 0.30, True)
    out_of_memory = printed("table-3", "grace", "coauthor-physics")
    assert out_of_memory is not None
    assert out_of_memory.text == "OOM"
    assert printed("table-3", "barlow-twins", "amazon-photo") is None
    assert printed("table-3", "bgrl-best", "amazon-photo") == cell


def test_a_cell_has_mean_spread_difference_and_a_test(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    table = find_table("table-3")
    empty = shown(table, ledger, "bgrl", "amazon-photo", "reference", quick=False)
    assert empty.text == "not computed"
    ledger.add(fake_rows([93.9, 94.0, 94.1]))
    cell = shown(table, ledger, "bgrl", "amazon-photo", "reference", quick=False)
    assert cell.text == "94.00 ± 0.10 (3)"
    assert cell.difference == pytest.approx(0.83)
    assert cell.is_significant
    assert cell.paper_text == "93.17 ± 0.30, +0.83!"
    beside = shown(table, ledger, "bgrl", "amazon-photo", "paper", quick=False)
    assert beside.mean == pytest.approx(93.5)
    assert not shown(table, ledger, "bgrl", "amazon-photo", "reference", quick=True).values


@pytest.mark.parametrize(
    ("values", "is_significant"),
    [((93.9, 94.0, 94.1), True), ((93.6, 93.9, 93.3, 93.7), False), ((93.0, 93.2, 93.3, 93.1, 93.15), False)],
)
def test_a_difference_is_significant_by_welchs_test_at_one_percent(
    values: tuple[float, ...], is_significant: bool
) -> None:
    """Against twenty runs with the mean and the deviation that the paper prints."""
    runs = np.linspace(-1.0, 1.0, 20)
    theirs = 93.17 + 0.30 * runs / runs.std(ddof=1)
    expected = ttest_ind(values, theirs, equal_var=False).pvalue
    cell = Cell("bgrl", "amazon-photo", "reference", values, "", Printed(93.17, 0.30, "93.17 ± 0.30", True))
    assert cell.p_value == pytest.approx(expected, rel=1e-6)
    assert cell.is_significant == is_significant == (expected < 0.01)


def test_gca_with_uniform_views_is_grace_and_is_not_computed_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(fake_rows([93.0, 93.2], variant="grace"))
    cell = shown(find_table("table-4"), ledger, "gca-standard", "amazon-photo", "reference", quick=False)
    assert cell.text == "93.10 ± 0.14 (2)"
    ledger.add(fake_rows([90.0, 90.2], variant="grace", dataset="amazon-computers"))  # there it has batch norm
    cell = shown(find_table("table-4"), ledger, "gca-standard", "amazon-computers", "reference", quick=False)
    assert cell.text == "not computed"


def test_markdown_and_csv_hold_every_cell(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(fake_rows([93.0, 93.4]))
    table = find_table("table-3")
    report = make_report(table, ledger, variants=["raw", "bgrl"], datasets=["amazon-photo"])
    text = to_markdown(report)
    assert "| BGRL* | 93.20 ± 0.28 (2) | 93.17 ± 0.30, +0.03 |" in text
    assert "Welch" in text
    assert "QUICK" not in text
    assert "QUICK" in to_markdown(make_report(table, ledger, datasets=["amazon-photo"], quick=True))
    rows = list(csv.DictReader(io.StringIO(report.csv)))
    assert len(rows) == 4
    assert rows[2]["mean"] == "93.2"


def test_costs_in_the_csv_are_those_of_the_table(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    first, second = fake_rows([93.0, 93.4])
    ledger.add([{**first, "train_seconds": 1.0, "evaluate_seconds": 3.0, "peak_bytes": 9 * 10**8, "seeds_together": 7}])
    ledger.add([{**second, "train_seconds": 2.0, "evaluate_seconds": 4.0, "peak_bytes": 10**8, "seeds_together": 1}])
    report = make_report(find_table("table-3"), ledger, variants=["bgrl", "raw"], datasets=["amazon-photo"])
    assert report.grids[-1].lines == [["BGRL", "1.0 s; 0.90 GB, 7 seeds"]]  # of the seeds that were trained together
    line, *_, empty = list(csv.DictReader(io.StringIO(report.csv)))
    found = [line[name] for name in ("train_seconds", "evaluate_seconds", "peak_bytes", "seeds_together")]
    assert found == ["1.0", "3.0", "900000000", "7"]
    assert empty["train_seconds"] == ""


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(fake_rows([93.0]))
    report = make_report(find_table("table-3"), ledger, variants=["bgrl"], datasets=["amazon-photo"])
    assert [line["std"] for line in csv.DictReader(io.StringIO(report.csv))] == ["", ""]
    assert "(1 cell)" in report.notes[-1]


def test_starred_rows_get_twenty_seeds_and_raw_features_one() -> None:
    table = find_table("table-3")
    assert len(seeds_for(table, "bgrl", None, quick=False)) == 20
    assert len(seeds_for(table, "dgi", None, quick=False)) == 5
    assert len(seeds_for(table, "raw", 7, quick=False)) == 1
    assert len(seeds_for(table, "bgrl", None, quick=True)) == 1
    assert len(seeds_for(table, "bgrl", 3, quick=True)) == 3


def test_memory_grows_with_the_square_for_grace_alone() -> None:
    graph = load("digits")
    bgrl, grace = (estimate_bytes(graph, as_published(recipe_of(name, "coauthor-cs"))) for name in ("bgrl", "grace"))
    assert grace - bgrl > 10 * 4 * graph.num_nodes**2 * 0.9
    few = estimate_bytes(graph, recipe_of("grace-2", "coauthor-cs"))
    assert few < grace
    text = refusal(graph, as_published(recipe_of("grace", "coauthor-cs")), limit=1_000_000)
    assert text is not None
    assert text.startswith("OOM: needs about")
    assert refusal(graph, recipe_of("grace", "coauthor-cs"), limit=None) is None


@pytest.mark.parametrize(
    ("needed", "limit", "text"),
    [
        (40.3e9, 16e9, "40 GB of 16 GB"),
        (16.2e9, 16e9, "16.200 GB of 16.000 GB"),
        (0.61e9, 0.5e9, "0.61 GB of 0.5 GB"),
        (12_000e9, 139e9, "12,000 GB of 139 GB"),
    ],
)
def test_what_is_needed_is_told_from_what_there_is(needed: float, limit: float, text: str) -> None:
    assert part_text(int(needed), int(limit)) == text


@pytest.mark.parametrize(
    ("text", "number"), [("16GB", 16 * 10**9), ("1.5 G", 15 * 10**8), ("800MB", 8 * 10**8), ("7", 7), ("16GiB", 2**34)]
)
def test_sizes_are_read(text: str, number: int) -> None:
    assert parse_bytes(text) == number


def test_table_5_has_validation_beside_test_as_the_paper_has(tmp_path: Path) -> None:
    ledger, table = Ledger(tmp_path / "ledger.jsonl"), find_table("table-5")
    key = {"dataset": "ogbn-arxiv", "variant": "bgrl", "settings": settings_id("bgrl", "ogbn-arxiv", quick=False)}
    evaluation = Evaluation("adamw", "accuracy", 71.0, 0.0, (71.0,), "", val_runs=(72.0,))
    ledger.add([{**key, "seed": 0, **_accuracies({"adamw": evaluation})}])
    grids = make_report(table, ledger).grids
    lines = {grid.caption: {line[0]: line[1:] for line in grid.lines} for grid in grids[:2]}
    assert lines["Protocol `adamw`, in %"]["BGRL*"] == ["71.00 (1)", "71.64 ± 0.12, -0.64"]
    assert lines["Protocol `adamw, validation nodes`, in %"]["BGRL*"] == ["72.00 (1)", "72.53 ± 0.09, -0.53"]


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="table-3"):
        find_table("table-2")
    with pytest.raises(InputError, match="bgrl"):
        find_variant("bgl")
    with pytest.raises(InputError, match="16GB"):
        parse_bytes("much")


def test_cells_are_computed_once_and_refused_ones_again_under_another_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "QUICK_STEPS", 20)
    monkeypatch.setattr(variants, "_FEWER_QUICK_STEPS", {})
    table = Table("table-3", ("raw", "random-init", "bgrl", "grace"), ("digits",))
    notes: list[str] = []

    def fill(memory_limit: int | None = None) -> Ledger:
        ledger = Ledger(tmp_path / "ledger.jsonl")
        how = Filling(quick=True, device="cpu", memory_limit=memory_limit, note=notes.append)
        fill_ledger(table, ledger, how, variants=table.variants, datasets=table.datasets)
        return ledger

    first = fill(memory_limit=parse_bytes("40MB"))
    assert [row["variant"] for row in first.rows] == ["raw", "random-init", "bgrl", "grace"]
    assert "OOM" in first.rows[-1]["oom"]
    assert all(row["accuracy"]["paper"] > 80 for row in first.rows[:3])
    assert len(fill(memory_limit=parse_bytes("40MB")).rows) == 4
    assert len(fill().rows) == 5
    cell = shown(table, Ledger(tmp_path / "ledger.jsonl"), "grace", "digits", "paper", quick=True)
    assert cell.mean is not None
    assert cell.mean > 80


@pytest.mark.parametrize("variant", ["raw", "random-init", "label-propagation", "supervised-gcn", "bgrl", "deepwalk"])
def test_every_kind_of_row_is_refused_by_a_limit_that_is_too_small(variant: str) -> None:
    graph, how = load("digits"), Filling(device="cpu", quick=True)
    assert refusal_of(graph, variant, replace(how, memory_limit=100_000)) is not None
    assert refusal_of(graph, variant, replace(how, memory_limit=10**9)) is None


def test_a_limit_is_shown_where_it_is_asked_for_and_hides_nothing_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "_FEWER_QUICK_STEPS", {"grace": 2})
    table, notes = Table("table-3", ("grace",), ("digits",)), list[str]()

    def text(memory_limit: int | None) -> str:
        ledger = Ledger(tmp_path / "ledger.jsonl")
        how = Filling(quick=True, device="cpu", memory_limit=memory_limit, note=notes.append)
        fill_ledger(table, ledger, how, variants=table.variants, datasets=table.datasets)
        report = make_report(
            table, ledger, variants=["grace"], datasets=["digits"], quick=True, memory_limit=memory_limit
        )
        (line,) = report.grids[0].lines
        (cell,) = list(csv.DictReader(io.StringIO(report.csv)))[:1]
        assert bool(cell["mean"]) == bool(cell["train_seconds"]) == ("OOM" not in line[1])
        return line[1]

    number = text(None)
    assert number.endswith("(1)")
    assert text(10**6).startswith("OOM: needs about")
    assert text(10**12) == text(None) == number
    assert text(10**6).startswith("OOM: needs about")
    assert len(notes) == 2  # one was trained and one refused, each once


def test_memory_that_others_hold_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "free_memory", lambda device: 1000)
    table, warnings = Table("table-3", ("grace",), ("digits",)), list[str]()

    def rows_with(held: int) -> int:
        monkeypatch.setattr(cells, "held_by_others", lambda device: held)
        ledger, how = Ledger(tmp_path / "ledger.jsonl"), Filling(quick=True, device="cpu", warn=warnings.append)
        fill_ledger(table, ledger, how, variants=table.variants, datasets=table.datasets)
        return len(ledger.rows)

    assert rows_with(90 << 30) == 0
    assert "others hold 97 GB" in warnings[0]
    assert (rows_with(0), len(warnings)) == (1, 1)


def test_a_graph_that_is_not_at_hand_is_said_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHSTRAP_DATA", str(tmp_path))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    notes: list[str] = []
    table = Table("table-3", ("raw",), ("no-such-graph", "digits"))
    how = Filling(quick=True, device="cpu", note=notes.append)
    missing = fill_ledger(table, ledger, how, variants=table.variants, datasets=table.datasets)
    assert list(missing) == ["no-such-graph"]
    assert [row["dataset"] for row in ledger.rows] == ["digits"]
    assert "raw" in VARIANTS


def test_settings_are_told_apart_by_what_matters() -> None:
    ids = [
        settings_id(name, "amazon-photo", quick=quick) for name in ("bgrl", "grace", "raw") for quick in (False, True)
    ]
    assert len(set(ids)) == len(ids)
    assert settings_id("raw", "amazon-photo", quick=False) == settings_id("raw", "cora", quick=False)
    usual = recipe_of("bgrl", "amazon-photo")
    changed = [usual.with_settings({"train.steps": 9999}), replace(usual, name="another name")]
    digests = [settings_digest(recipe, "trained") for recipe in (usual, *changed)]
    assert digests[0] != digests[1]
    assert digests[0] == digests[2]
    assert changed_settings(Recipe()) == {}
    assert changed_settings(usual)["train.learning_rate"] == 1e-4


@pytest.mark.parametrize("quick", [False, True])
def test_rows_without_a_recipe_are_told_apart_by_what_they_depend_on(
    quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids() -> list[str]:
        rows = ("supervised-gcn", "supervised-mlp", "label-propagation", "raw", "random-init")
        frozen = ("mag-label-propagation", "mag-frozen-bgrl", "mag-supervised")
        own = [settings_id(name, "amazon-photo", quick=quick) for name in rows]
        return [*own, *(mag_settings(name, "mag-like-0.01", quick) for name in frozen)]

    before = ids()
    wider = SupervisedSettings(hidden_size=128)
    monkeypatch.setattr(variants, "supervised_settings", lambda *, quick: wider)
    monkeypatch.setattr(baselines, "RESTARTS", (0.0,))
    monkeypatch.setattr(mag, "RESTARTS", (0.0,))
    for name in ("MLP", "QUICK_MLP"):
        monkeypatch.setattr(mag, name, wider)
    changed = [one != other for one, other in zip(before, ids(), strict=True)]
    assert changed == [True, True, True, False, False, True, True, False]


def test_rows_of_the_kept_ledger_that_no_recipe_describes_are_current() -> None:
    assert settings_id("supervised-gcn", "amazon-photo", quick=False) == "ca24cd31a5eb"
    assert settings_id("supervised-mlp", "amazon-photo", quick=False) == "ed7477a75165"
    assert settings_id("label-propagation", "amazon-photo", quick=False) == "de66f69759fc"


def test_usual_values_of_a_recipe_stay() -> None:
    """The ledger tells settings apart by what is not usual: were a usual value to change, rows that were trained with
    the one before would pass for new ones. Give the recipes that need it another value instead."""
    usual = usual_settings()
    kept = json.loads((FIXTURES / "usual_settings.json").read_text(encoding="utf-8"))
    assert {key: json.loads(json.dumps(usual[key])) for key in kept} == kept


def test_rows_of_ours_are_compared_seed_by_seed(tmp_path: Path) -> None:
    """Differences that are small beside the spread of either row show, for seeds are paired."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with_projector = [90.0, 92.1, 94.0, 96.0]
    ledger.add(fake_rows([91.0, 93.0, 95.1, 97.0, 50.0]))
    ledger.add(fake_rows(with_projector, variant="bgrl-projector"))
    asked = Asked(find_table("projector"), ledger, (), ["amazon-photo", "cora"])
    grid = compare_rows(asked, "bgrl-projector", "bgrl")
    assert grid.lines == [
        ["reference", "-1.00 ± 0.08!", "not computed"],
        ["paper", "-1.00 ± 0.08!", "not computed"],
    ]
    assert paired_p_value([1.0]) is None
    assert paired_p_value([1.0, -1.0, 0.5, -0.5]) == pytest.approx(1.0)
    assert grid.caption in to_markdown(make_report(find_table("projector"), ledger))


def test_a_row_of_a_family_has_a_recipe_of_it_or_none_at_all(tmp_path: Path) -> None:
    table = find_table("table-3")
    for dataset in (*TABLES["table-4"].datasets, "cora"):
        if f"best-{dataset}" in shipped_recipes():
            assert recipe_of("bgrl-best", dataset).name == f"best-{dataset}"
            assert why_not("bgrl-best", dataset) == ""
        else:
            assert why_not("bgrl-best", dataset) == "no recipe"
        cell = shown(table, Ledger(tmp_path / "none"), "bgrl-best", dataset, "reference", quick=False)
        assert row_title([cell]) == VARIANTS["bgrl-best"].title  # compared with a starred row, but not one itself
    assert recipe_of("bgrl", "amazon-photo").name == "amazon-photo"


@pytest.mark.parametrize("variant", ["supervised-gcn", "label-propagation"])
def test_rows_that_learn_from_labels_take_published_splits_where_probes_take_adamw(variant: str) -> None:
    graph = make_communities(num_nodes=90, num_classes=3, seed=0)
    part = torch.arange(90)[:, None] // 3 % 3  # classes take turns
    graph = replace(graph, name="ogbn-arxiv", splits=Splits(part == 0, part == 1, part == 2))
    (row,) = compute_cells(graph, variant, Filling(device="cpu", quick=True), [0])
    assert list(row["accuracy"]) == ["adamw"]
    assert row["accuracy"]["adamw"] > 40.0
