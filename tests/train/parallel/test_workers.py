"""Workers from the command line: both launchers give the same run, and one that is killed is started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from conftest import make_communities
from in_processes import free_port, in_processes
from safetensors.torch import load_file
from torch.distributed.distributed_c10d import _set_pg_timeout

import graphstrap.train.parallel.workers as module
from forked import exit_code_of
from graphstrap.cli._app import run
from graphstrap.errors import LostWorkerError
from graphstrap.io.npz import write_npz
from graphstrap.run.folder import Run
from graphstrap.train.parallel.workers import ALONE, Workers, is_worker, was_killed

SETTINGS = ["sampling.fan_outs=[4,3]", "sampling.batch_size=64", "encoder.hidden_sizes=[16]", "train.log_every=5"]
SETTINGS += ["encoder.own_features=0"]  # which would import scikit-learn, a second a process
OPTIONS = ["--device", "cpu", "--quiet", *(word for one in SETTINGS for word in ("--set", one))]


@pytest.fixture
def fit(tmp_path: Path) -> list[str]:
    """The words of a short training."""
    write_npz(tmp_path / "graph.npz", make_communities(num_nodes=600, num_classes=3, seed=0))
    return ["fit", str(tmp_path / "graph.npz"), *OPTIONS]


def test_shares_are_everything_once() -> None:
    items = torch.arange(17)
    shares = [items[rank::3] for rank in range(3)]
    assert [list(Workers(rank, 3).share(range(17))) for rank in range(3)] == [share.tolist() for share in shares]
    assert torch.equal(torch.cat(shares).sort().values, items)


def test_nobody_else_is_needed() -> None:
    assert not is_worker()
    assert torch.equal(ALONE.add(torch.ones(2)), torch.ones(2))


@pytest.mark.parametrize(
    ("codes", "killed"), [([2, -15], False), ([1, 1], False), ([-15], False), ([-9, 1], True), ([-15, -6], True)]
)
def test_what_the_launcher_ended_itself_was_not_killed(codes: list[int], killed: bool) -> None:
    assert was_killed(codes) == killed


def test_bad_recipes_leave_no_folder(tmp_path: Path, fit: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    whole = ["--set", "sampling.fan_outs=[]", "--workers", "2", "--run", str(tmp_path / "run")]
    code = subprocess.run(  # workers are processes: their threads and signals stay out of pytest's
        [sys.executable, "-m", "graphstrap", *fit, *whole], check=False
    ).returncode
    assert code == 2
    assert "several workers share the roots" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.distributed
def test_no_thread_outlives_the_group(tmp_path: Path) -> None:
    """One that does may abort the interpreter at its end: it drops a tensor when there is no interpreter any more."""
    script = """
from contextlib import suppress
from pathlib import Path
import torch
from graphstrap.train.parallel.workers import joined
def names_of_threads():
    names = set()
    for task in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has just ended
            names.add(task.read_text().strip())
    return names
with joined(torch.device("cpu")) as workers:
    module = torch.nn.Linear(2, 2)
    module(torch.ones(1, 2)).sum().backward()
    torch.optim.AdamW(module.parameters()).step()
    workers.take_module_from_first(module)
    during = names_of_threads()
after = names_of_threads()
assert "pt_gloo_runloop" in during, during
assert not any("gloo" in name for name in after), after
"""
    (tmp_path / "script.py").write_text(script)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, tmp_path / "script.py"], check=True)


def waits_of_a_worker(workers: Workers) -> dict[str, bool]:
    _set_pg_timeout(timedelta(seconds=0.3))  # all patience there is
    lost = {}
    for name, wait in (("work", workers.wait_for_work), ("steps", workers.wait)):
        time.sleep(0.0 if workers.is_first else 1.0)
        try:
            wait()
            lost[name] = False
        except LostWorkerError:
            lost[name] = True
    return lost


@pytest.mark.distributed
def test_who_has_finished_work_of_its_own_waits_longer_than_for_a_step(tmp_path: Path) -> None:
    assert in_processes(waits_of_a_worker, folder=tmp_path)[0] == {"work": False, "steps": True}


def run_and_meet(arguments: list[str], environment: dict[str, str], said: Path) -> int:
    os.environ |= environment
    module.MEETING = timedelta(seconds=1)
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    return run(arguments)


@pytest.mark.parametrize(("rank", "address"), [("1", "127.0.0.1"), ("0", "127.0.0.1"), ("1", "nobody.invalid")])
def test_a_meeting_that_nobody_comes_to_ends_in_a_sentence(
    tmp_path: Path, rank: str, address: str, fit: list[str]
) -> None:
    port, said = str(free_port()), tmp_path / "said"
    environment = {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": address, "MASTER_PORT": port}
    assert exit_code_of(run_and_meet, [*fit, "--run", str(tmp_path / "run")], environment, said) == 2
    assert f"worker {rank} met nobody at {address}:{port} within 1 s" in said.read_text().splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.distributed
def test_both_launchers_a_killed_worker_and_a_killed_launcher_give_the_same_model(
    tmp_path: Path, fit: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which torchrun would set and ours would not
    fit += ["--set", "train.steps=150", "--set", "train.checkpoint_seconds=0.1"]  # both kills come before the last step
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    subprocess.run([*torchrun, "graphstrap", *fit, "--run", tmp_path / "torchrun"], check=True)

    folder = tmp_path / "ours"
    ours = [sys.executable, "-m", "graphstrap", *fit, "--workers", "2", "--restarts", "1", "--run", str(folder)]
    job = subprocess.Popen(ours, stderr=subprocess.PIPE, text=True)
    wait_until_saved(job, folder)
    (launcher,) = children_of(job.pid)
    os.kill(children_of(launcher)[-1], signal.SIGKILL)
    wait_until_saved(job, folder)
    assert children_of(job.pid) == [launcher]
    workers = children_of(launcher)
    assert len(workers) == 2
    os.kill(launcher, signal.SIGKILL)
    said = job.communicate(timeout=300)[1]
    assert job.returncode == 0, said
    assert "a worker was killed, all start again" in said
    assert "training was ended by SIGKILL: it goes on" in said
    assert not any(is_alive(worker) for worker in workers)
    assert len(Run.open(folder).restarts()) == 2

    assert [record["step"] for record in Run.open(folder).metrics()] == [1, *range(5, 151, 5)]
    models = [(path / "model.safetensors").read_bytes() for path in (tmp_path / "torchrun", folder)]
    assert models[0] == models[1]


def wait_until_saved(job: subprocess.Popen[str], folder: Path) -> None:
    """Until the job has written a checkpoint."""
    path = folder / "checkpoint.safetensors"
    before = path.stat().st_mtime_ns if path.exists() else None
    while not path.exists() or path.stat().st_mtime_ns == before:
        assert job.poll() is None
        time.sleep(0.02)


@pytest.mark.distributed
def test_a_second_job_in_the_folder_is_refused_and_a_stopped_one_is_saved(tmp_path: Path, fit: list[str]) -> None:
    folder = tmp_path / "run"
    steps = ["--set", "train.steps=100000", "--set", "train.checkpoint_seconds=0.1"]
    command = [sys.executable, "-m", "graphstrap", *fit, *steps, "--workers", "2", "--run", str(folder)]
    job = subprocess.Popen(command, text=True)
    wait_until_saved(job, folder)
    workers = children_of(job.pid)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # the folder is theirs all the same, and the second job gets their time
    command = [sys.executable, "-m", "graphstrap", "resume", str(folder), "--workers", "2", "--quiet"]
    slow_end = "import atexit, os, time; os.environ.get('RANK') == '0' and atexit.register(time.sleep, 2)"
    (tmp_path / "sitecustomize.py").write_text(slow_end)  # the worker that knows why is not the first to end
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    second = subprocess.run(command, capture_output=True, text=True, env=environment)
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 0
    assert second.returncode == 2
    assert second.stderr.count("is in use by process") == 1
    assert "Traceback" not in second.stderr
    saved = Run.open(folder)
    assert not saved.is_finished
    assert saved.checkpoint_path.exists()


@pytest.mark.distributed
def test_seeds_spread_over_workers_are_the_same_models(tmp_path: Path, fit: list[str]) -> None:
    fit += ["--set", "train.steps=10", "--seeds", "3"]
    assert exit_code_of(run, [*fit, "--workers", "1", "--run", str(tmp_path / "1")]) == 0
    two = [sys.executable, "-m", "graphstrap", *fit, "--workers", "2", "--run", str(tmp_path / "2")]
    subprocess.run(two, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    for seed in range(3):
        first, second = (load_file(tmp_path / n / f"seed-{seed}" / "model.safetensors") for n in ("1", "2"))
        assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


@pytest.mark.distributed
def test_workers_fill_one_ledger_with_every_cell_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = tmp_path / "ledger.jsonl"
    command = ["reproduce", "table-3", "--datasets", "digits", "--methods", "random-init", "--seeds", "3", "--quick"]
    where = ["--ledger", str(ledger), "--device", "cpu"]
    two = [sys.executable, "-m", "graphstrap", *command, *where, "--workers", "2"]
    shown = subprocess.run(two, check=True, capture_output=True, text=True)
    assert shown.stdout.count("QUICK:") == 1
    assert run([*command, *where, "--workers", "1"]) == 0  # there is nothing left to do
    assert capsys.readouterr().out.count("QUICK:") == 1
    rows = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert sorted(row["seed"] for row in rows) == [0, 1, 2]


def is_alive(process: int) -> bool:
    """Not one that has ended and that nobody has asked about yet."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children_of(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]
