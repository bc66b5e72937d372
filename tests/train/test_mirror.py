"""Metrics are sent on as they are logged; what cannot be sent to is named."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graphstrap.api.estimator import BGRL
from graphstrap.cli._app import run as command
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.train.log import make_mirrors, numbers_of

SETTINGS = {"train.steps": 10, "train.log_every": 5, "encoder.hidden_sizes": [8], "encoder.embedding_size": 4}


def test_a_mirror_sees_every_record(communities: Graph) -> None:
    seen: list[Mapping[str, Any]] = []
    model = BGRL(settings=SETTINGS, device="cpu").fit(communities, mirrors=[seen.append])
    assert seen == model.metrics_
    assert [record["step"] for record in seen] == [1, 5, 10]


def test_only_finite_numbers_are_sent() -> None:
    record = {"step": 3, "loss": 1.5, "count": 2, "bad": float("nan"), "flag": True, "text": "x"}
    assert numbers_of(record) == {"loss": 1.5, "count": 2.0}


@pytest.mark.extras("tensorboard")
def test_tensorboard_files_hold_the_curve(communities: Graph, tmp_path: Path) -> None:
    mirrors = make_mirrors([f"tensorboard:{tmp_path}"])
    model = BGRL(settings=SETTINGS, device="cpu").fit(communities, mirrors=mirrors)
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
        make_mirrors(["mlflow"])
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    model = BGRL(settings=SETTINGS, device="cpu").fit(communities, mirrors=make_mirrors(["mlflow:trials"]))
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
        make_mirrors([name])


@pytest.mark.parametrize("name", ["tensorboard", "wandb", ""])
def test_unknown_places_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["fit", "digits", "--run", "x", "--send-to", name]) == 2
    assert "tensorboard:FOLDER" in capsys.readouterr().err
