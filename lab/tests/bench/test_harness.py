"""What the benchmark scripts share: options from a signature, rows that stay, time limits, help."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(SCRIPTS))

from harness import Record, run, within  # noqa: E402

FOUND: dict[str, Any] = {}


def main(
    what: Annotated[str, ("train", "choose")],
    *,
    seeds: Sequence[int] = (0, 1),
    steps: int | None = None,
    rate: float = 0.5,
    set_: Sequence[str] = (),
    write: bool = False,
    num_rows: int = 3,
    to: Path | None = None,
) -> None:
    FOUND.update(locals())


def called_with(words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["script.py", *words])
    run(main)
    return FOUND


def test_options_are_those_of_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    found = called_with(["train"], monkeypatch)
    assert (found["what"], found["seeds"], found["steps"], found["write"]) == ("train", (0, 1), None, False)
    words = "choose --seeds 2 3 --steps 5 --rate 1e-3 --set a=1 b=2 --write --num-rows 7 --to x.json"
    found = called_with(words.split(), monkeypatch)
    assert found["seeds"] == [2, 3]
    assert (found["steps"], found["rate"], found["num_rows"]) == (5, 1e-3, 7)
    assert found["set_"] == ["a=1", "b=2"]
    assert found["write"] is True
    assert found["to"] == Path("x.json")


def test_a_word_that_is_none_of_the_choices_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        called_with(["forget"], monkeypatch)
    assert "invalid choice: 'forget'" in capsys.readouterr().err


def test_rows_are_on_the_disk_at_once_and_kept_for_the_same_options(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    record = Record(path, "kind", options={"sizes": (1, 2)})
    record.add({"seed": 0})
    assert json.loads(path.read_text())["rows"] == [{"seed": 0}]
    again = Record(path, "kind", options={"sizes": [1, 2]})
    assert again.has(seed=0)
    assert not again.has(seed=1)
    assert Record(path, "kind", options={"sizes": [1]}).rows == []
    assert Record(path, "kind").rows == []


def test_time_that_is_up_ends_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    with within(0.0):
        time.sleep(60)
    assert "the same command goes on from here" in capsys.readouterr().out


@pytest.mark.parametrize("script", ["tune.py", "mag_step.py", "fuzz.py"])
def test_a_script_says_how_it_is_run(script: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPTS / script), "--help"], capture_output=True, text=True, check=True)
    assert f"python lab/benchmarks/{script}" in done.stdout
