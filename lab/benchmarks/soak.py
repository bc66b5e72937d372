"""Sampled training for a long time, with the memory of the process over time: is it flat?

    python lab/benchmarks/soak.py [--minutes 60] [--nodes 50000] [--device cpu] [--to soak_cpu.json]

A random graph of 20 edges a node and 64 columns, fan-out 10 and 5, 512 roots, with checkpoints every 20 s into a run
folder and metrics logged. Resident memory, the heap in use and, on CUDA, what is allocated there are taken every 20
steps. Flat means: a line through the second half of resident memory, and of what is allocated on the GPU, rises by less
than 2 % of its mean an hour, or by less than 32 MB over that half. A picture lands beside the JSON. Both are written
every minute, so that whatever ends the benchmark, they show all but the last of it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
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
from graphstrap.run.environment import describe_environment, describe_git

Point = tuple[float, int, float, float, float]  # seconds, step, MB resident, on the GPU and in use of the heap


class Curve:
    """A mirror of metrics that notes how much memory there is, calls `write` every minute, and stops the training when
    the time is over."""

    def __init__(self, minutes: float, write: Callable[[list[Point]], None]) -> None:
        self.begin = self.written = time.monotonic()
        self.end, self.write = self.begin + 60 * minutes, write
        self.points: list[Point] = []

    def __call__(self, record: Mapping[str, Any]) -> None:
        now = time.monotonic()
        on_device = torch.cuda.memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
        self.points.append((now - self.begin, record["step"], resident_mb(), on_device, used_mb()))
        if now > self.end:
            raise InterruptedTrainingError(record["step"])
        if now > self.written + 60 and len(self.points) >= 4:
            self.write(self.points)
            self.written = time.monotonic()


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmRSS in /proc/self/status")


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


def slope(points: list[Point], column: int) -> tuple[float, float]:
    """MB a second through the second half of a column of the curve, and its mean."""
    late = np.array(points[len(points) // 2 :])
    return float(np.polyfit(late[:, 0], late[:, column], 1)[0]), float(late[:, column].mean())


def describe(points: list[Point]) -> dict[str, Any]:
    """What the curve says so far."""
    seconds, are_flat = points[-1][0], []
    facts: dict[str, float] = {}
    for name, column in (("", 2), ("gpu_", 3)):
        rise, mean = slope(points, column)
        facts |= {f"{name}mean_mb_of_second_half": round(mean, 1), f"{name}rise_mb_an_hour": round(rise * 3600, 2)}
        are_flat.append(rise * 3600 < 0.02 * mean or rise * seconds / 2 < 32)
    return {"steps": points[-1][1], "seconds": round(seconds, 1), **facts, "flat": all(are_flat)}


def save(points: list[Point], command: str, to: Path) -> None:
    result = {
        "command": command,
        **describe(points),
        "curve_of": ["seconds", "step", "resident_mb", "gpu_mb", "heap_in_use_mb"],
        "curve": [[round(number, 1) for number in point] for point in thinned(points)],
        "environment": describe_environment(),
        "git": describe_git(),
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(to) as temporary:
        temporary.write_text(json.dumps(result) + "\n", encoding="utf-8")
    with atomic_write(to.with_suffix(".png")) as temporary:
        draw(points, temporary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--to", type=Path, help="default: lab/benchmarks/results/soak_DEVICE.json")
    options = parser.parse_args()
    to = options.to or Path(f"lab/benchmarks/results/soak_{options.device}.json")
    command = (
        f"python lab/benchmarks/soak.py --minutes {options.minutes:g} --nodes {options.nodes} --device {options.device}"
    )
    graph = make_graph(options.nodes)
    curve = Curve(options.minutes, partial(save, command=command, to=to))
    settings = {"sampling.fan_outs": [10, 5], "sampling.batch_size": 512, "train.steps": 10**9, "train.log_every": 20}
    settings |= {"encoder.hidden_sizes": [128], "encoder.embedding_size": 64, "method.predictor_hidden_size": 128}
    with tempfile.TemporaryDirectory() as folder:
        try:
            Embedder(settings=settings, device=options.device).fit(graph, run=Path(folder) / "run", mirrors=[curve])
        except InterruptedTrainingError as stop:
            print(f"{stop.step:,} steps in {time.monotonic() - curve.begin:.0f} s")
    save(curve.points, command, to)
    facts = describe(curve.points)
    print(json.dumps(facts))
    raise SystemExit(0 if facts["flat"] else 1)


def thinned(points: list[Point], most: int = 600) -> list[Point]:
    return points[:: max(1, len(points) // most)]


def draw(points: list[Point], path: Path) -> None:
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    for column, label in ((2, "resident"), (4, "in use of the heap"), (3, "on the GPU")):
        if any(point[column] for point in points):
            axes.plot([point[0] / 60 for point in points], [point[column] for point in points], label=label)
    axes.set(xlabel="minutes", ylabel="MB", ylim=(0, None), title="Memory of sampled training")
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
