"""Table 1: GRACE's memory grows with the square of the graph, BGRL's with the graph, and limits are kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from graphstrap_lab.bench.graphs import power_law_graph
from graphstrap_lab.reproduce.cells import Filling
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.memory import as_published, estimate_bytes, refusal
from graphstrap_lab.reproduce.peaks import (
    GENERATED,
    find_peak,
    make_graph,
    measure_peak,
    peak_recipe,
    peak_settings,
    sizes_of,
)
from graphstrap_lab.reproduce.reports import fill, make_report
from graphstrap_lab.reproduce.tables import Table, find_table
from graphstrap_lab.reproduce.variants import recipe_of

CPU = torch.device("cpu")
LEDGER = Path(__file__).parents[2] / "benchmarks" / "results" / "ledger.jsonl"


def peak(variant: str, dataset: str, num_bytes: float, *, num_nodes: int) -> dict[str, Any]:
    settings = peak_settings(variant, dataset, device="cpu")
    key = {"dataset": dataset, "variant": variant, "settings": settings, "seed": 0}
    return {**key, "num_nodes": num_nodes, "num_edges": 16 * num_nodes, "peak_bytes": int(num_bytes)}


def full_ledger(folder: Path) -> Ledger:
    """GRACE takes exactly 32 N^2 bytes, BGRL 1,000 N."""
    ledger = Ledger(folder / "ledger.jsonl")
    for variant, factor, power in (("grace", 32, 2), ("bgrl", 1000, 1)):
        made = {f"{GENERATED}{size}": size for size in sizes_of(variant, quick=False)}
        for name, size in {**made, "coauthor-physics": 34_493}.items():
            ledger.add([peak(variant, name, factor * size**power, num_nodes=size)])
    return ledger


def test_the_fitted_exponents_are_those_of_the_points(tmp_path: Path) -> None:
    report = make_report(find_table("table-1"), full_ledger(tmp_path))
    grows = {line[0]: line[-1] for line in report.grids[1].lines}
    assert grows == {"GRACE": "N^2.00", "BGRL": "N^1.00"}
    assert report.draw is not None
    for name in ("plot.png", "plot.svg"):
        report.draw(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    assert "generated-32000" in report.csv


def test_generated_graphs_that_did_not_fit_say_so_and_bend_no_line(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for size in (4000, 8000, 16_000):
        ledger.add([peak("grace", f"{GENERATED}{size}", 32 * size**2, num_nodes=size)])
    row = peak("grace", f"{GENERATED}32000", 0, num_nodes=32_000)
    del row["peak_bytes"]
    ledger.add([{**row, "oom": "OOM: needs about 33 GB of 16 GB", "memory_limit": 16 * 10**9}])
    grid = make_report(find_table("table-1"), ledger, variants=["grace"]).grids[1]
    assert grid.lines[0][-2:] == ["OOM: needs about 33 GB of 16 GB", "N^2.00"]


def test_a_limit_applies_to_what_was_measured(tmp_path: Path) -> None:
    ledger, table = full_ledger(tmp_path), find_table("table-1")
    grid = make_report(table, ledger, memory_limit=16 * 10**9).grids[0]
    header, lines = grid.header, grid.lines
    place = header.index("coauthor-physics")
    assert [line[place] for line in lines] == ["OOM: needs 38 GB of 16 GB", "0.03 GB"]
    assert lines[0][place + 1].startswith("OOM")
    assert make_report(table, ledger).grids[0].lines[0][place] == "38.07 GB"


def test_at_physics_sixteen_gigabytes_stop_grace_and_not_bgrl() -> None:
    graph = power_law_graph(34_493, num_features=8, seed=0, device=CPU)
    recipes = [as_published(recipe_of(name, "coauthor-physics")) for name in ("grace", "bgrl")]
    grace, bgrl = (refusal(graph, recipe, limit=16 * 10**9) for recipe in recipes)
    assert grace is not None
    assert "of 16 GB" in grace
    assert bgrl is None


def test_the_memory_of_a_step_is_measured_in_a_process_of_its_own() -> None:
    row = measure_peak(make_graph("generated-8000"), "bgrl", Filling(device="cpu"))
    assert 2_000_000 < row["peak_bytes"] < 500_000_000
    assert row["num_nodes"] == 8000
    assert {"git", "hardware", "recipe", "precision"} <= set(row)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="where memory stands is read from /proc")
@pytest.mark.parametrize(("variant", "dataset"), [("grace", "generated-4000"), ("gmi", "digits")])
def test_what_is_taken_on_a_cpu_is_what_was_estimated(variant: str, dataset: str) -> None:
    """Within a factor of 1.6 in one of two runs: how a heap is cut differs between them; of GRACE it was 1.75 without
    counting the holes, of GMI 2.4 without the rows that it draws."""
    graph = make_graph(dataset)
    wanted = estimate_bytes(graph, peak_recipe(variant, graph.name), on_cpu=True)
    rows = (measure_peak(graph, variant, Filling(device="cpu")) for _ in range(2))
    assert any(1 / 1.6 < row["peak_bytes"] / wanted < 1.6 for row in rows)


@pytest.mark.parametrize(
    ("variant", "dataset"),
    [
        ("grace", "generated-8000"),
        ("grace", "generated-16000"),
        ("bgrl", "generated-16000"),
        ("bgrl", "generated-256000"),
        ("grace", "amazon-photo"),
        ("grace", "coauthor-cs"),
        ("bgrl", "amazon-computers"),
        ("bgrl", "coauthor-cs"),
        ("bgrl", "coauthor-physics"),
    ],
)
def test_what_was_taken_on_cuda_is_what_is_estimated(
    variant: str, dataset: str, request: pytest.FixtureRequest
) -> None:
    """By the rows of the ledger that table 1 shows."""
    if not dataset.startswith(GENERATED):
        request.getfixturevalue("data_folder")
    found = find_peak(Ledger(LEDGER), dataset, variant, device="cuda")
    assert found is not None
    wanted = estimate_bytes(make_graph(dataset), peak_recipe(variant, dataset))
    close = 1.02 if variant == "grace" else 1.35
    assert 1 / close < wanted / found["peak_bytes"] < close


def test_what_does_not_fit_is_estimated_and_tried_again_under_another_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphstrap_lab.reproduce.peaks.QUICK_NODES", {"grace": 0})
    ledger = Ledger(tmp_path / "ledger.jsonl")
    table = Table("table-1", ("grace",), ("digits",), kind="memory")

    def ask(limit: int) -> None:
        how = Filling(quick=True, device="cpu", memory_limit=limit, note=lambda text: None)
        fill(table, ledger, how, variants=table.variants, datasets=table.datasets)

    ask(10**6)
    found = find_peak(ledger, "digits", "grace", device="cpu")
    assert found is not None
    assert found["oom"].startswith("OOM: needs about")
    ask(10**6)
    assert len(ledger.rows) == 1
    ask(2 * 10**6)
    assert len(ledger.rows) == 2


@pytest.mark.gpu
def test_on_cuda_memory_grows_by_the_powers_of_the_paper(tmp_path: Path) -> None:
    ledger, table = Ledger(tmp_path / "ledger.jsonl"), find_table("table-1")
    how = Filling(quick=True, device="cuda", memory_limit=60 * 10**9, note=lambda text: None)
    fill(table, ledger, how, variants=table.variants, datasets=())
    grows = {
        line[0]: float(line[-1].removeprefix("N^")) for line in make_report(table, ledger, device="cuda").grids[1].lines
    }
    assert 1.7 < grows["GRACE"] < 2.1  # in such small graphs, what grows with N still counts beside N^2
    assert grows["BGRL"] == pytest.approx(1.0, abs=0.2)
