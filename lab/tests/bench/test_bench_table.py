"""The main table is a run of the cells of `reproduce`: it goes on where it was cut, in the same ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import make_communities

from graphstrap.cli._app import run
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap_lab.bench import table
from graphstrap_lab.bench.table import measure_table, table_grid
from graphstrap_lab.page import make_blocks, render_page
from graphstrap_lab.reproduce.cells import Filling
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.variants import changed_settings, settings_id


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was trained, instead of training it."""
    done: list[tuple[str, int]] = []

    def pretend(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
        assert how.recipe is not None
        done.extend((graph.name, seed) for seed in seeds)
        shared: Row = {
            "dataset": graph.name,
            "variant": variant,
            "settings": settings_id(variant, graph.name, quick=False, recipe=how.recipe),
            "recipe": changed_settings(how.recipe),
            "device": "cuda",
            "hardware": "a GPU",
            "versions": {"torch": "9.9"},
            "git": {"sha": "0123456789", "changed": False},
            "train_seconds": 1.0,
            "peak_bytes": 2**30,
            "seeds_together": len(seeds),
        }
        return [{**shared, "seed": seed, "accuracy": {"reference": 90.0 + seed, "paper": 89.0}} for seed in seeds]

    def load(name: str) -> Graph:
        return replace(make_communities(num_nodes=60, num_classes=2, seed=0), name=name)

    monkeypatch.setattr(table, "compute_cells", pretend)
    monkeypatch.setattr(table, "load", load)
    return done


def measure(path: Path, *names: str, num_seeds: int = 1, together: int | None = None, **options: Any) -> Iterator[Row]:
    how = Filling(device="cpu", together=together, note=lambda text: None)
    for rows in measure_table(names, ledger=Ledger(path), how=how, num_seeds=num_seeds, **options):
        yield from rows


def test_rows_in_the_ledger_are_not_measured_again(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    list(measure(path, "first"))
    rows = measure(path, "first", "second", num_seeds=2)
    next(rows)
    assert measured == [("first", 0), ("first", 1)]
    assert len(Ledger(path).rows) == 2  # written before the next graph is begun
    again = list(measure(path, "first", "second", num_seeds=2))
    assert [(row["dataset"], row["seed"]) for row in again] == [(n, s) for n in ("first", "second") for s in (0, 1)]
    assert measured[2:] == [("second", 0), ("second", 1)]
    assert Ledger(path).rows == json.loads(json.dumps(again))


def test_rows_of_other_settings_are_measured(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    list(measure(path, "first"))
    (other,) = measure(path, "first", settings={"train.steps": 7})
    assert other["recipe"]["train.steps"] == 7
    assert len(measured) == 2
    assert len(Ledger(path).rows) == 2


def test_a_row_whose_recipe_has_changed_is_measured_anew(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    (row,) = measure(path, "first")
    path.write_text(json.dumps({**row, "settings": "of an older recipe"}) + "\n")
    assert list(measure(path, "first")) == [row]
    assert len(measured) == 2


def test_seeds_are_trained_together_where_asked(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    rows = list(measure(tmp_path / "ledger.jsonl", "first", num_seeds=5, together=3))
    assert [row["seeds_together"] for row in rows] == [3, 3, 3, 2, 2]
    assert [row["seed"] for row in rows] == [0, 1, 2, 3, 4]


def test_a_line_is_the_mean_over_seeds(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    """And its deviation that of a sample, as everywhere else."""
    path = tmp_path / "ledger.jsonl"
    (line,) = table_grid(list(measure(path, "first", num_seeds=3, command="graphstrap bench table"))).lines
    assert line == ["first", "default", "3", "", "91.00 ± 1.00", "89.00 ± 0.00", "1.0", "1", "1.00 GiB"]
    page = "<!-- results: table -->\n<!-- end of results -->"
    text = render_page(page, make_blocks(page, results=tmp_path, images="images"))
    assert "**a GPU, PyTorch 9.9, source 0123456.** `graphstrap bench table`" in text
    assert "| " + " | ".join(line) + " |" in text


def test_by_the_paper_s_recipe_it_is_the_cell_of_table_3(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    (row,) = measure(tmp_path / "ledger.jsonl", "amazon-photo")
    assert row["settings"] == settings_id("bgrl", "amazon-photo", quick=False)
    assert table_grid([row]).lines[0][:4] == ["amazon-photo", "amazon-photo", "1", "93.17 ± 0.30"]


def test_a_file_of_something_else_is_not_overwritten(measured: list[tuple[str, int]], tmp_path: Path) -> None:
    to = tmp_path / "notes.json"
    to.write_text('{"mine": 1}')
    with pytest.raises(InputError, match="is not a cell"):
        list(measure(to, "first"))
    assert to.read_text() == '{"mine": 1}'
    assert measured == []


def test_the_verb_trains_and_evaluates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "ledger.jsonl"
    arguments = ["bench", "table", "digits", "--seeds", "2", "--together", "2", "--steps", "2", "--device", "cpu"]
    arguments += ["--to", str(to)]
    assert run([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in rows] == [0, 1]
    assert all(10 < row["accuracy"][protocol] <= 100 for row in rows for protocol in ("paper", "reference"))
    assert rows[0]["recipe"]["train.steps"] == 2
    assert rows[0]["measured_by"].startswith("graphstrap bench table --datasets digits --seeds 2")
    assert run(arguments) == 0
    captured = capsys.readouterr()
    assert f"2 of 2 seeds are in {to}" in captured.err
    assert "digits: bgrl" not in captured.err  # nothing was computed again
    assert "digits" in captured.out
    assert [row["seed"] for row in Ledger(to).rows] == [0, 1]
