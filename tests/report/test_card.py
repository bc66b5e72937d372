"""The model folder: loads as a model does, and its card is well formed whatever names it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_report import fit

from graphstrap.cli._app import run as command
from graphstrap.estimator import BGRL
from graphstrap.evaluate import evaluate
from graphstrap.graph import Graph
from graphstrap.report.card import write_model_folder
from graphstrap.run import Run


def test_the_folder_is_a_model_with_a_card(communities: Graph, tmp_path: Path) -> None:
    graph = replace(communities, name="a|b\n# `c`")
    model = fit(graph, tmp_path / "run")
    score = evaluate(model.embed(graph), graph, num_runs=1)
    write_model_folder(Run.open(tmp_path / "run"), model.model_, tmp_path / "hub", evaluations=[score])
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == [
        *("README.md", "config.json", "model.safetensors"),
    ]
    loaded = BGRL.load(tmp_path / "hub", device="cpu")
    assert np.array_equal(loaded.embed(graph), model.embed(graph))
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert config["embedding_size"] == model.embed(graph).shape[1]
    assert config["recipe"]["train"]["steps"] == 30
    card = (tmp_path / "hub" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: graphstrap\n")
    assert "`a/b # 'c'`" in card
    assert f"accuracy {score.mean:.2f}" in card


def test_a_run_folder_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert command(["card", str(tmp_path), "--to", str(tmp_path)]) == 2
    assert "choose another" in capsys.readouterr().err
