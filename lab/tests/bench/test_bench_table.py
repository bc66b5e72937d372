"""The main table goes on where it was cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import make_communities

from graphstrap.cli._app import run
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap_lab.bench import table
from graphstrap_lab.bench.table import measure_table, summarize


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was trained, instead of training it."""
    done: list[tuple[str, int]] = []

    def pretend(graph: Graph, way: dict[str, Any], seeds: list[int], *, device: str) -> Iterator[dict[str, Any]]:
        for seed in seeds:
            done.append((way["graph"], seed))
            numbers = {"train_seconds": 1.0, "peak_gpu_bytes": None, "reference": 90.0 + seed, "paper": 89.0}
            yield {**way, "seed": seed, "num_together": len(seeds), **numbers}

    monkeypatch.setattr(table, "measure_seeds", pretend)
    monkeypatch.setattr(table, "load", lambda name: make_communities(num_nodes=60, num_classes=2, seed=0))
    return done


def test_rows_in_the_file_are_not_measured_again(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    to = tmp_path / "table.json"
    rows = measure_table(["first", "second"], num_seeds=2, device="cpu", to=to)
    for _ in range(3):
        next(rows)
    assert measured == [("first", 0), ("first", 1), ("second", 0)]
    assert len(json.loads(to.read_text())["rows"]) == 3  # written before the next is begun
    again = list(measure_table(["first", "second"], num_seeds=2, device="cpu", to=to))
    assert [is_new for _, is_new in again] == [False, False, False, True]
    assert measured[3:] == [("second", 1)]
    assert json.loads(to.read_text())["rows"] == [row for row, _ in again]


def test_rows_of_other_settings_are_measured(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    to = tmp_path / "table.json"
    list(measure_table(["first"], num_seeds=1, device="cpu", to=to))
    list(measure_table(["first"], num_seeds=1, device="cpu", to=to, steps=7))
    assert len(measured) == 2
    assert len(json.loads(to.read_text())["rows"]) == 2


def test_a_row_whose_recipe_has_changed_is_replaced(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    to = tmp_path / "table.json"
    list(measure_table(["first"], num_seeds=1, device="cpu", to=to))
    record = json.loads(to.read_text())
    record["rows"][0]["recipe_hash"] = "of an older recipe"
    to.write_text(json.dumps(record))
    list(measure_table(["first"], num_seeds=1, device="cpu", to=to))
    assert len(measured) == 2
    assert len(json.loads(to.read_text())["rows"]) == 1


def test_seeds_are_trained_together_where_asked(measured: list[tuple[str, int]]) -> None:
    rows = [row for row, _ in measure_table(["first"], num_seeds=5, device="cpu", together=3)]
    assert [row["num_together"] for row in rows] == [3, 3, 3, 2, 2]
    assert [row["seed"] for row in rows] == [0, 1, 2, 3, 4]


def test_summary_is_the_mean_over_seeds(measured: list[tuple[str, int]]) -> None:
    rows = [row for row, _ in measure_table(["first"], num_seeds=3, device="cpu")]
    (line,) = summarize(rows)
    assert (line["num_seeds"], line["reference"], line["paper_std"]) == (3, 91.0, 0.0)
    assert line["reference_std"] == pytest.approx(1.0)  # as everywhere else: of a sample


def test_a_file_of_something_else_is_not_overwritten(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    to = tmp_path / "notes.json"
    to.write_text('{"mine": 1}')
    with pytest.raises(InputError, match="no result"):
        list(measure_table(["first"], num_seeds=1, device="cpu", to=to))
    assert to.read_text() == '{"mine": 1}'
    assert measured == []


def test_the_verb_trains_and_evaluates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "table.json"
    arguments = ["bench", "table", "digits", "--seeds", "2", "--together", "2", "--steps", "2", "--device", "cpu"]
    arguments += ["--to", str(to)]
    assert run([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in rows] == [0, 1]
    assert all(10 < row[protocol] <= 100 for row in rows for protocol in ("paper", "reference"))
    assert run(arguments) == 0
    captured = capsys.readouterr()
    assert "in the file" in captured.err
    assert "digits" in captured.out
