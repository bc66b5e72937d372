"""The ledger keeps what was computed, whatever happens to the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphstrap.errors import InputError
from graphstrap.run.recipe import load_recipe
from graphstrap_lab.bench.record import write_record
from graphstrap_lab.bench.table import recipe_hash
from graphstrap_lab.reproduce.from_bench import cells_of_table
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.tables import find_table, make_cell


def row(seed: int, **more: object) -> dict[str, object]:
    return {"dataset": "cora", "variant": "bgrl", "settings": "abc", "seed": seed, **more}


def test_rows_are_found_again_by_a_new_reader(tmp_path: Path) -> None:
    Ledger(tmp_path / "deep" / "ledger.jsonl").add([row(0, value=1.5), row(1)])
    again = Ledger(tmp_path / "deep" / "ledger.jsonl")
    assert again.find(dataset="cora", seed=0) == [row(0, value=1.5)]
    assert again.find(dataset="pubmed") == []


def test_of_a_cell_computed_twice_the_newest_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add([row(0, value=1)])
    ledger.add([row(0, value=2)])
    assert ledger.find(seed=0) == [row(0, value=2)]
    assert len(Ledger(ledger.path).rows) == 2


def test_half_a_line_at_the_end_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).add([row(0), row(1)])
    path.write_bytes(path.read_bytes()[:-20])
    ledger = Ledger(path)
    assert [found["seed"] for found in ledger.rows] == [0]
    ledger.add([row(2)])
    assert [found["seed"] for found in Ledger(path).rows] == [0, 2]


def test_a_whole_row_without_the_end_of_its_line_stays(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).add([row(0), row(1)])
    path.write_bytes(path.read_bytes()[:-1])  # as some editors leave it
    Ledger(path).add([row(2)])
    assert [found["seed"] for found in Ledger(path).rows] == [0, 1, 2]


def test_what_did_not_fit_under_a_limit_hides_no_number(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add([row(0, value=1, memory_limit=None), row(0, oom="OOM", memory_limit=16)])
    ledger.add([row(0, oom="OOM again", memory_limit=16), row(0, value=2, memory_limit=None)])
    assert [found.get("value", found.get("oom")) for found in ledger.find(seed=0)] == [2, "OOM again"]


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        Ledger(tmp_path / "file" / "ledger.jsonl").check_writable()


@pytest.mark.parametrize("text", ["[1]\n", '{"a": 1}\n', "nonsense\n{}\n"])
def test_what_is_no_ledger_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match="line 1"):
        Ledger(path)


def test_cells_that_were_measured_as_a_table_are_taken_over_unless_the_recipe_has_changed(tmp_path: Path) -> None:
    path, usual = tmp_path / "table.json", recipe_hash(load_recipe("amazon-photo"))
    measured: dict[str, object] = {
        "graph": "amazon-photo",
        "recipe": "amazon-photo",
        "steps": None,
        "num_together": 2,
        "sha": "abc",
    }
    measured |= {"train_seconds": 7.0, "evaluate_seconds": 0.2, "peak_gpu_bytes": 10**9, "paper": 93.0}
    rows = [
        {**measured, "seed": 0, "recipe_hash": usual, "reference": 93.5},
        {**measured, "seed": 1, "recipe_hash": "older", "reference": 10.0},
    ]
    write_record(path, bench="table", command="graphstrap bench table", rows=rows)
    found = list(cells_of_table(path))
    assert [one["seed"] for one in found] == [0]
    Ledger(tmp_path / "ledger.jsonl").add(found)
    cell = make_cell(
        find_table("table-3"), Ledger(tmp_path / "ledger.jsonl"), "bgrl", "amazon-photo", "reference", quick=False
    )
    assert (cell.mean, cell.num_seeds) == (93.5, 1)
