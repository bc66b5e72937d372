"""Random processes of one training job are killed with SIGKILL, again and again: does it end, and with the same model?

    python lab/benchmarks/kills.py [--kills 20] [--seed 0] [--to lab/benchmarks/results/kills.json]

The job is `graphstrap fit digits --workers 2 --restarts N`: a process that watches, a launcher, two workers. At random
steps, a random moment after the next checkpoint, one of the four is killed. Workers are started again by the launcher,
the launcher by the one that watches, and where that one is hit, as a scheduler does, by `graphstrap resume --workers 2`
from here. The JSON says who was killed at which step, what restarts.jsonl holds, and the accuracy beside an undisturbed
job's and beside other seeds'.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from graphstrap.run.folder import Run
from harness import GRAPHSTRAP, Record, Row, options_of, run

SETTINGS = {
    "sampling.fan_outs": "[5,3]",
    "sampling.batch_size": 128,
    "encoder.hidden_sizes": "[32]",
    "encoder.embedding_size": 32,
    "method.predictor_hidden_size": 64,
    "train.log_every": 10,
    "train.checkpoint_seconds": 0.2,
}


def children_of(process: int) -> list[int]:
    try:
        return [int(n) for n in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []


def processes_of(job: int, *, watched: bool) -> list[tuple[str, int]]:
    """Who is alive of the job, and as what."""
    launchers = children_of(job) if watched else [job]
    found = [("watcher", job)] if watched else []
    for launcher in launchers:
        found += [("launcher", launcher), *(("worker", worker) for worker in children_of(launcher))]
    return found


def saved_at(run: Path) -> int:
    try:
        return (run / "checkpoint.safetensors").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def step_of(run: Path) -> int:
    records = Run.open(run).metrics()
    return int(records[-1]["step"]) if records else 0


def disturb(run: Path, fit: list[str], at_steps: list[int], chance: random.Random) -> list[Row]:
    """Run the job to its end with a kill after each of these steps; who was killed, and when."""
    killed: list[Row] = []
    num_kills = len(at_steps)
    job, watched = subprocess.Popen([*fit, "--restarts", str(num_kills)]), True
    while True:
        before = saved_at(run)
        while saved_at(run) == before and job.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.5))
        if job.poll() is not None:
            if (run / "model.safetensors").exists():
                return killed
            assert job.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), job.returncode
            job, watched = subprocess.Popen([*GRAPHSTRAP, "resume", str(run), "--workers", "2", "--quiet"]), False
            continue
        candidates = processes_of(job.pid, watched=watched)
        if len(killed) == num_kills or len(candidates) != 3 + watched or (run / "model.safetensors").exists():
            continue
        if step_of(run) < at_steps[len(killed)]:
            continue
        role, process = chance.choice(candidates)
        os.kill(process, signal.SIGKILL)
        killed.append({"killed": role, "after_step": step_of(run)})
        print(killed[-1], flush=True)


def accuracy(run: Path) -> float:
    command = [*GRAPHSTRAP, "evaluate", str(run), "--protocol", "paper", "--json"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(shown.stdout)["mean"])


def main(*, kills: int = 20, steps: int = 800, seed: int = 0, to: Path | None = None) -> None:
    fit = [*GRAPHSTRAP, "fit", "digits", "--device", "cpu", "--quiet", "--workers", "2"]
    fit += options_of({**SETTINGS, "train.steps": steps})
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: Path(folder) / name for name in ("undisturbed", "seed-1", "seed-2", "killed")}
        for number, name in enumerate(("undisturbed", "seed-1", "seed-2")):
            subprocess.run([*fit, "--seed", str(number), "--run", str(runs[name])], check=True)
        begin = time.monotonic()
        chance = random.Random(seed)
        at_steps = sorted(chance.sample(range(steps * 9 // 10), kills))
        killed = disturb(runs["killed"], [*fit, "--run", str(runs["killed"])], at_steps, chance)
        seconds = time.monotonic() - begin
        models = [(runs[name] / "model.safetensors").read_bytes() for name in ("undisturbed", "killed")]
        restarts = [{"step": one["step"], "time": one["time"]} for one in Run.open(runs["killed"]).restarts()]
        accuracies = {name: accuracy(run) for name, run in runs.items()}
    facts: Row = {
        "every_kill_is_a_restart": len(restarts) == len(killed) == kills,
        "same_bits_as_undisturbed": models[0] == models[1],
    }
    record = Record(
        to, "kills", steps=steps, restarts=restarts, accuracy=accuracies, seconds=round(seconds, 1), **facts
    )
    record.rows = killed
    record.write()
    print(accuracies, facts)
    raise SystemExit(0 if all(facts.values()) else 1)


if __name__ == "__main__":
    run(main)
