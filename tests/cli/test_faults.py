"""What goes wrong around a run: kills, signals, full disks, two at once. Nothing is lost, and a sentence says so."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_cli import FAST, one_thread, wait_until, write_tables, written

from forked import exit_code_of
from graphstrap.cli._app import run
from graphstrap.cli.fit import supervise
from graphstrap.io.database import one_line_errors
from graphstrap.io.files import read_lines
from graphstrap.run.folder import INSTANT_FILE

NUM_KILLS = int(os.environ.get("GRAPHSTRAP_KILLS", "2"))
COMMAND = [sys.executable, "-m", "graphstrap"]


def fit_command(folder: Path, name: str, *more: str) -> list[str]:
    edges, nodes = write_tables(folder)
    return [*COMMAND, "fit", "--edges", str(edges), "--nodes", str(nodes), "--run", str(folder / name), *FAST, *more]


def start(command: list[str], before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, text=True, env=one_thread(), preexec_fn=before, stdout=pipe, stderr=pipe)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, text = process.communicate(timeout=300)
    assert "Traceback" not in text
    return process.returncode, text


def worker_of(launcher: int) -> int | None:
    """The process that a launcher has started."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children")
    numbers = children.read_text().split() if children.exists() else []
    return int(numbers[0]) if numbers else None


def num_restarts(run_folder: Path) -> int:
    return len(read_lines(run_folder / "restarts.jsonl"))


@pytest.mark.distributed
def test_kills_with_nobody_watching_give_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The worker is killed at random moments; the launcher starts it again. GRAPHSTRAP_KILLS=20 for more of it."""
    num_steps = 300 * NUM_KILLS
    settings = ["--set", f"train.steps={num_steps}", "--set", "train.checkpoint_seconds=0.05"]
    assert exit_code_of(run, fit_command(tmp_path, "whole", *settings)[len(COMMAND) :]) == 0
    launcher = start(fit_command(tmp_path, "cut", *settings, "--restarts", str(NUM_KILLS)))
    random, cut, killed = np.random.default_rng(0), tmp_path / "cut", 0
    while killed < NUM_KILLS and launcher.poll() is None:
        before = written(cut)
        wait_until(lambda before=before: written(cut) != before or launcher.poll() is not None)
        time.sleep(random.uniform(0.0, 0.05))
        worker = worker_of(launcher.pid)
        if worker is not None and not (cut / "model.safetensors").exists():
            os.kill(worker, signal.SIGKILL)
            killed += 1
            wait_until(lambda killed=killed: num_restarts(cut) == killed or launcher.poll() is not None)
    code, text = finish(launcher)
    assert code == 0, text
    assert killed == NUM_KILLS
    model = "model.safetensors"
    assert (cut / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()
    capsys.readouterr()
    assert run(["info", str(cut), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["finished"], facts["step"]) == (True, num_steps)
    steps = [restart["step"] for restart in facts["restarts"]]
    assert len(steps) == NUM_KILLS
    assert steps == sorted(steps)


@pytest.mark.parametrize("listed", ["run.json", "seeds.json", "folds.json"])
def test_what_has_begun_is_resumed_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    """A program that is killed in `fit` and ends well in `resume`, in the place of Python."""
    program, folder = tmp_path / "program", tmp_path / "run"
    program.write_text(
        f'#!/bin/sh\necho "$3" >> {tmp_path}/verbs\n[ "$3" = resume ] && exit 0\n'
        f"mkdir {folder} && echo {{}} > {folder}/{listed} && kill -9 $$\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert supervise(["fit", "digits", "--run", str(folder)], run=folder, restarts=1) == 0
    assert (tmp_path / "verbs").read_text().split() == ["fit", "resume"]


def test_mistakes_are_not_repeated_by_restarts(tmp_path: Path) -> None:
    arguments = [*COMMAND, "fit", "no-such-data", "--run", str(tmp_path / "run"), "--restarts", "3"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=one_thread())
    assert done.returncode == 2
    assert done.stderr.count("no-such-data") == 1


def test_sigterm_saves_and_ends_well(tmp_path: Path) -> None:
    process = start(fit_command(tmp_path, "run", "--set", "train.steps=100000"))
    wait_until(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code, text = finish(process)
    assert code == 0
    assert time.monotonic() - begin < 30
    assert f"graphstrap resume {tmp_path / 'run'}" in text
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_two_trainings_in_one_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = start(
        fit_command(tmp_path, "run", "--set", "train.steps=100000", "--set", "train.checkpoint_seconds=0.05")
    )
    folder = tmp_path / "run"
    wait_until(lambda: written(folder) != 0)
    capsys.readouterr()
    assert run(["resume", str(folder), "--quiet"]) == 2
    text = capsys.readouterr().err
    assert f"in use by process {process.pid} on {socket.gethostname()}" in text
    process.kill()
    process.communicate()
    (folder / "recipe.toml").write_text((folder / "recipe.toml").read_text().replace("steps = 100000", "steps = 90000"))
    process = start([*COMMAND, "resume", str(folder), "--quiet"])  # the lock went with the process
    before = written(folder)
    wait_until(lambda: written(folder) != before)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 0


def test_a_disk_that_fills_up_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the log reaches it, and every write fails from then on."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    settings = ["--set", "train.steps=100000", "--set", "train.checkpoint_seconds=0", "--set", "train.log_every=1"]
    code, text = finish(start(fit_command(tmp_path, "run", *settings), limit))
    assert code == 2
    assert text.count("\n") == 1
    assert "cannot be written: File too large" in text
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"run.json", "recipe.toml", "metrics.jsonl", "run.lock", "checkpoint.safetensors", INSTANT_FILE}
    process = start([*COMMAND, "resume", str(tmp_path / "run"), "--quiet"])  # there is room again
    before = written(tmp_path / "run")
    wait_until(lambda: written(tmp_path / "run") != before)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 0


def test_a_disk_too_small_for_a_checkpoint(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        command = fit_command(tmp_path, "disk/run", "--set", "train.checkpoint_seconds=0")
        code, text = finish(start(command))
        assert code == 2
        assert text.count("\n") == 1
        assert "No space left" in text
        assert not list(disk.rglob("*tmp*"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_folder_gives_one_sentence(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a read-only disk needs root")
    try:
        code, text = finish(start(fit_command(tmp_path, "disk/run")))
        assert code == 2
        assert "Read-only file system" in text
        assert text.count("\n") == 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_ctrl_c_while_duckdb_writes_is_a_keyboard_interrupt() -> None:
    import duckdb

    with pytest.raises(KeyboardInterrupt), one_line_errors("out.parquet", "write"):
        raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")


@pytest.mark.parametrize(("name", "expected"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_in_a_long_query_ends_prepare_and_leaves_nothing(tmp_path: Path, name: str, expected: int) -> None:
    import duckdb

    edges = tmp_path / "edges.csv"
    ends = "hash(i) % 1000000 AS source, hash(-i) % 1000000 AS target"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {ends} FROM range(6000000) t(i)) TO '{edges}'")
    process = start([*COMMAND, "prepare", "--edges", str(edges), "--to", str(tmp_path / "store"), "--quiet"])
    wait_until(lambda: (tmp_path / ".store.building").exists())
    time.sleep(1.0)  # the table is being copied
    begin = time.monotonic()
    process.send_signal(getattr(signal, name))
    code, text = finish(process)
    assert (code, text) == (expected, "graphstrap: stopped; no half-written file is left\n")
    assert time.monotonic() - begin < 30
    assert [path.name for path in tmp_path.iterdir()] == ["edges.csv"]


def test_ctrl_c_in_any_verb_gives_one_sentence(tmp_path: Path) -> None:
    """A signal while a verb is at work."""
    code = (
        "import os, signal, sys\n"
        "from graphstrap.cli._app import run\n"
        "import graphstrap.io.export as e\n"
        "e.check_embeddings_path = lambda to: os.kill(os.getpid(), getattr(signal, sys.argv[1]))\n"
        "sys.exit(run(['embed', 'x', '--to', 'out.csv']))\n"
    )
    for name, expected in (("SIGINT", 130), ("SIGTERM", 143)):
        done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, env=one_thread())
        assert done.returncode == expected
        assert done.stderr == "graphstrap: stopped; no half-written file is left\n"
