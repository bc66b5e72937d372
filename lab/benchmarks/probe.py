"""Linear probes: Newton's method against liblinear, in time and in accuracy.

    python lab/benchmarks/probe.py --data FOLDER [--dataset amazon_computers] [--num-runs 3]

The embeddings are A_hat^2 X projected at random to 128 columns, what an untrained two-layer encoder would give: real
classes, real correlations, no training. Writes lab/benchmarks/results/probe.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from graphstrap.evaluation.probe import SOLVERS, fit_probe
from graphstrap.evaluation.protocols import evaluate
from graphstrap.graph import Graph

RESULTS = Path(__file__).parent / "results"
NUM_COLUMNS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("GRAPHSTRAP_DATA"), help="folder of .npz graphs")
    parser.add_argument("--dataset", default="amazon_computers")
    parser.add_argument("--num-runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where newton runs; liblinear knows the CPU only")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("--data must name the folder of graphs, or set GRAPHSTRAP_DATA")
    h, labels = propagated_features(Path(arguments.data) / f"{arguments.dataset}.npz")
    rows = torch.from_numpy(h).to(arguments.device)
    outcome = {
        "command": f"python lab/benchmarks/probe.py --dataset {arguments.dataset} --num-runs {arguments.num_runs}",
        "dataset": arguments.dataset,
        "num_nodes": len(labels),
        "num_columns": NUM_COLUMNS,
        "seed": arguments.seed,
        "machine": describe_machine(arguments.device),
        "protocols": [
            compare(rows, labels, protocol=protocol, num_runs=arguments.num_runs, seed=arguments.seed)
            for protocol in ("paper", "reference")
        ],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "probe.json").write_text(json.dumps(outcome, indent=2) + "\n")
    print(json.dumps(outcome, indent=2))


def compare(
    h: torch.Tensor, labels: np.ndarray[Any, Any], *, protocol: str, num_runs: int, seed: int
) -> dict[str, Any]:
    """Each solver's accuracies and its median seconds for one run, solvers taking turns."""
    graph = Graph.from_edges([0], [1], num_nodes=len(labels), labels=labels)
    seconds: dict[str, list[float]] = {solver: [] for solver in SOLVERS}
    accuracies: dict[str, list[float]] = {solver: [] for solver in SOLVERS}
    for solver in SOLVERS:  # imports and first allocations are nobody's fault
        fit_probe(h[:500], labels[:500], solver=solver)
    for run in range(num_runs):
        for solver in SOLVERS:
            start = time.perf_counter()
            outcome = evaluate(h, graph, protocol=protocol, num_runs=1, seed=seed + run, solver=solver)
            seconds[solver].append(time.perf_counter() - start)
            accuracies[solver].append(outcome.mean)
    medians = {solver: float(np.median(seconds[solver])) for solver in SOLVERS}
    return {
        "protocol": protocol,
        "median_seconds_per_run": medians,
        "times_faster": medians["liblinear"] / medians["newton"],
        "accuracy": {solver: float(np.mean(accuracies[solver])) for solver in SOLVERS},
        "accuracies": accuracies,
        "seconds": seconds,
    }


def propagated_features(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    with np.load(path, allow_pickle=False) as file:
        entries = (file["x_data"].astype(np.float64), file["x_indices"].astype(np.int32), file["x_indptr"])
        x = scipy.sparse.csr_matrix(entries, shape=file["x_shape"])
        (source, target), labels = file["edge_index"], file["y"]
    num_nodes = len(labels)
    links = scipy.sparse.coo_matrix((np.ones(len(source)), (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    links = ((links + links.T + scipy.sparse.eye_array(num_nodes)) > 0).astype(np.float64)
    scale = scipy.sparse.diags_array(np.asarray(links.sum(1)).reshape(-1) ** -0.5)
    projection = np.random.default_rng(0).standard_normal((x.shape[1], NUM_COLUMNS))
    normalised = scale @ links @ scale
    return np.asarray(normalised @ (normalised @ (x @ projection))), labels


def describe_machine(device: str) -> dict[str, Any]:
    return {
        "processor": _processor(),
        "num_cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")},
        "git_sha": _git_sha(),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git_sha() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "not committed"


if __name__ == "__main__":
    main()
