"""Workers that Ray starts give the bits of those that torchrun starts, also where one of them is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_workers import OPTIONS

from graphstrap.errors import InputError
from graphstrap.run.folder import Run
from graphstrap.train.parallel.ray import launch_on_ray

FIT = ["fit", "digits", *OPTIONS]


def test_without_ray_a_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install \"graphstrap\[ray\]\""):
        launch_on_ray(lambda: 0, run=tmp_path / "run", num_workers=2, on_gpus=False)


OPTIONS_400 = ["--workers", "2", "--set", "train.checkpoint_seconds=0.1", "--set", "train.steps=400"]


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "graphstrap", *map(str, words)]


def start(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, lines: int, job: subprocess.Popen[str]) -> None:
    """Until a file of a running job has so many lines."""
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        assert job.poll() is None, job.communicate()[1]
        time.sleep(0.02)


def stop(job: subprocess.Popen[str], number: signal.Signals) -> int:
    """The exit code of a job that gets this signal; it saves within 30 s and says so."""
    try:
        job.send_signal(number)
        said = job.communicate(timeout=30)[1]
    finally:
        job.kill()
    assert "saved: go on with" in said
    return job.returncode


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.extras("ray")
def test_a_job_that_is_killed_and_stopped_gives_the_same_model(tmp_path: Path) -> None:
    """One of its workers is killed, it is stopped by Ctrl-C and by SIGTERM, and torchrun's workers end it."""
    run, restarts = tmp_path / "ray", tmp_path / "ray" / "restarts.jsonl"
    subprocess.run(command(*FIT, *OPTIONS_400, "--run", tmp_path / "torch"), check=True)
    on_ray: list[str | Path] = ["resume", run, "--workers", "2", "--engine", "ray"]

    job = start(*FIT, *OPTIONS_400, "--engine", "ray", "--run", run)
    wait_for(run / "metrics.jsonl", 2, job)
    while not (run / "checkpoint.safetensors").exists():
        time.sleep(0.02)
    holder = re.match(r"process (\d+) on", (run / "run.lock").read_text())
    assert holder is not None
    os.kill(int(holder[1]), signal.SIGKILL)
    wait_for(restarts, 1, job)  # it has begun again by itself
    second = subprocess.run(command(*on_ray), stderr=subprocess.PIPE, text=True)
    assert second.returncode == 2
    assert "is in use by process" in second.stderr
    assert stop(job, signal.SIGINT) == 130
    assert not Run.open(run).is_finished

    job = start(*on_ray)
    wait_for(restarts, 2, job)
    assert stop(job, signal.SIGTERM) == 0
    last = Run.open(run).metrics()[-1]["step"]
    assert 0 < last < 400

    ended = subprocess.run(command("resume", run, "--workers", "2", "--quiet"), stdout=subprocess.PIPE, text=True)
    assert "trained 400 steps" in ended.stdout
    steps = [one["step"] for one in Run.open(run).restarts()]
    assert 0 < steps[0] <= steps[1] <= steps[2] < 400
    assert last <= steps[2]  # the last step that was logged; what is saved may be later
    assert [record["step"] for record in Run.open(run).metrics()] == [1, *range(5, 401, 5)]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("torch", "ray")]
    assert models[0] == models[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ray", "torch"]  # Ray's own notes are gone
