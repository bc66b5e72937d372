"""What the command line says of run folders: how far they are, and what to do where a file of theirs is gone."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from test_cli import FAST, error, output, write_tables

from graphstrap.cli._app import run
from graphstrap.run.folder import Run
from graphstrap.run.recipe import load_recipe
from graphstrap.train import loop


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    edges, nodes = write_tables(tmp_path_factory.mktemp("tables"))
    return ["--edges", str(edges), "--nodes", str(nodes), *FAST]


@pytest.fixture(scope="module")
def finished(tables: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run(["fit", *tables, "--run", str(folder)]) == 0
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_information_gives_the_step_that_is_saved(
    tables: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C comes in step 7; step 1 is the last one that is logged before."""
    record = loop._Session.record

    def interrupt(self: loop._Session, step: int, *rest: object, **options: bool) -> None:
        if step == 6:
            os.kill(os.getpid(), signal.SIGINT)
        record(self, step, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop._Session, "record", interrupt)
    assert run(["fit", *tables, "--run", str(tmp_path / "run")]) == 130
    assert Run.open(tmp_path / "run").metrics()[-1]["step"] == 1
    facts = output(capsys, "info", tmp_path / "run", "--json")
    assert (facts["finished"], facts["step"], facts["steps"], facts["restarts"]) == (False, 7, 30, [])


def test_information_about_a_folder_of_seeds(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", *tables, "--run", str(tmp_path / "run"), "--seeds", "2"]) == 0
    facts = output(capsys, "info", tmp_path / "run", "--json")
    assert [(one["finished"], one["step"]) for one in facts] == [(True, 30), (True, 30)]
    assert run(["info", str(tmp_path / "run")]) == 0
    assert "seed-1: finished, step 30 of 30" in capsys.readouterr().out


def test_a_run_without_its_log_and_model_is_finished_again(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "metrics.jsonl").unlink()
    (copy / "model.safetensors").unlink()
    assert run(["resume", str(copy), "--quiet"]) == 0
    assert "trained 30 steps" in capsys.readouterr().out
    assert Run.open(copy).is_finished


def test_the_advice_for_a_damaged_model_is_good(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = copy / "model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:-50])
    text = error(capsys, "embed", copy, "--to", copy / "h.csv")
    assert f"delete it, and `graphstrap resume {copy}` makes it again" in text
    model.unlink()
    assert run(["resume", str(copy), "--quiet"]) == 0
    assert model.read_bytes() == whole


def test_a_warm_start_without_its_beginning_says_what_is_missing(
    finished: Path, tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", *tables, "--run", str(tmp_path / "run"), "--from", str(finished)]) == 0
    for name in ("start.safetensors", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    text = error(capsys, "resume", tmp_path / "run")
    assert "start.safetensors is missing" in text
    assert "resume" not in text


def _without_predictor(options: list[str]) -> list[str]:
    """GRACE has none, and says so."""
    place = options.index("method.predictor_hidden_size=16")
    return [*options[: place - 1], *options[place + 1 :]]


def test_a_method_that_is_named_wins_over_the_recipes(tables: list[str], tmp_path: Path) -> None:
    assert load_recipe("ppi-grace").method.name == "grace"
    one_graph = ["--set", "data.training_graphs=all", "--set", "train.graphs_per_step=0"]
    for name, options in {"grace": [], "bgrl": ["--method", "bgrl"]}.items():
        given = _without_predictor(tables) if name == "grace" else tables
        command = ["fit", *given, "--recipe", "ppi-grace", *one_graph, "--run", str(tmp_path / name)]
        assert run([*command, *options]) == 0
        assert Run.open(tmp_path / name).recipe.method.name == name


def test_training_that_is_stopped_outside_of_a_run_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    record = loop._Session.record

    def interrupt(self: loop._Session, step: int, *rest: object, **options: bool) -> None:
        if step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        record(self, step, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop._Session, "record", interrupt)
    assert run(["demo", "--steps", "5", "--picture", str(tmp_path / "map.png"), "--quiet"]) == 130
    assert "stopped after step 2" in capsys.readouterr().err
