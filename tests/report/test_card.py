"""The model folder: loads as a model does, and its card is well formed whatever names it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_build import FAST, fit

from graphstrap.api.estimator import Embedder
from graphstrap.cli._app import run as command
from graphstrap.evaluation.protocols import evaluate
from graphstrap.graph import Graph
from graphstrap.io.npz import write_npz
from graphstrap.report.card import write_model_folder
from graphstrap.report.scores import why_no_classes
from graphstrap.run.folder import Run


def test_the_folder_is_a_model_with_a_card(communities: Graph, tmp_path: Path) -> None:
    graph = replace(communities, name="a|b\n# `c`")
    model = fit(graph, tmp_path / "run")
    score = evaluate(model.embed(graph), graph, num_runs=1)
    write_model_folder(Run.open(tmp_path / "run"), model.model_, tmp_path / "hub", evaluations=[score])
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == [
        *("README.md", "config.json", "model.safetensors"),
    ]
    loaded = Embedder.load(tmp_path / "hub", device="cpu")
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


def write_npz_run(graph: Graph, folder: Path) -> Path:
    write_npz(folder / "graph.npz", graph)
    settings = [part for name, value in FAST.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    fitting = ["fit", str(folder / "graph.npz"), "--run", str(folder / "run"), "--quiet", "--device", "cpu"]
    assert command([*fitting, *settings]) == 0
    return folder / "run"


def test_what_is_not_a_model_folder_is_left_as_it_is(
    communities: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = write_npz_run(communities, tmp_path), tmp_path / "project"
    other.mkdir()
    assert command(["card", str(run), "--to", str(other), "--quiet"]) == 0
    assert command(["card", str(run), "--to", str(other), "--quiet"]) == 0
    (other / "README.md").write_text("mine")
    for config in ('{"library_name": "another"}', "[]", "no json", None):
        (other / "config.json").unlink() if config is None else (other / "config.json").write_text(config)
        capsys.readouterr()
        assert command(["card", str(run), "--to", str(other), "--quiet"]) == 2
        assert "choose another --to" in capsys.readouterr().err
        assert (other / "README.md").read_text() == "mine"
    assert command(["card", str(run), "--to", str(other / "README.md"), "--quiet"]) == 2


def test_the_card_names_why_there_is_no_score(communities: Graph, tmp_path: Path) -> None:
    assert communities.labels is not None
    few = communities.labels.clone()
    few[6:] = -1
    for labels, words in (
        (few, "Not evaluated: labelled nodes are 6, and an evaluation needs 10."),
        (torch.eye(3, dtype=torch.int64)[communities.labels], "Not evaluated: nodes have several labels each."),
        (torch.zeros_like(few), "Not evaluated: all labels are of one class."),
        (None, "Not evaluated: the graph has no labels."),
    ):
        assert f"Not evaluated: {why_no_classes(replace(communities, labels=labels))}." == words
    run = write_npz_run(replace(communities, labels=few), tmp_path)
    assert command(["card", str(run), "--to", str(tmp_path / "hub"), "--quiet"]) == 0
    assert (
        "Not evaluated: labelled nodes are 6, and an evaluation needs 10."
        in (tmp_path / "hub" / "README.md").read_text()
    )
