"""Sampled training for a long time, with the memory of the process over time: is it flat?

    python benchmarks/soak.py [--minutes 60] [--nodes 50000] [--device cpu] [--to benchmarks/results/soak_cpu.json]

A random graph of 20 edges a node and 64 columns, fan-out 10 and 5, 512 roots, with checkpoints every 20 s into a run
folder and metrics logged. Resident memory, the heap in use and, on CUDA, what is allocated there are taken every 20
steps. Flat means: a line through the second half of resident memory rises by less than 2 % of its mean an hour, or by
less than 32 MB over that half. A picture lands beside the JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphstrap.environment import describe_environment, describe_git
from graphstrap.estimator import BGRL
from graphstrap.graph import Graph
from graphstrap.train import InterruptedTrainingError

Point = tuple[float, int, float, float, float]  # seconds, step, MB resident, on the GPU and in use of the heap


class Curve:
    """A mirror of metrics that notes how much memory there is, and stops the training when the time is over."""

    def __init__(self, minutes: float) -> None:
        self.begin, self.end = time.monotonic(), time.monotonic() + 60 * minutes
        self.points: list[Point] = []

    def __call__(self, record: Mapping[str, Any]) -> None:
        now = time.monotonic()
        on_device = torch.cuda.memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
        self.points.append((now - self.begin, record["step"], resident_mb(), on_device, used_mb()))
        if now > self.end:
            raise InterruptedTrainingError(record["step"])


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


def slope(points: list[Point]) -> tuple[float, float]:
    """MB a second through the second half of the curve, and its mean."""
    late = np.array(points[len(points) // 2 :])
    return float(np.polyfit(late[:, 0], late[:, 2], 1)[0]), float(late[:, 2].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--to", type=Path, default=Path("benchmarks/results/soak_cpu.json"))
    options = parser.parse_args()
    graph, curve = make_graph(options.nodes), Curve(options.minutes)
    settings = {"sampling.fan_outs": [10, 5], "sampling.batch_size": 512, "train.steps": 10**9, "train.log_every": 20}
    settings |= {"encoder.hidden_sizes": [128], "encoder.embedding_size": 64, "method.predictor_hidden_size": 128}
    with tempfile.TemporaryDirectory() as folder:
        try:
            BGRL(settings=settings, device=options.device).fit(graph, run=Path(folder) / "run", mirrors=[curve])
        except InterruptedTrainingError as stop:
            print(f"{stop.step:,} steps in {time.monotonic() - curve.begin:.0f} s")
    rise, mean = slope(curve.points)
    seconds = curve.points[-1][0]
    is_flat = rise * 3600 < 0.02 * mean or rise * seconds / 2 < 32
    result = {
        "command": f"python benchmarks/soak.py --minutes {options.minutes:g} --device {options.device}",
        "steps": curve.points[-1][1],
        "seconds": round(seconds, 1),
        "mean_mb_of_second_half": round(mean, 1),
        "rise_mb_an_hour": round(rise * 3600, 2),
        "flat": is_flat,
        "curve_of": ["seconds", "step", "resident_mb", "gpu_mb", "heap_in_use_mb"],
        "curve": [[round(number, 1) for number in point] for point in thinned(curve.points)],
        "environment": describe_environment(),
        "git": describe_git(),
    }
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_text(json.dumps(result) + "\n", encoding="utf-8")
    draw(curve.points, options.to.with_suffix(".png"))
    print(f"resident {mean:.0f} MB, rising {rise * 3600:.1f} MB an hour: {'flat' if is_flat else 'NOT flat'}")
    raise SystemExit(0 if is_flat else 1)


def thinned(points: list[Point], most: int = 600) -> list[Point]:
    return points[:: max(1, len(points) // most)]


def draw(points: list[Point], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    axes.plot([p[0] / 60 for p in points], [p[2] for p in points], label="resident")
    if any(p[4] for p in points):
        axes.plot([p[0] / 60 for p in points], [p[4] for p in points], label="in use of the heap")
    if any(p[3] for p in points):
        axes.plot([p[0] / 60 for p in points], [p[3] for p in points], label="on the GPU")
    axes.set(xlabel="minutes", ylabel="MB", ylim=(0, None), title="Memory of sampled training")
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
