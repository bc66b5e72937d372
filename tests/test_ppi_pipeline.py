"""PPI from its published files to micro-F1: read, trained on some graphs, embedded on all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import make_communities

import graphstrap as gs
from graphstrap.cli._app import run

SMALL = {
    "encoder.name": "gcn",
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 16,
    "train.steps": 30,
    "train.warmup_steps": 3,
}
PARTS = {"train": [1, 2, 3], "valid": [4], "test": [5]}


def write_communities(folder: Path) -> None:
    """Five graphs in the layout of PPI; a node's labels are its community and one that half of its community has."""
    folder.mkdir(parents=True)
    for part, numbers in PARTS.items():
        graphs = [make_communities(num_nodes=120, num_classes=3, seed=number) for number in numbers]
        joined = gs.join_graphs(graphs)
        assert joined.labels is not None
        classes = joined.labels.numpy()
        labels = np.concatenate([np.eye(3)[classes], (classes[:, None] < [1, 2])], axis=1)
        links = [
            {"source": s, "target": t} for s, t in zip(joined.indices.tolist(), joined.targets.tolist(), strict=True)
        ]
        np.save(folder / f"{part}_feats.npy", joined.x.to_dense().numpy())  # type: ignore[union-attr]
        np.save(folder / f"{part}_labels.npy", labels.astype(np.int64))
        np.save(folder / f"{part}_graph_id.npy", np.repeat(numbers, 120))
        (folder / f"{part}_graph.json").write_text(json.dumps({"directed": False, "nodes": [], "links": links}))


@pytest.fixture
def ppi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gs.Graph:
    write_communities(tmp_path / "data" / "ppi" / "raw")
    monkeypatch.setenv("GRAPHSTRAP_DATA", str(tmp_path / "data"))
    return gs.load("ppi")


@pytest.mark.parametrize("recipe", ["ppi", "ppi-gat", "ppi-grace", "ppi-gat-grace"])
def test_every_recipe_trains_and_is_evaluated(ppi: gs.Graph, recipe: str) -> None:
    assert (ppi.num_graphs, ppi.num_classes) == (5, 5)
    settings = {**SMALL, **({"method.num_negatives": 8} if recipe == "ppi-grace" else {})}
    model = gs.Embedder(recipe=recipe, settings=settings, device="cpu").fit(ppi)
    paper, reference = (gs.evaluate(model.embed(ppi), ppi, protocol=name) for name in ("adamw", "adamw-reference"))
    assert paper.metric == reference.metric == "micro-f1"
    assert reference.mean > 65  # always saying "yes" gives 57, always "no" 0


def test_the_command_line_trains_evaluates_and_refuses_other_protocols(
    ppi: gs.Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    settings = [word for key, value in SMALL.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    more = ["--set", "train.evaluate_every=15", "--device", "cpu", "--quiet"]
    assert run(["fit", "ppi", "--recipe", "ppi", "--run", folder, *settings, *more]) == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "micro_f1" in record] == [15, 30]
    capsys.readouterr()
    assert run(["evaluate", folder, "--protocol", "adamw", "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "micro-f1"
    assert run(["evaluate", folder, "--device", "cpu"]) == 2
    assert "'adamw'" in capsys.readouterr().err


def test_learning_curves_are_those_of_micro_f1(ppi: gs.Graph, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    command = ["reproduce", "learning-curves", "--quick", "--datasets", "ppi", "--methods", "grace-2-gat"]
    assert run([*command, "--device", "cpu", "--ledger", str(ledger), "--to", str(tmp_path), "--quiet"]) == 0
    row = json.loads(ledger.read_text())
    assert row["metric"] == "micro-F1"
    assert len(row["curve"]["step"]) == 30
    assert "micro-F1" in (tmp_path / "learning-curves-quick.md").read_text()
    assert (tmp_path / "learning-curves-quick.png").stat().st_size > 1000
