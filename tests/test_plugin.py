"""A package of somebody else's adds a method and an encoder, and every verb knows them: `examples/plugin`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PLUGIN = Path(__file__).parent.parent / "examples" / "plugin"
SMALL = ("--set=encoder.embedding_size=16", "--set=encoder.own_features=0", "--device=cpu")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the plugin is installed; the package is built outside of the source tree."""
    folder = tmp_path_factory.mktemp("site")
    source = shutil.copytree(PLUGIN, tmp_path_factory.mktemp("source") / "plugin")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def graphstrap(environment: dict[str, str], *arguments: str | Path) -> str:
    command = [sys.executable, "-m", "graphstrap", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.distributed
def test_every_verb_knows_what_a_package_adds(environment: dict[str, str], tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out.npy"
    chosen = ["--method", "vicreg", "--set=encoder.name=linear-hops", "--set=encoder.num_hops=1", *SMALL]
    settings = ("--set=train.steps=600", "--set=train.checkpoint_seconds=0.1", "--quiet")
    fit = [sys.executable, "-m", "graphstrap", "fit", "digits", "--run", str(run), *chosen, *settings]
    training = subprocess.Popen(fit, env=environment, stderr=subprocess.DEVNULL)
    while not (run / "checkpoint.safetensors").exists() and training.poll() is None:
        time.sleep(0.01)
    training.send_signal(signal.SIGINT)
    assert training.wait(60) == 130
    graphstrap(environment, "resume", run, "--quiet")
    assert "num_hops = 1" in (run / "recipe.toml").read_text(encoding="utf-8")
    graphstrap(environment, "embed", run, "--to", out)
    assert np.load(out, allow_pickle=False).shape == (1797, 16)
    found = json.loads(graphstrap(environment, "evaluate", run, "--protocol", "knn", "--json", "--quiet"))
    assert found["mean"] > 80.0
    graphstrap(environment, "report", run)
    assert "vicreg" in (run / "report.html").read_text(encoding="utf-8").lower()


def test_without_the_package_a_sentence_says_what_is_known() -> None:
    command = [sys.executable, "-m", "graphstrap", "fit", "digits", "--run", "unused", "--method", "vicreg"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "method.name must be one of bgrl, " in done.stderr
