"""Monitors tell a healthy embedding from a collapsed one; every record is sent on to the sinks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from graphstrap.api.estimator import Embedder
from graphstrap.cli._app import run as command
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.train.log import describe_moments, embedding_moments, finite_numbers, make_sinks


def describe(h: torch.Tensor) -> dict[str, float]:
    return describe_moments(*embedding_moments(h))


def test_collapsed_embeddings_have_no_spread() -> None:
    values = describe(torch.ones(50, 8))
    assert values["spread"] == pytest.approx(0, abs=1e-6)
    assert values["mean_norm"] == pytest.approx(8**0.5)


def test_effective_rank_counts_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    isotropic = torch.randn(5000, 8, generator=generator)
    assert describe(isotropic)["effective_rank"] == pytest.approx(8, abs=0.1)
    line = torch.randn(5000, 1, generator=generator) @ torch.randn(1, 8, generator=generator)
    assert describe(line)["effective_rank"] == pytest.approx(1, abs=0.01)


def test_spread_ignores_scale() -> None:
    h = torch.randn(100, 8, generator=torch.Generator().manual_seed(1))
    one, ten = describe(h), describe(10 * h)
    assert one["spread"] == pytest.approx(ten["spread"], rel=1e-5)
    assert ten["mean_norm"] == pytest.approx(10 * one["mean_norm"], rel=1e-5)


SETTINGS = {"train.steps": 10, "train.log_every": 5, "encoder.hidden_sizes": [8], "encoder.embedding_size": 4}


def test_a_sink_sees_every_record(communities: Graph) -> None:
    seen: list[Mapping[str, Any]] = []
    model = Embedder(settings=SETTINGS, device="cpu").fit(communities, mirrors=[seen.append])
    assert seen == model.metrics_
    assert [record["step"] for record in seen] == [1, 5, 10]


def test_only_finite_numbers_are_sent() -> None:
    record = {"step": 3, "loss": 1.5, "count": 2, "bad": float("nan"), "flag": True, "text": "x"}
    assert finite_numbers(record) == {"loss": 1.5, "count": 2.0}


@pytest.mark.extras("tensorboard")
def test_tensorboard_files_hold_the_curve(communities: Graph, tmp_path: Path) -> None:
    sinks = make_sinks([f"tensorboard:{tmp_path}"])
    model = Embedder(settings=SETTINGS, device="cpu").fit(communities, mirrors=sinks)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 5, 10]
    assert events.Scalars("loss")[-1].value == pytest.approx(model.metrics_[-1]["loss"])


@pytest.mark.extras("mlflow")
@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_holds_the_curve(communities: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    with pytest.raises(InputError, match="MLFLOW_TRACKING_URI"):
        make_sinks(["mlflow"])
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    model = Embedder(settings=SETTINGS, device="cpu").fit(communities, mirrors=make_sinks(["mlflow:trials"]))
    run = mlflow.active_run()
    mlflow.end_run()
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    assert [entry.step for entry in history] == [1, 5, 10]
    assert history[-1].value == pytest.approx(model.metrics_[-1]["loss"])
    assert mlflow.MlflowClient().get_experiment(run.info.experiment_id).name == "trials"


@pytest.mark.parametrize(("name", "module"), [("tensorboard:x", "torch.utils.tensorboard"), ("mlflow", "mlflow")])
def test_a_missing_package_is_named(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match="pip install"):
        make_sinks([name])


@pytest.mark.parametrize("name", ["tensorboard", "wandb", ""])
def test_unknown_places_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["fit", "digits", "--run", "x", "--send-to", name]) == 2
    assert "tensorboard:FOLDER" in capsys.readouterr().err
