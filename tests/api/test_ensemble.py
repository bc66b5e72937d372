"""Several models together: the mean of their probabilities, folds that are resumed, and OGB-LSC's file, by commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

from graphstrap.api.ensemble import answer_together, fold_folders, member_folders
from graphstrap.api.estimator import Embedder
from graphstrap.cli import _options as o
from graphstrap.cli._app import run as run_command
from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.io.source import Fold, Source
from graphstrap.io.store import write_store
from graphstrap.run.folder import Run

SETTINGS = ["encoder.hidden_sizes=[8]", "encoder.embedding_size=8", "train.steps=8", "train.precision=fp32"]
MAG_SETTINGS = ["encoder.hidden_sizes=[8]", "encoder.embedding_size=8", "encoder.num_steps=1", "train.steps=3"]


def set_options(settings: list[str]) -> list[str]:
    return [text for one in [*settings, "method.predictor_hidden_size=8"] for text in ("--set", one)]


def half_labelled() -> Graph:
    """Three classes; every other node has no label, and of the others a part is for validation."""
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    assert graph.labels is not None
    number = torch.arange(120)
    masks = [number % 4 == 0, number % 8 == 2, number % 8 == 6]
    labels = torch.where(number % 2 == 0, graph.labels, -1)
    return replace(graph, labels=labels, splits=Splits(*(mask[:, None] for mask in masks)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and, trained on it, three folds."""
    place = tmp_path_factory.mktemp("folds")
    write_store(half_labelled(), place / "graph.store")
    command = ["fit", str(place / "graph.store"), "--method", "semi-supervised", "--run", str(place / "run"), "-q"]
    assert run_command([*command, "--folds", "3", "--seed", "4", *set_options(SETTINGS)]) == 0
    return place


def read_csv(path: Path) -> dict[str, list[float]]:
    rows = [line.split(",") for line in path.read_text().splitlines()]
    return {row[0]: [float(cell) for cell in row[2:]] for row in rows[1:]}


def test_every_fold_is_a_run_with_its_own_split_and_seed(folder: Path) -> None:
    runs = [Run.open(one) for one in fold_folders(folder / "run")]
    assert [run.info["seed"] for run in runs] == [4, 5, 6]
    assert [run.restarts() for run in runs] == [[], [], []]  # never cut
    assert [run.info["source"]["fold"]["number"] for run in runs] == [0, 1, 2]
    graphs = [Source.from_dict(run.info["source"]).load() for run in runs]
    held_out = torch.stack([graph.splits.val[:, 0] for graph in graphs if graph.splits is not None])
    assert torch.equal(held_out.sum(0) == 1, torch.arange(120) % 8 == 2)
    assert run_command(["predict", str(folder / "run" / "fold-1"), "--to", str(folder / "one.csv"), "-q"]) == 0
    assert run_command(["embed", str(folder / "run"), "--to", str(folder / "h.csv"), "-q"]) == 2


def test_an_ensemble_is_the_mean_of_probabilities(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    each = []
    for one in fold_folders(folder / "run"):
        to = folder / f"{one.name}.csv"
        assert run_command(["predict", str(one), "--to", str(to), "-q"]) == 0
        each.append(read_csv(to))
    assert run_command(["predict", str(folder / "run"), "--to", str(folder / "all.csv"), "-q"]) == 0
    assert "60 nodes labelled by 3 models" in capsys.readouterr().out
    first, *others = fold_folders(folder / "run")
    named = [text for one in others for text in ("--ensemble", str(one))]
    assert run_command(["predict", str(first), *named, "--to", str(folder / "named.csv"), "-q"]) == 0
    together = read_csv(folder / "all.csv")
    assert together == read_csv(folder / "named.csv")
    assert len({tuple(own["1"][1:]) for own in each}) == 3
    for node, (highest, *probabilities) in together.items():
        np.testing.assert_allclose(probabilities, np.mean([own[node][1:] for own in each], axis=0), atol=1e-6)
        assert highest == pytest.approx(max(probabilities))


def test_models_of_different_graphs_do_not_answer_together(folder: Path) -> None:
    model, graph = o.open_run(folder / "run" / "fold-0", device="cpu")
    assert graph.labels is not None
    other = replace(graph, labels=graph.labels.masked_fill(torch.arange(120) == 4, -1))
    with pytest.raises(InputError, match="same nodes without a label"):
        answer_together([(model, graph), (model, other)])
    with pytest.raises(InputError, match="at least one"):
        answer_together([])


def test_folds_that_training_refuses_leave_no_folder(folder: Path, tmp_path: Path) -> None:
    command = ["fit", str(folder / "graph.store"), "--method", "semi-supervised", "--run", str(tmp_path / "run"), "-q"]
    assert run_command([*command, "--folds", "3", "--set", "train.graphs_per_step=3", *set_options(SETTINGS)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_folds_that_were_cut_go_on(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, again = folder / "run", tmp_path / "again"
    command = ["fit", str(folder / "graph.store"), "--method", "semi-supervised", "--run", str(again), "-q"]
    assert run_command([*command, "--folds", "3", "--seed", "4", *set_options(SETTINGS)]) == 0
    (again / "fold-2" / "model.safetensors").unlink()
    (again / "fold-2" / "checkpoint.safetensors").unlink()
    assert run_command(["resume", str(again), "-q"]) == 0
    for one in fold_folders(again):
        ours, theirs = (Embedder.load(place).model_.module.state_dict() for place in (one, whole / one.name))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert run_command(["resume", str(again), "-q"]) == 0
    assert "finished already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--method", "bgrl", "--folds", "2"], "semi-supervised"),
        (["--folds", "2", "--seeds", "2"], "--seeds"),
        (["--folds-of", "all"], "--folds"),
        (["--folds", "500"], "between 2"),
        (["--folds", "2", "--folds-of", "test"], "val, all"),
    ],
)
def test_what_does_not_go_together_is_refused_before_a_folder_appears(
    folder: Path, tmp_path: Path, more: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", str(folder / "graph.store"), "--run", str(tmp_path / "run"), "--method", "semi-supervised"]
    assert run_command([*command, *more]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("contents", ["{", "[]", '{"folds": "two"}', '{"folds": 4}'])
def test_a_damaged_list_of_folds_is_refused(folder: Path, tmp_path: Path, contents: str) -> None:
    for number in range(2):
        (tmp_path / f"fold-{number}").mkdir()
    (tmp_path / "folds.json").write_text(contents)
    with pytest.raises(InputError, match="folds"):
        fold_folders(tmp_path)
    assert member_folders([folder / "run", folder]) == [*fold_folders(folder / "run"), folder]


def test_a_fold_is_part_of_where_a_graph_comes_from() -> None:
    source = Source("digits", fold=Fold(1, 4, "all"))
    assert Source.from_dict(json.loads(json.dumps(source.to_dict()))) == source
    assert source.load().splits is not None


def test_answers_for_ogb_lsc_on_a_tiny_synthetic_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folds of its validation papers, then OGB-LSC's file, all by commands."""
    run, name = tmp_path / "run", "mag-like-0.00005"
    settings = set_options([*MAG_SETTINGS, "sampling.batch_size=22"])
    assert run_command(["fit", name, "--recipe", "mag240m", "--folds", "2", "--run", str(run), "-q", *settings]) == 0
    assert run_command(["predict", str(run), "--submission", "test-whole", "--to", str(tmp_path / "out")]) == 0
    heard = capsys.readouterr()
    assert "not MAG240M" in heard.err
    members = [o.open_run(one, device="cpu") for one in fold_folders(run)]
    splits = members[0][1].splits
    assert splits is not None
    papers = splits.test[:, 0].nonzero().squeeze(1).numpy()
    expected = np.mean([model.classify(graph, papers) for model, graph in members], axis=0).argmax(1)
    answers = _answers(tmp_path / "out" / "y_pred_mag240m.npz")
    assert np.array_equal(answers, expected)
    assert answers.dtype == np.int16
    split: dict[str, Any] = {"test-dev": papers[::-1][:3]}
    np.savez(tmp_path / "split.npz", **split)
    command = ["predict", str(run), "--submission", "test-dev", "--to", str(tmp_path / "out"), "-q"]
    assert run_command(command) == 2
    assert run_command([*command, "--split-file", str(tmp_path / "split.npz")]) == 0
    assert np.array_equal(_answers(tmp_path / "out" / "y_pred_mag240m_dev.npz"), expected[::-1][:3])


def _answers(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as archive:
        assert archive.files == ["y_pred"]
        return archive["y_pred"]
