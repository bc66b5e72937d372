"""Every encoder learns: through the estimator, through the command line, and on CUDA as one captured program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_communities

import graphstrap as gs
from graphstrap.cli._app import run
from graphstrap.graph import Graph
from graphstrap.nn.encoders.edges import KnownEdges
from graphstrap.nn.methods import build_method
from graphstrap.nn.model import Model
from graphstrap.run.recipe import Recipe
from graphstrap.train.step import CapturedStep, EagerStep

SMALL: dict[str, Any] = {
    "encoder.hidden_sizes": [32, 32],
    "encoder.embedding_size": 32,
    "encoder.own_features": 0,
    "method.predictor_hidden_size": 32,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "gcn": {},
    "mean-pooling": {},
    "gat": {"encoder.hidden_sizes": [8, 8]},
    "mpnn": {"encoder.num_steps": 1},
}
every_encoder = pytest.mark.parametrize("name", ENCODERS)


def settings_for(name: str, **more: Any) -> dict[str, Any]:
    return {**SMALL, **ENCODERS[name], "encoder.name": name, "encoder.norm": "batch", **more}


@every_encoder
@pytest.mark.realdata
def test_training_on_cora_beats_random_weights(name: str, data_folder: Path) -> None:
    graph = gs.load("cora")
    scores = []
    for steps, rate in ((1, 0.0), (50, 0.01)):
        settings = settings_for(name, **{"train.steps": steps, "train.learning_rate": rate})
        model = gs.BGRL(seed=0, settings=settings).fit(graph)
        scores.append(gs.evaluate(model.embed(graph), graph, protocol="paper").mean)
    assert scores[1] > scores[0] + 4
    assert scores[1] > 40  # the largest class is 30 %


@pytest.mark.parametrize("name", ["mean-pooling", "gat", "mpnn"])
@pytest.mark.parametrize("method", ["bgrl", "grace"])
def test_the_command_line_trains_and_embeds(name: str, method: str, tmp_path: Path) -> None:
    found = settings_for(name, **{"train.steps": 2})
    settings = [f"{key}={value}" for key, value in found.items() if method == "bgrl" or "predictor" not in key]
    options = [word for setting in settings for word in ("--set", setting)]
    folder = str(tmp_path / "run")
    assert run(["fit", "digits", "--run", folder, "--method", method, "--quiet", *options]) == 0
    assert run(["embed", folder, "--to", str(tmp_path / "out.npy")]) == 0


def test_a_model_that_reads_edges_is_saved_and_loaded(tmp_path: Path) -> None:
    graph = with_edge_columns(make_communities(num_nodes=60, num_classes=3, seed=0))
    recipe = Recipe().with_settings(settings_for("gat"))
    model = Model.build(graph, recipe, seed=0)
    model.save(tmp_path)
    loaded = Model.load(tmp_path)
    assert loaded.edge_size == KnownEdges.of(graph).size == 2
    prepared = model.transform(graph)
    torch.testing.assert_close(loaded.method.embed(prepared), model.method.embed(prepared))


def with_edge_columns(graph: Graph) -> Graph:
    return replace(graph, edge_columns=torch.randn(graph.num_edges, 2, generator=torch.Generator().manual_seed(0)))


def run_steps(kind: type[EagerStep], name: str, device: str, precision: str) -> tuple[list[float], torch.nn.Module]:
    graph = with_edge_columns(make_communities(num_nodes=300, num_classes=3, seed=0)).to(device)
    settings = settings_for(name, **{"train.steps": 40, "train.learning_rate": 0.01, "train.precision": precision})
    recipe = Recipe().with_settings(settings)
    built = build_method(recipe, input_sizes=graph.num_features, seed=0, edge_size=KnownEdges.of(graph).size)
    method = built.to(device)
    step = kind(method, graph, recipe=recipe, seed=0)
    return [float(step(number)[0]) for number in range(1, 11)], method


@pytest.mark.gpu
@every_encoder
def test_cuda_equals_cpu(name: str) -> None:
    ours, _ = run_steps(EagerStep, name, "cuda", "fp32")
    theirs, _ = run_steps(EagerStep, name, "cpu", "fp32")
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.gpu
@every_encoder
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_captured_step_is_the_eager_one_and_repeats_bit_for_bit(name: str, precision: str) -> None:
    eager, _ = run_steps(EagerStep, name, "cuda", precision)
    first, second = (run_steps(CapturedStep, name, "cuda", precision) for _ in range(2))
    assert first[0] == pytest.approx(eager, rel=1e-3 if precision == "fp32" else 0.05)
    assert first[0] == second[0]
    assert all(torch.equal(a, b) for a, b in zip(first[1].parameters(), second[1].parameters(), strict=True))
