"""`bench step --json` on a small graph, and the memory that it counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphstrap.cli._app import run
from graphstrap.errors import InputError
from graphstrap_lab.bench.measure import Timing, run_in_child, time_in_turn
from graphstrap_lab.bench.step import memory_on_cpu

CPU = torch.device("cpu")
KEYS = ("ours_ms", "baseline_ms", "speedup", "ours_bytes", "baseline_bytes")


def test_step_prints_json_and_writes_where_it_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "step.json"
    arguments = ["bench", "step", "--datasets", "digits", "--device", "cpu", "--rounds", "1", "--to", str(to), "--json"]
    assert run(arguments) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["dataset"] == "digits"
    assert row["device"] == "cpu"
    assert all(row[key] > 0 for key in KEYS)
    assert row["speedup"] == pytest.approx(row["baseline_ms"] / row["ours_ms"])
    record = json.loads(to.read_text())
    assert record["rows"] == [row]
    assert record["command"] == "graphstrap bench step --datasets digits --device cpu --rounds 1"
    assert {"python", "torch", "processor"} <= set(record["environment"])
    assert record["hardware"]["num_cores"] >= 1


@pytest.mark.parametrize(
    "spelling", [["nonsense"], ["--datasets", "digits,nonsense"], ["--precision", "fp7", "digits"]]
)
def test_bad_input_is_one_sentence(
    spelling: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphstrap_lab.bench import step

    monkeypatch.setattr(step, "time_in_turn", lambda *_, **__: {"ours": Timing((1.0,)), "baseline": Timing((1.0,))})
    monkeypatch.setattr(step, "run_in_child", lambda *_, **__: {"peak_bytes": 1, "reserved_bytes": None})
    assert run(["bench", "step", "--device", "cpu", *spelling]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nonsense" in captured.err or "fp7" in captured.err


@pytest.mark.parametrize("verb", ["step", "scale", "ops", "table"])
def test_a_file_that_cannot_be_written_shows_first(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", verb, "--device", "cpu", "--to", str(tmp_path / "nowhere" / "file.json")]) == 2
    assert "does not exist" in capsys.readouterr().err


_PEAKS = """
import torch
from graphstrap_lab.bench.step import memory_on_cpu
from graphstrap_lab.bench.measure import PeakMemory
for num_numbers in ({num_bytes} // 4, 0):
    with PeakMemory(torch.device("cpu")) as memory:
        torch.ones(num_numbers)
    print(memory.peak_bytes)
"""


def test_peak_memory_counts_what_was_freed_again() -> None:
    """In a process where nothing else runs."""
    num_bytes = 96 << 20
    command = [sys.executable, "-c", _PEAKS.format(num_bytes=num_bytes)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    some, none = map(int, printed.split())
    assert 0.9 * num_bytes < some < 1.5 * num_bytes
    assert none < 0.2 * num_bytes


def test_calls_take_turns_and_the_median_counts() -> None:
    order: list[str] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    times = time_in_turn(calls, rounds=3, device=CPU, round_seconds=0.0)
    assert order[-12:] == ["a", "a", "b", "b"] * 3  # one call of each turn is not timed
    assert len(times["a"].rounds_ms) == 3
    timing = Timing((1.0, 2.0, 3.0, 4.0, 100.0))
    assert (timing.median_ms, timing.iqr_ms) == (3.0, 2.0)
    assert Timing((5.0,)).iqr_ms == 0.0


def test_an_error_in_a_child_is_told() -> None:
    with pytest.raises(InputError, match="no dataset called 'nowhere'"):
        run_in_child(memory_on_cpu, side="ours", name="nowhere", precision=None)
