"""The command line on a user's own tables, from fit to neighbours; and everything a user can get wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from conftest import make_communities
from safetensors import safe_open

from forked import exit_code_of
from graphstrap.cli._app import run

FAST = [
    *("--set", "encoder.hidden_sizes=[16]", "--set", "encoder.embedding_size=8", "--set", "train.steps=30"),
    *("--set", "encoder.own_features=0"),
    *("--set", "method.predictor_hidden_size=16", "--device", "cpu", "--quiet"),
]


def write_tables(folder: Path, *, num_nodes: int = 150, prefix: str = "u") -> tuple[Path, Path]:
    """A CSV pair with string ids, three classes, a fifth of the labels missing."""
    graph = make_communities(num_nodes=num_nodes, num_classes=3, seed=0)
    assert graph.x is not None
    x, labels = graph.x.to_dense().numpy(), np.asarray(graph.labels)
    nodes, edges = folder / "nodes.csv", folder / "edges.csv"
    header = ",".join(["id", *(f"w{j}" for j in range(x.shape[1])), "label"])
    rows = [
        ",".join([f"{prefix}{i}", *(f"{v:g}" for v in x[i]), "" if i % 5 == 0 else f"class {labels[i]}"])
        for i in range(num_nodes)
    ]
    nodes.write_text("\n".join([header, *rows]) + "\n")
    pairs = zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)
    edges.write_text("\n".join(["from,to", *(f"{prefix}{s},{prefix}{t}" for s, t in pairs if s < t)]) + "\n")
    return edges, nodes


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    edges, nodes = write_tables(folder)
    assert run(["fit", "--edges", str(edges), "--nodes", str(nodes), "--run", str(folder / "run"), *FAST]) == 0
    return folder / "run"


def output(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    capsys.readouterr()
    assert run([str(argument) for argument in arguments]) == 0
    return json.loads(capsys.readouterr().out)


def error(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert run([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_a_run_folder_holds_what_it_should(fitted: Path) -> None:
    names = {path.name for path in fitted.iterdir()}
    assert names == {
        "run.json",
        "recipe.toml",
        "metrics.jsonl",
        "run.lock",
        "checkpoint.safetensors",
        "model.safetensors",
    }
    info = json.loads((fitted / "run.json").read_text())
    assert info["format"] == 1
    assert info["graph"]["num_nodes"] == 150
    assert {"python", "torch", "processor"} <= set(info["environment"])
    records = [json.loads(line) for line in (fitted / "metrics.jsonl").read_text().splitlines()]
    assert {"step", "loss", "spread", "mean_norm", "effective_rank", "learning_rate"} <= set(records[-1])


@pytest.mark.parametrize("ending", ["parquet", "csv", "npy", "safetensors"])
def test_embeddings_come_out_with_their_ids(fitted: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    assert run(["embed", str(fitted), "--to", str(path)]) == 0
    expected = [f"u{i}" for i in range(150)]
    if ending == "npy":
        assert np.load(path).shape == (150, 8)
        assert np.load(tmp_path / "out.ids.npy").tolist() == expected
    elif ending == "safetensors":
        with safe_open(path, framework="np") as file:
            assert file.get_tensor("embeddings").shape == (150, 8)
    else:
        import duckdb

        rows = duckdb.connect().execute(f"SELECT * FROM '{path}'").fetchall()
        assert [row[0] for row in rows] == expected
        assert (len(rows[0][1]) if ending == "parquet" else len(rows[0]) - 1) == 8


def test_new_nodes_are_embedded_without_retraining(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty new nodes, some joined to old ones, some to each other only; it is said that old ones were meant."""
    nodes, edges, out = tmp_path / "new_nodes.csv", tmp_path / "new_edges.csv", tmp_path / "new.csv"
    header = (fitted.parent / "nodes.csv").read_text().splitlines()[0].removesuffix(",label").split(",")
    flipped = [header[0], *reversed(header[1:])]  # columns are matched by name, not by place
    nodes.write_text("\n".join([",".join(flipped), *(f"new{i}" + ",1" * (len(header) - 1) for i in range(20))]) + "\n")
    edges.write_text("\n".join(["from,to", *(f"new{i},u{i}" for i in range(10)), "new10,new11", "new12,new13"]) + "\n")
    before = (fitted / "model.safetensors").read_bytes()
    assert run(["embed", str(fitted), "--edges", str(edges), "--nodes", str(nodes), "--to", str(out)]) == 0
    ids = [line.split(",")[0] for line in out.read_text().splitlines()[1:]]
    assert ids == [f"new{i}" for i in range(20)]
    assert "20 nodes are embedded within the run's graph" in capsys.readouterr().err
    assert (fitted / "model.safetensors").read_bytes() == before


def test_a_whole_new_graph_is_embedded(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges, nodes = write_tables(tmp_path, num_nodes=60, prefix="v")
    out = tmp_path / "out.csv"
    assert run(["embed", str(fitted), "--edges", str(edges), "--nodes", str(nodes), "--to", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 61
    assert "list the new ones alone" in capsys.readouterr().err


def test_new_nodes_of_several_types_come_with_the_whole_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edges, nodes = write_tables(tmp_path)
    header, *rows = nodes.read_text().splitlines()
    kinds = [f"{row},{'shop' if i % 3 else 'person'}" for i, row in enumerate(rows)]
    nodes.write_text("\n".join([f"{header},type", *kinds]) + "\n")
    tables, folder, out = ["--edges", str(edges), "--nodes", str(nodes)], str(tmp_path / "run"), tmp_path / "out.csv"
    assert run(["fit", *tables, "--run", folder, *FAST]) == 0
    nodes.write_text(nodes.read_text() + kinds[1].replace("u1,", "new,", 1) + "\n")
    edges.write_text(edges.read_text() + "new,u0\n")
    assert run(["embed", folder, *tables, "--to", str(out)]) == 0
    assert "alone" not in capsys.readouterr().err
    assert "new" in [line.split(",")[0] for line in out.read_text().splitlines()]


def test_evaluate_predict_and_neighbors(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = output(capsys, "evaluate", fitted, "--json", "--runs", "3")
    assert set(result) == {"protocol", "metric", "mean", "std", "runs"}
    assert (result["protocol"], result["metric"], len(result["runs"])) == ("paper", "accuracy", 3)
    neighbors = output(capsys, "neighbors", fitted, "--node", "u7", "-k", "4", "--json")
    assert [set(row) for row in neighbors] == [{"id", "similarity"}] * 4
    assert "u7" not in [row["id"] for row in neighbors]
    similarities = [row["similarity"] for row in neighbors]
    assert similarities == sorted(similarities, reverse=True)
    assert run(["predict", str(fitted), "--to", str(tmp_path / "labels.csv")]) == 0
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert lines[0] == "id,label,probability,p_class 0,p_class 1,p_class 2"
    assert [line.split(",")[0] for line in lines[1:]] == [f"u{i}" for i in range(0, 150, 5)]


@pytest.mark.parametrize("sampled", [False, True])
def test_semi_supervised_from_tables_to_predictions(tmp_path: Path, sampled: bool) -> None:
    edges, nodes = write_tables(tmp_path)
    more = ["--set", "sampling.fan_outs=[4, 4]", "--set", "sampling.batch_size=64"] if sampled else []
    more += ["--set", "method.label_inputs=true"] if sampled else []
    arguments = ["fit", "--edges", str(edges), "--nodes", str(nodes), "--method", "semi-supervised"]
    assert run([*arguments, "--run", str(tmp_path / "run"), *FAST, *more]) == 0
    assert run(["predict", str(tmp_path / "run"), "--to", str(tmp_path / "labels.csv")]) == 0
    lines = [line.split(",") for line in (tmp_path / "labels.csv").read_text().splitlines()]
    assert lines[0] == ["id", "label", "probability", "p_class 0", "p_class 1", "p_class 2"]
    assert [line[0] for line in lines[1:]] == [f"u{i}" for i in range(0, 150, 5)]
    right = [line[1] == f"class {int(line[0][1:]) % 3}" for line in lines[1:]]
    assert sum(right) > 0.6 * len(right)
    assert run(["embed", str(tmp_path / "run"), "--to", str(tmp_path / "out.npy")]) == 0
    assert np.load(tmp_path / "out.npy").shape == (150, 8)


def test_embeddings_as_a_folder_of_files(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["embed", str(fitted), "--to", str(tmp_path / "out"), "--rows-per-file", "60", "--file-format", "npy"]
    assert run([*folder, "--how", "layers"]) == 0
    assert run(["embed", str(fitted), "--to", str(tmp_path / "all.npy")]) == 0
    parts = [np.load(tmp_path / "out" / f"part-0000{number}.npy") for number in range(3)]
    np.testing.assert_allclose(np.concatenate(parts), np.load(tmp_path / "all.npy"), rtol=1e-4, atol=1e-5)
    assert "auto, full" in error(capsys, "embed", fitted, "--to", tmp_path / "x.npy", "--how", "quickly")


def test_fit_says_which_columns_it_reads_and_which_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    edges.write_text("a,b,amount\n" + "".join(f"{i},{(i + 1) % 20},{i}\n" for i in range(20)), encoding="utf-8")
    columns = [f"c{j}" for j in range(14)]
    rows = "".join(f"{i}," + ",".join(str((i * j) % 7) for j in range(14)) + "\n" for i in range(20))
    nodes.write_text("id," + ",".join(columns) + "\n" + rows, encoding="utf-8")
    fitting = ["fit", "--edges", str(edges), "--nodes", str(nodes), *(word for word in FAST if word != "--quiet")]
    assert run([*fitting, "--run", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().err
    assert "features: c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11 and 2 more; labels: none" in said
    assert "gcn does not read the edges' amount: take --set encoder.name=gat or mpnn" in said
    assert run([*fitting, "--run", str(tmp_path / "c"), "--set", "encoder.name=gat"]) == 0
    assert "does not read" not in capsys.readouterr().err


def test_evaluate_prints_baselines_and_names_the_protocol(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(fitted), "--protocol", "reference", "--runs", "2"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("largest class", "raw features", "random init", "bgrl", "reference"))


def test_evaluate_says_what_to_do_where_raw_features_are_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Links say nothing, features name the class."""
    random = np.random.default_rng(0)
    ends = [(i, int(j)) for i in range(200) for j in random.integers(0, 200, 3)]
    (tmp_path / "edges.csv").write_text("\n".join(["from,to", *(f"u{i},u{j}" for i, j in ends)]) + "\n")
    rows = [f"u{i}," + ",".join(f"{v:.3f}" for v in random.normal(i % 2, 0.7, 40)) + f",{i % 2}" for i in range(200)]
    header = ",".join(["id", *(f"x{j}" for j in range(40)), "label"])
    (tmp_path / "nodes.csv").write_text("\n".join([header, *rows]) + "\n")
    tables = ["--edges", str(tmp_path / "edges.csv"), "--nodes", str(tmp_path / "nodes.csv")]
    for weight, is_drowned in (("0.01", True), ("100", False)):
        folder = str(tmp_path / weight)
        own = ["encoder.own_features=40", "encoder.own_hops=0", f"encoder.own_weight={weight}"]
        settings = [word for setting in own for word in ("--set", setting)]
        assert run(["fit", *tables, "--run", folder, *FAST, *settings]) == 0
        capsys.readouterr()
        assert run(["evaluate", folder, "--runs", "3"]) == 0
        text = capsys.readouterr().err
        assert ("raw features are better" in text) == is_drowned
        assert ("--set encoder.own_weight=0.04" in text) == is_drowned


def test_evaluate_says_which_protocol_suits_the_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"u{i}" for i in range(60)]
    (tmp_path / "edges.csv").write_text("\n".join(["from,to", *(f"{a},{b}" for a, b in pairwise(names))]) + "\n")
    for number, many in enumerate((49, 48, 0)):
        last = "label" if many else "y"
        rows = [f"{name},{i % 7},{int(i < many) if many else i}" for i, name in enumerate(names)]
        nodes, folder = tmp_path / f"nodes{number}.csv", str(tmp_path / f"run{number}")
        nodes.write_text("\n".join([f"id,x,{last}", *rows]) + "\n")
        tables = ["--edges", str(tmp_path / "edges.csv"), "--nodes", str(nodes)]
        assert run(["fit", *tables, "--run", folder, *FAST]) == 0
        capsys.readouterr()
        assert run(["evaluate", folder, "--runs", "1"]) == (0 if many else 2)
        text = capsys.readouterr().err
        assert ("--protocol auc" in text) == (many == 49)
        assert ("--protocol links" in text) == (many == 0)


def test_links_are_evaluated_without_labels(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = output(capsys, "evaluate", fitted, "--protocol", "links", "--runs", "2", "--json")
    assert (result["protocol"], result["metric"], len(result["runs"])) == ("links", "auc", 2)
    assert run(["evaluate", str(fitted), "--protocol", "links", "--no-refit"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("raw features", "random init", "bgrl", "trained with them"))
    assert "hits@50" not in text  # there are fewer than 500 hidden edges


def test_warm_start_takes_the_earlier_runs_recipe(fitted: Path, tmp_path: Path) -> None:
    tables = ["--edges", str(fitted.parent / "edges.csv"), "--nodes", str(fitted.parent / "nodes.csv")]
    new = tmp_path / "warm"
    arguments = ["fit", *tables, "--run", str(new), "--from", str(fitted), "--set", "train.steps=3", "--quiet"]
    assert run(arguments) == 0
    assert "embedding_size = 8" in (new / "recipe.toml").read_text()


def test_verbs_of_a_run_say_that_its_tables_have_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges, nodes = write_tables(tmp_path)
    folder, out = tmp_path / "run", tmp_path / "out.csv"
    assert run(["fit", "--edges", str(edges), "--nodes", str(nodes), "--run", str(folder), *FAST]) == 0
    assert run(["embed", str(folder), "--to", str(tmp_path / "before.csv")]) == 0
    moved = edges.rename(tmp_path / "moved.csv")
    for verb, *rest in (["neighbors", "--node", "u7"], ["evaluate"], ["report"], ["embed", "--to", str(out)]):
        text = error(capsys, verb, folder, *rest)
        assert f"{edges} does not exist any more" in text
        assert str(folder / "run.json") in text
    assert run(["embed", str(folder), "--edges", str(moved), "--nodes", str(nodes), "--to", str(out), "--quiet"]) == 0
    assert out.read_text() == (tmp_path / "before.csv").read_text()
    info = (folder / "run.json").read_text()
    (folder / "run.json").write_text(info.replace(str(edges), str(moved)))
    assert run(["neighbors", str(folder), "--node", "u7"]) == 0


@pytest.mark.distributed
def test_demo_compares_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = output(capsys, "demo", "--steps", "10", "--picture", tmp_path / "map.png", "--json")
    assert set(result) == {"dataset", "raw", "random_init", "instant", "default", "seconds"}
    assert result["dataset"] == "stdlib"
    assert 50 < result["raw"] < 75
    assert (tmp_path / "map.png").stat().st_size > 10_000


def test_information_and_datasets(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "info", "--json")["backends"]["cpu"]["name"] == "csr"
    names = {entry["name"] for entry in output(capsys, "datasets", "--json")}
    assert {"stdlib", "digits", "amazon-photo", "cora"} <= names


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "no-such-data", "--run", "RUN"], "no-such-data"),
        (["fit", "edges.csv", "--run", "RUN"], "edges.csv is a table, not a dataset: on the command line give"),
        (["fit", "edges.csv", "nodes.csv", "--run", "RUN"], "got nodes.csv too: give tables with --edges and --nodes"),
        (["fit", "--run", "RUN"], "name one source"),
        (["fit", "digits"], "--run DIR"),
        (["fit", "digits", "--run", "."], "exists"),
        (["fit", "--edges", "missing.csv", "--run", "RUN"], "missing.csv"),
        (["fit", "digits", "--run", "RUN", "--set", "train.steps=soon"], "train.steps takes a whole number"),
        (["fit", "digits", "--run", "RUN", "--set", "train.stepz=5"], "did you mean 'train.steps'"),
        (["fit", "digits", "--run", "RUN", "--recipe", "corra"], "did you mean 'cora'"),
        (["fit", "digits", "--run", "RUN", "--method", "magic"], "method.name must be one of bgrl"),
        (["fit", "digits", "--run", "RUN", "--device", "abacus"], "auto, cpu or cuda"),
        (["fit", "digits", "--run", "RUN", "--from", "nowhere"], "nowhere"),
        (["fit", "digits", "--run", "RUN", "--from", "FITTED", "--recipe", "default"], "leave out --recipe"),
        (["fit", "digits", "--run", "RUN", "--from", "FITTED", "--recipe", "cora"], "leave out --recipe"),
        (["fit", "digits", "--run", "RUN", "--set", "train.graphs_per_step=3", "-q"], "graphs_per_step"),
        (["demo", "--picture", "no/such/folder/x.png"], "does not exist"),
        (["resume", "nowhere"], "nowhere"),
        (["embed", "FITTED", "--to", "out.xlsx"], "out.xlsx"),
        (["embed", "FITTED", "--to", "no/such/folder/out.csv"], "does not exist"),
        (["embed", "FITTED", "--to", "out.csv", "--nodes", "n.csv"], "--edges"),
        (["neighbors", "FITTED", "--node", "u777"], "there is no node 'u777'"),
        (["evaluate", "FITTED", "--protocol", "papper"], "there is no protocol 'papper'; did you mean 'paper'?"),
        (["report", "FITTED", "--protocol", "papper"], "there is no protocol 'papper'; did you mean 'paper'?"),
        (["evaluate", "FITTED", "--protocol", "public"], "give the node table a column `split` of train, val and test"),
        (["evaluate", "."], "not a run folder"),
        (["predict", "FITTED", "--to", "out.npy"], "out.npy"),
    ],
)
def test_bad_input_gives_one_sentence_and_leaves_nothing(
    arguments: list[str],
    words: str,
    fitted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = error(capsys, *(a.replace("RUN", "new-run").replace("FITTED", str(fitted)) for a in arguments))
    assert words in text
    assert text.count("\n") <= 2
    assert list(tmp_path.iterdir()) == []


def test_a_graph_of_another_width_is_refused_at_embed(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, edges = tmp_path / "n.csv", tmp_path / "e.csv"
    nodes.write_text("id,a,b\nx,1,2\ny,3,4\n")
    edges.write_text("from,to\nx,y\n")
    text = error(capsys, "embed", fitted, "--edges", edges, "--nodes", nodes, "--to", tmp_path / "out.csv")
    assert "trained on 30 feature columns, this graph has 2" in text
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.distributed
def test_killed_at_any_moment_and_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    """Killed five times at random moments; the final weights equal the uninterrupted run's, bit for bit."""
    edges, nodes = write_tables(tmp_path)
    fit = ["fit", "--edges", str(edges), "--nodes", str(nodes), *FAST]
    fit += ["--set", "train.steps=400", "--set", "train.checkpoint_seconds=0.05", "--set", "train.log_every=10"]
    assert exit_code_of(run, [*fit, "--run", str(tmp_path / "whole")]) == 0
    random = np.random.default_rng(0)
    arguments = [*fit, "--run", str(tmp_path / "cut")]
    for _ in range(5):
        seconds = random.uniform(0.001, 0.05)  # checkpoints are 0.05 s apart; five times of this are not 400 steps
        assert exit_code_of(run_until_killed, arguments, tmp_path / "cut", seconds) == -signal.SIGALRM
        arguments = ["resume", str(tmp_path / "cut"), "--quiet"]
        assert not (tmp_path / "cut" / "model.safetensors").exists()
    assert exit_code_of(run, arguments) == 0
    model = "model.safetensors"
    assert (tmp_path / "cut" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()


def run_until_killed(arguments: list[str], folder: Path, seconds: float) -> int:
    """Until so long after the first checkpoint that it writes. A process on a busy machine might kill too late; the
    alarm, which nobody handles, is the system's own: it ends all as kill -9 does, whoever holds the interpreter."""
    before = written(folder)

    def set_alarm() -> None:
        wait_until(lambda: written(folder) != before)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    Thread(target=set_alarm, daemon=True).start()
    return run(arguments)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    edges, nodes = write_tables(tmp_path)
    fit = ["fit", "--edges", str(edges), "--nodes", str(nodes), "--run", str(tmp_path / "run"), *FAST]
    command = [sys.executable, "-m", "graphstrap", *fit, "--set", "train.steps=100000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=one_thread())
    wait_until(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"graphstrap resume {tmp_path / 'run'}" in text
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def written(run_folder: Path) -> int:
    """When the last checkpoint was written."""
    path = run_folder / "checkpoint.safetensors"
    return path.stat().st_mtime_ns if path.exists() else 0


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def wait_until(condition: Any, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()
