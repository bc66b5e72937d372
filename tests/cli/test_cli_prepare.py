"""graphstrap prepare: a store on the command line, from the tables to an embedding."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphstrap.cli._app import run
from graphstrap.io.datasets import load


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text("id,f,label\n" + "".join(f"n{i},{i % 7},{'ab'[i % 2]}\n" for i in range(60)))
    Path("edges.csv").write_text("source,target\n" + "".join(f"n{i},n{(i * 7 + 3) % 60}\n" for i in range(60)))
    return tmp_path


MAKE = ["prepare", "--edges", "edges.csv", "--nodes", "nodes.csv", "--to", "s", "--memory", "600MB", "--threads", "1"]


def test_prepare_check_fit_and_embed(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*MAKE, "--feature-dtype", "fp16"]) == 0
    shown = capsys.readouterr()
    assert "60 nodes" in shown.out
    assert "sorting edges" in shown.err
    assert run(["prepare", "--check", "s", "--quiet"]) == 0
    assert "whole" in capsys.readouterr().out
    assert run(["fit", "s", "--run", "r", "--set", "train.steps=2", "--quiet"]) == 0
    assert run(["embed", "r", "--to", "out.csv", "--quiet"]) == 0
    assert Path("out.csv").read_text().count("\n") == 61


def test_parts_from_tables_and_from_a_store(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*MAKE, "--quiet"]) == 0
    cut = ["--partitions", "3", "--partitioner", "streaming", "--quiet"]
    assert run(["prepare", "--store", "s", "--to", "p", *cut]) == 0
    assert "of the edges join different parts" in capsys.readouterr().out
    assert run([*MAKE[:6], "q", *MAKE[7:], *cut]) == 0
    assert sorted(path.name for path in Path().iterdir()) == ["edges.csv", "nodes.csv", "p", "q", "s"]
    for path in ("p", "q"):
        assert run(["prepare", "--check", path, "--quiet"]) == 0
        assert "3 parts" in capsys.readouterr().out
        assert load(path).fingerprint == load("s").fingerprint
    assert run(["fit", "p", "--run", "r", "--quiet"]) == 2
    assert "give --workers 3" in capsys.readouterr().err
    assert not Path("r").exists()


def test_damage_shows(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*MAKE, "--quiet"]) == 0
    data = bytearray(Path("s/features.0.npy").read_bytes())
    data[-1] ^= 1
    Path("s/features.0.npy").write_bytes(data)
    assert run(["prepare", "--check", "s", "--quiet"]) == 2
    assert "checksum" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "--edges", "edges.csv"], "--to STORE"),
        (["prepare", "--to", "s"], "--edges"),
        ([*MAKE, "--ogb", "x"], "--ogb"),
        ([*MAKE, "--memory", "lots"], "16GB"),
        ([*MAKE, "--memory", "10MB"], "at least"),
        ([*MAKE, "--feature-dtype", "fp8"], "fp16"),
        (["prepare", "--ogb", ".", "--to", "s"], "layout"),
        (["prepare", "--ogb", ".", "--to", "s", "--label-column", "y"], "column options"),
        (["prepare", "--check", "nothing"], "no store"),
        ([*MAKE[:-6], "--to", "edges.csv"], "exists"),
        (["prepare", "--store", "x", "--to", "s"], "--partitions"),
        (["prepare", "--store", "x", "--to", "s", "--partitions", "2"], "no store"),
        ([*MAKE, "--store", "x"], "--store"),
        ([*MAKE, "--partitions", "61"], "from 2 to 60"),
        ([*MAKE, "--partitions", "2", "--partitioner", "spectral"], "streaming"),
    ],
)
def test_bad_input(tables: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert message in capsys.readouterr().err
    assert not Path("s").exists()
