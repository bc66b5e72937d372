"""The report of real runs: finished, cut, without labels; and what its verb says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

from graphstrap.api.estimator import Embedder
from graphstrap.cli._app import run as command
from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.io.npz import write_npz
from graphstrap.report.build import side_by_side, write_report
from graphstrap.report.scores import Scores, _is_one_rare, _largest, confuse, find_out, has_classes
from graphstrap.report.series import elapsed_seconds, training_series
from graphstrap.run.folder import Run

FAST = {
    "train.steps": 30,
    "train.log_every": 5,
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "encoder.own_features": 0,
    "method.name": "bgrl",
    "method.predictor_hidden_size": 16,
}


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def fit(graph: Graph, folder: Path) -> Embedder:
    return Embedder(settings=FAST, device="cpu").fit(graph, run=folder)


def test_a_finished_run_has_everything(communities: Graph, tmp_path: Path) -> None:
    model = fit(communities, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    health = write_report([(run, model)], tmp_path / "r.html", graph=communities, num_runs=1)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert health.headline in page.replace("&#x27;", "'")
    for words in ("raw features", "random init", "Nearest neighbours vote", "clustering", 'class="confusion"', "torch"):
        assert words in page
    data = data_of(page)
    assert {chart["name"] for chart in data["series"]} == {
        *("loss", "effective_rank", "spread", "mean_norm", "learning_rate", "target_decay"),
    }
    assert data["map"]["num_nodes"] == 120
    assert [column["title"] for column in data["map"]["columns"]] == ["label", "cluster", "predicted label", "degree"]
    assert set(data["map"]["kept"]) == {"neighbours", "pca"}


def test_without_labels_hidden_edges_stand_for_them(communities: Graph, tmp_path: Path) -> None:
    graph = replace(communities, labels=None)
    model = fit(graph, tmp_path / "run")
    write_report([(Run.open(tmp_path / "run"), model)], tmp_path / "r.html", graph=graph)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count('class="score"') == 1
    assert "by an encoder that was trained with them" in page
    assert 'class="confusion"' not in page
    assert [column["title"] for column in data_of(page)["map"]["columns"]] == ["cluster", "degree"]


def test_links_that_are_asked_for_are_trained_anew(communities: Graph, tmp_path: Path) -> None:
    model = fit(communities, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    write_report([(run, model)], tmp_path / "r.html", graph=communities, protocols=["knn", "links"], num_runs=1)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count('class="score"') == 2
    assert "trained anew without them" in page


def with_split(graph: Graph) -> Graph:
    place = torch.arange(graph.num_nodes)[:, None] % 12
    return replace(graph, splits=Splits(place < 1, place == 1, place > 1))


def scores_of(
    graph: Graph, folder: Path, protocols: list[str] | None = None, *, num_runs: int | None = 1, settings: Any = None
) -> Scores:
    model = Embedder(settings={**FAST, "train.steps": 2, **(settings or {})}, device="cpu").fit(graph, run=folder)
    with side_by_side() as executor:
        h = [model.embed(graph)]
        return find_out([model], graph, h, executor=executor, protocols=protocols, num_runs=num_runs)[0]


@pytest.mark.parametrize("protocols", [["knn"], ["public"], ["links", "paper"]])
def test_protocols_that_are_asked_for_are_run_and_no_others(
    communities: Graph, tmp_path: Path, protocols: list[str]
) -> None:
    scores = scores_of(with_split(communities), tmp_path / "run", protocols)
    assert list(scores.tables) == protocols


def test_several_labels_a_node_are_evaluated_by_what_takes_them(communities: Graph, tmp_path: Path) -> None:
    assert communities.labels is not None
    several = replace(with_split(communities), labels=torch.eye(3)[communities.labels], class_names=None)
    scores = scores_of(several, tmp_path / "run", ["adamw"])
    assert [one.metric for one in scores.tables["adamw"].values()] == ["micro-f1"] * 4
    with pytest.raises(InputError, match="several labels a node"):
        scores_of(several, tmp_path / "other", ["paper"])


def test_protocols_that_cannot_be_run_are_refused(
    communities: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="no labels"):
        scores_of(replace(communities, labels=None), tmp_path / "a", ["paper"])
    with pytest.raises(InputError, match="published splits"):
        scores_of(communities, tmp_path / "b", ["public"])
    with pytest.raises(InputError, match="has learned from labels that the protocol 'knn' tests on"):
        scores_of(communities, tmp_path / "c", ["knn"], settings={"method.name": "semi-supervised"})
    (tmp_path / "b" / "model.safetensors").unlink()
    assert command(["report", str(tmp_path / "b"), "--protocol", "paper"]) == 2
    assert "no model to evaluate" in capsys.readouterr().err


def test_a_published_split_is_taken_whole_however_many_labels_there_are(
    communities: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = with_split(communities)
    usual = scores_of(graph, tmp_path / "usual")
    monkeypatch.setattr("graphstrap.report.scores.MAX_LABELLED", 30)
    sampled = scores_of(graph, tmp_path / "sampled")
    assert sampled.tables["public"] == usual.tables["public"]
    assert sampled.tables["paper"] != usual.tables["paper"]
    assert "a random 30 of the 120 labelled nodes" in sampled.note
    monkeypatch.setattr("graphstrap.report.scores.MAX_LABELLED", 19)  # there are 10 nodes for each of train and val
    without = scores_of(graph, tmp_path / "without")
    assert list(without.tables) == ["paper", "knn", "clustering"]
    assert "20 nodes to fit on and was left out" in without.note


@pytest.mark.parametrize(("protocol", "num_tested"), [("paper", 96), ("reference", 96), ("public", 100), ("knn", 96)])
def test_a_gain_comes_with_the_errors_of_a_proportion_and_over_splits(
    communities: Graph, tmp_path: Path, protocol: str, num_tested: int
) -> None:
    scores = scores_of(with_split(communities), tmp_path / "run", [protocol], num_runs=None)
    (gain,) = scores.gains
    *others, trained = (scores.tables[protocol][name] for name in ("random init", "instant", "bgrl"))
    untrained = max(others, key=lambda one: one.mean)
    assert gain.over == ("an untrained encoder" if untrained is others[0] else "instant, which needs no training")
    assert (gain.points, gain.num_tested) == (trained.mean - untrained.mean, num_tested)
    part = (trained.mean + untrained.mean) / 200
    assert len(trained.runs) == (1 if protocol == "public" else 10)  # labels are few
    spread = 0.0 if protocol == "public" else np.std(np.subtract(trained.runs, untrained.runs), ddof=1)
    assert gain.error == pytest.approx(np.sqrt(1e4 * part * (1 - part) / num_tested + spread**2))


def test_several_seeds_are_one_report_with_their_spread(
    communities: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphstrap.report.health.LEAST_GAIN", -100.0)  # instant is the better one here
    write_npz(tmp_path / "graph.npz", communities)
    settings = [part for name, value in FAST.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    folder = tmp_path / "runs"
    fitting = ["fit", str(tmp_path / "graph.npz"), "--seeds", "3", "--run", str(folder), "--quiet", "--device", "cpu"]
    assert command([*fitting, *settings]) == 0
    capsys.readouterr()
    assert command(["report", str(folder), "--quiet", "--runs", "1"]) == 0
    assert "3 seeds" in capsys.readouterr().out
    page = (folder / "report.html").read_text("utf-8")
    data = data_of(page)
    assert data["num_seeds"] == 3
    assert [chart["name"] for chart in data["series"] if "low" not in chart] == ["learning_rate", "target_decay"]
    losses = [[record["loss"] for record in Run.open(folder / f"seed-{seed}").metrics()] for seed in range(3)]
    loss = next(chart for chart in data["series"] if chart["name"] == "loss")
    assert loss["values"] == pytest.approx(np.mean(losses, axis=0).tolist())
    assert loss["low"] == np.min(losses, axis=0).tolist()
    assert loss["high"] == np.max(losses, axis=0).tolist()
    assert "1 random split, 3 seeds" in page
    assert data["map"]["notes"][0] == "The map shows seed 0."
    assert page.count('class="seeds"') == 1
    (folder / "seed-0" / "model.safetensors").unlink()
    assert command(["report", str(folder), "--quiet", "--runs", "1"]) == 0
    assert "1 of 3 seeds needs a closer look. Seed 0: The run is unfinished" in capsys.readouterr().out
    page = (folder / "report.html").read_text("utf-8")
    assert data_of(page)["map"]["notes"][0] == "The map shows seed 1."
    first = re.search(r'<table class="seeds">.*?<tr><th scope="row">0</th>.*?</tr>', page)
    assert first is not None
    assert first[0].endswith("<td>–</td></tr>")  # a seed without a model has no score


def test_a_cut_run_has_charts_and_says_how_to_go_on(
    communities: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(communities, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    assert command(["report", str(tmp_path / "run"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["findings"][0]["kind"] == "unfinished"
    page = Path(answer["report"]).read_text(encoding="utf-8")
    assert "graphstrap resume" in page
    assert "has left no model" in page
    data = data_of(page)
    assert data["map"] is None
    assert data["series"]


def test_the_verb_shows_ignored_columns_and_refuses_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = ["key,amount,name", *(f"n{i},{i % 7},{'<b>' if i % 2 else 'plain'}" for i in range(40))]
    (tmp_path / "nodes.csv").write_text("\n".join(nodes) + "\n")
    edges = ["a,b", *(f"n{i},n{(i * 3 + 1) % 40}" for i in range(40))]
    (tmp_path / "edges.csv").write_text("\n".join(edges) + "\n")
    folder = tmp_path / "run"
    tables = [
        "--edges",
        str(tmp_path / "edges.csv"),
        "--nodes",
        str(tmp_path / "nodes.csv"),
        "--ignore-columns",
        "name",
    ]
    settings = [part for name, value in FAST.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    assert command(["fit", *tables, "--run", str(folder), "--quiet", "--device", "cpu", *settings]) == 0
    assert command(["report", str(folder), "--quiet"]) == 0
    titles = [one["title"] for one in data_of((folder / "report.html").read_text("utf-8"))["map"]["columns"]]
    assert titles == ["cluster", "degree", "amount", "name"]
    capsys.readouterr()
    assert command(["report", str(folder), "--protocol", "papr"]) == 2
    assert "papr" in capsys.readouterr().err
    assert command(["report", str(folder), "--to", str(tmp_path / "no" / "r.html")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_small_graph_with_own_features_is_reported_by_a_fresh_process(tmp_path: Path) -> None:
    """Whatever else a test has imported: the report's threads must not meet inside a package that is half imported."""
    random = np.random.default_rng(0)
    rows = [f"n{i},{i % 2}," + ",".join(f"{value:.3f}" for value in random.normal(size=3)) for i in range(60)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,a,b,c", *rows]) + "\n")
    pairs = [f"n{a},n{b}" for a, b in random.integers(60, size=(150, 2))]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *pairs]) + "\n")
    settings = {**FAST, "encoder.own_features": 2}
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    tables = ["--edges", str(tmp_path / "edges.csv"), "--nodes", str(tmp_path / "nodes.csv")]
    assert command(["fit", *tables, "--run", str(tmp_path / "run"), "--quiet", "--device", "cpu", *arguments]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "graphstrap", "report", str(tmp_path / "run"), "--quiet"],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").exists()


def test_the_confusion_counts_test_nodes_and_merges_small_classes() -> None:
    graph = make_communities(num_nodes=300, num_classes=3, seed=0)
    assert graph.labels is not None
    perfect = np.eye(3)[graph.labels.numpy()]
    found = confuse(perfect, graph)
    assert found.accuracy == 100.0
    assert found.counts.sum() == 240
    assert found.mistakes == ()
    names, merged = _largest([str(i) for i in range(40)], np.ones((40, 40), dtype=np.int64))
    assert len(names) == 24
    assert names[-1] == "17 others"
    assert merged.sum() == 1600
    assert has_classes(graph)


def test_time_is_added_up_from_speeds() -> None:
    records = [{"step": 10, "steps_per_second": 5.0}, {"step": 30, "steps_per_second": 10.0}]
    assert elapsed_seconds(records) == [2.0, 4.0]


def test_series_leave_out_what_is_no_number(communities: Graph, tmp_path: Path) -> None:
    model = fit(communities, tmp_path / "run")
    records: list[dict[str, Any]] = [
        {"step": 1, "loss": 1.0},
        {"step": 2, "loss": float("nan")},
        {"step": 3, "diverged": True},
    ]
    assert [chart["name"] for chart in training_series(records, model.recipe_)] == ["target_decay"]


def test_a_rare_class_is_judged_by_order_and_not_by_accuracy(tmp_path: Path) -> None:
    graph = make_communities(num_nodes=1_400, num_classes=7, seed=0)
    assert graph.labels is not None
    is_wrong = torch.rand(1_400, generator=torch.Generator().manual_seed(0)) < 0.03  # instant would score 100
    rare = replace(graph, labels=((graph.labels == 0) ^ is_wrong).long(), class_names=("usual", "rare"))
    scores = scores_of(rare, tmp_path / "run")
    assert list(scores.tables) == ["auc", "paper", "knn", "clustering"]
    assert scores.tables["auc"]["bgrl"].metric == "auc"
    assert scores.gains[0].num_tested < 200  # of the rare class
    few = replace(graph, labels=torch.where(torch.arange(1_400) < 10, 1, 0))
    assert "auc" not in scores_of(few, tmp_path / "few").tables


@pytest.mark.parametrize(
    ("num_rare", "total", "is_rare"),
    [(200, 1_400, True), (199, 1_400, False), (300, 1_400, False), (205, 60_000, False), (900, 60_000, True)],
)
def test_a_class_is_rare_where_enough_of_it_is_scored(num_rare: int, total: int, is_rare: bool) -> None:
    graph = Graph.from_edges([0], [1], num_nodes=total, labels=(torch.arange(total) < num_rare).long())
    assert _is_one_rare(graph) == is_rare
    assert not _is_one_rare(replace(graph, labels=torch.arange(total) < num_rare))


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_threads_are_shared_and_given_back(num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    with side_by_side() as executor:
        found = list(executor.map(lambda _: (threading.get_ident(), torch.get_num_threads()), range(8)))
    assert {share for _, share in found} == {max(1, num_threads // 2)}
    assert len({thread for thread, _ in found}) <= min(2, num_threads)
    assert torch.get_num_threads() == num_threads


@pytest.mark.usefixtures("threads")
def test_two_run_at_once() -> None:
    torch.set_num_threads(2)
    meeting = threading.Barrier(2)
    with side_by_side() as executor:
        both = [executor.submit(meeting.wait, timeout=60) for _ in range(2)]
        assert sorted(one.result() for one in both) == [0, 1]


@pytest.mark.usefixtures("threads")
def test_a_failure_is_not_swallowed_and_threads_are_given_back() -> None:
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError), side_by_side() as executor:
        executor.submit(lambda: 1 // 0).result()
    assert torch.get_num_threads() == 2
