"""The ledger keeps what was computed, whatever happens to the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphstrap.errors import InputError
from graphstrap_lab.reproduce.ledger import Ledger


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
