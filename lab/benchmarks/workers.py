"""An epoch of sampled BGRL by two workers, pinned to a core each, against one process pinned to one core.

    python lab/benchmarks/workers.py [--rounds 3] [--to lab/benchmarks/results/workers_cpu.json]

A graph in ogbn-arxiv's shape with 20,000 nodes, fan-out 10 and 5, 512 roots a step in all, a subgraph for each root (so
that half of the roots are half of the work), loopback (gloo). Rounds of one and of two workers alternate, and the first
steps of each are not counted. Where others use the machine, wall time says little, so the processor's seconds are there
too: `cpu_seconds` of the busiest worker is what the epoch would take on idle cores, if waiting for the other worker
costs nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from graphstrap.io.generate.arxiv import arxiv_like
from graphstrap.io.store import open_store, write_store
from graphstrap.nn.methods import build_method
from graphstrap.ops.memory import keep_freed_memory
from graphstrap.run.recipe import Recipe
from graphstrap.train.parallel.training import SharedStep
from graphstrap.train.parallel.workers import joined
from harness import Record, Row, run

NUM_NODES, WARMUP_STEPS = 20_000, 3
RECIPE = Recipe().with_settings(
    {
        "encoder.hidden_sizes": [256],
        "encoder.embedding_size": 128,
        "sampling.fan_outs": [10, 5],
        "sampling.batch_size": 512,
        "sampling.disjoint": True,
        "train.precision": "fp32",
    }
)


def measure_epoch(store: Path) -> None:
    """What a worker does; it prints its seconds."""
    rank = int(os.environ.get("RANK", "0"))
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    keep_freed_memory()
    with joined(torch.device("cpu")) as workers:
        graph = open_store(store)
        method = build_method(RECIPE, input_sizes=graph.num_features, seed=0)
        step = SharedStep(method, graph, recipe=RECIPE, seed=0, workers=workers)
        for number in range(1, WARMUP_STEPS + 1):
            step(number)
        workers.wait()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        steps = -(-graph.num_nodes // RECIPE.sampling.batch_size)
        for number in range(WARMUP_STEPS + 1, WARMUP_STEPS + steps + 1):
            step(number)
        seconds = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - begin_cpu}
        step.close()
    line = json.dumps({"rank": rank, "steps": steps, **seconds}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())  # whole: the other worker writes to the same pipe


def run_epoch(store: Path, num_workers: int) -> Row:
    command = [sys.executable, __file__, "--worker", str(store)]
    if num_workers > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_workers)]
        command = [sys.executable, *launcher, *command[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(found) == num_workers
    return {
        "num_workers": num_workers,
        "seconds": max(one["seconds"] for one in found),
        "cpu_seconds": max(one["cpu_seconds"] for one in found),
    }


def main(*, rounds: int = 3, to: Path | None = None, worker: Path | None = None) -> None:
    """`worker` is for the processes that this one starts."""
    if worker:
        measure_epoch(worker)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        write_store(arxiv_like(seed=0, num_nodes=NUM_NODES), store)
        measured = [run_epoch(store, size) for _ in range(rounds) for size in (1, 2)]
    record = Record(to, "workers", num_nodes=NUM_NODES)
    for size in (1, 2):
        row: Row = {"num_workers": size}
        for key in ("seconds", "cpu_seconds"):
            values = [one[key] for one in measured if one["num_workers"] == size]
            row |= {key: round(median(values), 3), f"{key}_of_rounds": [round(value, 3) for value in values]}
            if record.rows:
                row[f"speedup_by_{key}"] = round(record.rows[0][key] / row[key], 3)
        record.add(row)


if __name__ == "__main__":
    run(main)
