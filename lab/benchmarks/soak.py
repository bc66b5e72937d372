"""Sampled training for a long time, with the memory of the process over time: is it flat?

    python lab/benchmarks/soak.py [--minutes 60] [--nodes 50000] [--device cpu] [--to soak_cpu.json]

A random graph of 20 edges a node and 64 columns, fan-out 10 and 5, 512 roots, checkpoints every 20 s. Resident memory,
the heap in use and, on CUDA, what is allocated there are taken every 20 steps. Flat means: a line through the second
half of resident memory, and of what is allocated on the GPU, rises by less than 2 % of its mean an hour, or by less
than 32 MB over that half. JSON and picture are written every minute.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from graphstrap.api.estimator import Embedder
from graphstrap.errors import InterruptedTrainingError
from graphstrap.graph import Graph
from graphstrap.io.files import atomic_write
from harness import RESULTS, Record, Row, run


class Curve:
    """A mirror of metrics that notes how much memory there is, calls `write` every minute, and stops the training when
    the time is over."""

    def __init__(self, minutes: float, write: Callable[[list[Row]], None]) -> None:
        self.begin = self.written = time.monotonic()
        self.end, self.write = self.begin + 60 * minutes, write
        self.points: list[Row] = []

    def __call__(self, record: Mapping[str, Any]) -> None:
        now = time.monotonic()
        megabytes = {
            "resident_mb": resident_mb(),
            "gpu_mb": torch.cuda.memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0,
            "heap_in_use_mb": used_mb(),
        }
        point = {"seconds": now - self.begin, "step": record["step"], **megabytes}
        self.points.append({name: round(value, 1) for name, value in point.items()})
        if now > self.end:
            raise InterruptedTrainingError(record["step"])
        if now > self.written + 60 and len(self.points) >= 4:
            self.write(self.points)
            self.written = time.monotonic()


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class _MallInfo(ctypes.Structure):
    """What glibc's `mallinfo2` gives; `uordblks` is what of its heaps is in use."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def used_mb() -> float:
    """Heap in use: what is resident beyond it are gaps that a later block may fill, and files. 0 without glibc."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0.0
    ask.restype = _MallInfo
    return float(ask().uordblks) / 2**20


def make_graph(num_nodes: int) -> Graph:
    random = np.random.default_rng(0)
    ends = random.integers(0, num_nodes, (2, 10 * num_nodes))
    return Graph.from_edges(
        ends[0], ends[1], num_nodes=num_nodes, x=random.normal(size=(num_nodes, 64)).astype(np.float32)
    )


def describe(points: list[Row]) -> Row:
    """What the curve says so far, by a line through its second half."""
    late, are_flat = points[len(points) // 2 :], []
    facts: Row = {"steps": points[-1]["step"], "seconds": points[-1]["seconds"]}
    for name, column in (("", "resident_mb"), ("gpu_", "gpu_mb")):
        megabytes = np.array([point[column] for point in late])
        rise = float(np.polyfit([point["seconds"] for point in late], megabytes, 1)[0])  # a second
        mean = float(megabytes.mean())
        facts |= {f"{name}mean_mb_of_second_half": round(mean, 1), f"{name}rise_mb_an_hour": round(rise * 3600, 2)}
        are_flat.append(rise * 3600 < 0.02 * mean or rise * facts["seconds"] / 2 < 32)
    return {**facts, "flat": all(are_flat)}


def save(points: list[Row], to: Path) -> None:
    record = Record(to, "soak", **describe(points))
    record.rows = points[:: max(1, len(points) // 600)]
    record.write()
    with atomic_write(to.with_suffix(".png")) as temporary:
        draw(points, temporary)


def draw(points: list[Row], path: Path) -> None:
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    minutes = [point["seconds"] / 60 for point in points]
    labels = {"resident_mb": "resident", "heap_in_use_mb": "in use of the heap", "gpu_mb": "on the GPU"}
    for column, label in labels.items():
        values = [point[column] for point in points]
        if any(values):
            axes.plot(minutes, values, label=label)
    axes.set(xlabel="minutes", ylabel="MB", ylim=(0, None), title="Memory of sampled training")
    axes.legend()
    figure.savefig(path, dpi=110)


def main(*, minutes: float = 60.0, nodes: int = 50_000, device: str = "cpu", to: Path | None = None) -> None:
    to = to or RESULTS / f"soak_{device}.json"
    graph = make_graph(nodes)
    curve = Curve(minutes, partial(save, to=to))
    settings = {"sampling.fan_outs": [10, 5], "sampling.batch_size": 512, "train.steps": 10**9, "train.log_every": 20}
    settings |= {"encoder.hidden_sizes": [128], "encoder.embedding_size": 64, "method.predictor_hidden_size": 128}
    with tempfile.TemporaryDirectory() as folder:
        try:
            Embedder(settings=settings, device=device).fit(graph, run=Path(folder) / "run", mirrors=[curve])
        except InterruptedTrainingError as stop:
            print(f"{stop.step:,} steps in {time.monotonic() - curve.begin:.0f} s")
    save(curve.points, to)
    facts = describe(curve.points)
    print(facts)
    raise SystemExit(0 if facts["flat"] else 1)


if __name__ == "__main__":
    run(main)
