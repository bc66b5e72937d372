"""Files of release 0.1 still open, embed to the same numbers, and go on: run folders, stores, parts, model folders.

`fixtures/release-0.1/write.py` made them once, with that release. A change that breaks one of these tests needs a
reader of the old form, never new fixtures.
"""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphstrap as gs
from graphstrap.cli._app import run

FIXTURES = Path(__file__).parent / "fixtures" / "release-0.1"
RUNS = ["bgrl", "grace", "semi-supervised", "deepwalk", "mpnn", "gat", "store"]
RUNS += ["seeds/seed-0", "seeds/seed-1", "folds/fold-0", "folds/fold-1"]
Array = np.ndarray[Any, Any]


def assert_same(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the fixtures that may be written to, with its own paths in place of FOLDER."""
    folder = tmp_path / "old"
    shutil.copytree(FIXTURES, folder)
    for path in folder.rglob("run.json"):
        path.write_text(path.read_text(encoding="utf-8").replace("FOLDER", str(folder)), encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def embedded(run_folder: str) -> Array:
    assert run(["embed", run_folder, "--to", "out.npy", "--device", "cpu", "--quiet"]) == 0
    loaded: Array = np.load("out.npy", allow_pickle=False)
    return loaded


def expected(name: str) -> Array:
    loaded: Array = np.load(FIXTURES / "embeddings" / f"{name.replace('/', '-')}.npy", allow_pickle=False)
    return loaded


@pytest.mark.parametrize("name", RUNS)
def test_a_run_embeds_to_the_same_numbers(old: Path, name: str) -> None:
    assert_same(embedded(f"runs/{name}"), expected(name))


def test_an_interrupted_run_goes_on_to_the_same_model(old: Path) -> None:
    begun = (old / "runs/interrupted/metrics.jsonl").read_text(encoding="utf-8")
    assert run(["resume", "runs/interrupted", "--quiet"]) == 0
    assert (old / "runs/interrupted/metrics.jsonl").read_text(encoding="utf-8").startswith(begun)
    # 400 steps on another processor may add up differences of rounding. Own columns are singular vectors, found anew,
    # which point one way or the other: products of rows are the same either way.
    found, wanted = embedded("runs/interrupted"), expected("interrupted")
    np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["folds", "semi-supervised"])
def test_a_run_predicts_the_same_labels(old: Path, name: str) -> None:
    assert run(["predict", f"runs/{name}", "--to", "out.csv", "--device", "cpu", "--quiet"]) == 0
    found, wanted = (
        list(csv.DictReader(path.read_text().splitlines())) for path in (Path("out.csv"), old / f"{name}.csv")
    )
    assert [(row["id"], row["label"]) for row in found] == [(row["id"], row["label"]) for row in wanted]
    for column in ("probability", "p_a", "p_b"):
        assert_same([float(row[column]) for row in found], [float(row[column]) for row in wanted])


def test_a_store_and_its_parts_hold_the_graph_of_the_tables(old: Path) -> None:
    graph = gs.read_tables("typed_edges.csv", "nodes.csv")
    for path in ("graph.store", "graph.parts"):
        assert run(["prepare", "--check", path]) == 0
        found = gs.load(path)
        assert (found.num_nodes, found.num_edges) == (graph.num_nodes, graph.num_edges)
    for found, name in ((graph, "gat"), (gs.load("graph.store"), "store")):
        assert found.has_fingerprint(json.loads((old / "runs" / name / "run.json").read_text())["graph"]["fingerprint"])


def test_a_model_folder_embeds_to_the_same_numbers(old: Path) -> None:
    model = gs.BGRL.load("card", device="cpu")
    assert_same(model.embed(gs.read_tables("edges.csv", "nodes.csv")), expected("bgrl"))
    assert run(["card", "runs/bgrl", "--to", "card", "--device", "cpu", "--quiet"]) == 0  # which it may replace


def test_the_other_verbs_take_an_old_run(old: Path) -> None:
    assert run(["info", "runs/bgrl"]) == 0
    assert run(["neighbors", "runs/bgrl", "--node", "n1", "-k", "2", "--device", "cpu"]) == 0
    assert run(["evaluate", "runs/seeds", "--protocol", "knn", "--device", "cpu", "--quiet"]) == 0
    tables = ["--edges", "edges.csv", "--nodes", "nodes.csv", "--device", "cpu", "--quiet"]
    assert run(["fit", *tables, "--from", "runs/bgrl", "--set", "train.steps=1", "--run", "runs/warm"]) == 0


@pytest.mark.parametrize(
    "path",
    [*FIXTURES.glob("recipes/*.toml"), *FIXTURES.glob("runs/*/recipe.toml")],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_recipe_keeps_its_meaning(path: Path) -> None:
    """0.1 wrote the settings of all methods and encoders; those that this one has no use for may be left out."""
    recipe = gs.load_recipe(str(path))
    old, new = tomllib.loads(path.read_text(encoding="utf-8")), tomllib.loads(recipe.to_toml())
    assert recipe.method.name == old["method"]["name"]
    assert recipe.encoder.name == old["encoder"]["name"]
    for section in ("data", "views", "encoder", "method", "sampling", "train"):
        kept = {key: value for key, value in old[section].items() if key in new[section]}
        assert {key: new[section][key] for key in kept} == kept


@pytest.mark.parametrize("method", [path.stem for path in sorted(FIXTURES.glob("recipes/*.toml"))])
def test_a_recipe_trains(old: Path, method: str) -> None:
    tables = ["--edges", "edges.csv", "--nodes", "nodes.csv", "--device", "cpu", "--quiet"]
    assert run(["fit", *tables, "--recipe", f"recipes/{method}.toml", "--run", "runs/new"]) == 0
    assert embedded("runs/new").shape[0] == 40
