"""Workers that Ray starts give the bits of those that torchrun starts, also where one of them is killed."""

from __future__ import annotations

import importlib.util
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
HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray_a_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pip install \"graphstrap\[ray\]\""):
        launch_on_ray(lambda: 0, run=tmp_path / "run", num_workers=2, on_gpus=False)


needs_ray = pytest.mark.skipif(not HAS_RAY, reason='Ray is not installed: pip install "graphstrap[ray]"')


def begin(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A job on Ray with two workers, as soon as it has saved something."""
    command = [sys.executable, "-m", "graphstrap", *FIT, *options, "--engine", "ray", "--run", str(folder)]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (folder / "checkpoint.safetensors").exists():
        assert job.poll() is None
        time.sleep(0.02)
    return job


def often(*, steps: int) -> list[str]:
    return ["--workers", "2", "--set", "train.checkpoint_seconds=0.1", "--set", f"train.steps={steps}"]


@pytest.mark.distributed
@pytest.mark.slow
@needs_ray
def test_a_stopped_job_saves_and_goes_on(tmp_path: Path) -> None:
    options = often(steps=400)
    subprocess.run([sys.executable, "-m", "graphstrap", *FIT, *options, "--run", tmp_path / "whole"], check=True)
    code, said = stopped(begin(tmp_path / "cut", *options), signal.SIGTERM)
    assert code == 0
    assert "saved: go on with" in said
    last = Run.open(tmp_path / "cut").metrics()[-1]["step"]
    assert 0 < last < 400
    resume = [sys.executable, "-m", "graphstrap", "resume", str(tmp_path / "cut"), "--workers", "2", "--engine", "ray"]
    shown = subprocess.run([*resume, "--quiet"], check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    assert "trained 400 steps" in shown
    assert Run.open(tmp_path / "cut").restarts()[0]["step"] >= last
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert models[0] == models[1]


@pytest.mark.distributed
@pytest.mark.slow
@needs_ray
def test_ctrl_c_saves_too_and_a_second_job_is_refused(tmp_path: Path) -> None:
    job = begin(tmp_path / "run", *often(steps=100_000))
    second = [sys.executable, "-m", "graphstrap", "resume", str(tmp_path / "run"), "--workers", "2", "--engine", "ray"]
    refused = subprocess.run(second, stderr=subprocess.PIPE, text=True)
    code, said = stopped(job, signal.SIGINT)
    assert (code, refused.returncode) == (130, 2)
    assert "saved: go on with" in said
    assert "is in use by process" in refused.stderr
    assert not Run.open(tmp_path / "run").is_finished


def stopped(job: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """The exit code of a job that gets this signal, within 30 s, and what it said."""
    try:
        job.send_signal(number)
        said = job.communicate(timeout=30)[1]
    finally:
        job.kill()
    return job.returncode, said


@pytest.mark.distributed
@pytest.mark.slow
@needs_ray
def test_ray_and_a_killed_worker_give_the_same_model(tmp_path: Path) -> None:
    options = often(steps=400)
    subprocess.run([sys.executable, "-m", "graphstrap", *FIT, *options, "--run", tmp_path / "torch"], check=True)
    job = begin(tmp_path / "ray", *options)
    try:
        holder = re.match(r"process (\d+) on", (tmp_path / "ray" / "run.lock").read_text())
        assert holder is not None
        os.kill(int(holder[1]), signal.SIGKILL)
        said = job.communicate(timeout=600)[0]
    finally:
        job.kill()
    assert job.returncode == 0
    assert "trained 400 steps" in said
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("torch", "ray")]
    assert models[0] == models[1]
    run = Run.open(tmp_path / "ray")
    assert len(run.restarts()) == 1
    assert run.restarts()[0]["step"] > 0
    assert [record["step"] for record in run.metrics()] == [1, *range(5, 401, 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ray", "torch"]  # Ray's own notes are gone
