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
from test_workers import FIT

from graphstrap.errors import InputError
from graphstrap.parallel import launch_on_ray
from graphstrap.run import Run

HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray_a_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pip install \"graphstrap\[ray\]\""):
        launch_on_ray(lambda: 0, run=tmp_path / "run", num_workers=2, on_gpus=False)


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason='Ray is not installed: pip install "graphstrap[ray]"')
def test_ray_and_a_killed_worker_give_the_same_model(tmp_path: Path) -> None:
    fit = [sys.executable, "-m", "graphstrap", *FIT, "--workers", "2", "--set", "train.checkpoint_seconds=0.1"]
    fit += ["--set", "train.steps=400"]
    subprocess.run([*fit, "--run", tmp_path / "torch"], check=True)
    job = subprocess.Popen([*fit, "--engine", "ray", "--run", tmp_path / "ray"], stdout=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "ray" / "checkpoint.safetensors").exists():
            assert job.poll() is None
            time.sleep(0.02)
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
