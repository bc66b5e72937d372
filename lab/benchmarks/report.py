"""How long a report takes, how large it is, and how smoothly its map moves.

    python lab/benchmarks/report.py [--graphs stdlib large]
    chrt --rr 1 python lab/benchmarks/report.py    # as root, where others use the machine: before all of them

`stdlib` is the call graph of 14,000 functions, `large` a generated graph of 100,000 nodes. Frames are counted in
headless Chromium without a GPU while the map is panned for four seconds. Training is not measured.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from graphstrap.api.estimator import Embedder
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.report.build import write_report
from graphstrap.run.folder import Run
from harness import REPOSITORY, RESULTS, Record, Row, run

PANNING = """(async () => { const before = graphstrap.frames(), start = performance.now();
for (let n = 0; performance.now() - start < 4000; n++) { graphstrap.pan(12 * Math.sin(n / 9), 12 * Math.cos(n / 9));
await new Promise((done) => requestAnimationFrame(done)); }
return 1000 * (graphstrap.frames() - before) / (performance.now() - start); })()"""


def large_graph(*, num_nodes: int = 100_000, num_classes: int = 40, seed: int = 0) -> Graph:
    """Communities of unequal size with hubs; 16 feature columns that hint at them; text ids."""
    random = np.random.default_rng(seed)
    labels = random.choice(num_classes, num_nodes, p=random.dirichlet(np.full(num_classes, 3.0)))
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=num_classes)
    source = random.integers(num_nodes, size=5 * num_nodes)
    stays = random.random(len(source)) < 0.6
    community = np.where(stays, labels[source], random.integers(num_classes, size=len(source)))
    place = (random.random(len(source)) ** 1.7 * sizes[community]).astype(np.int64)
    target = order[np.cumsum(sizes)[community] - sizes[community] + place]
    x = 0.25 * random.normal(size=(num_classes, 16))[labels] + random.normal(size=(num_nodes, 16))
    return Graph.from_edges(
        source,
        target,
        num_nodes=num_nodes,
        x=torch.from_numpy(x.astype(np.float32)),
        labels=labels,
        class_names=tuple(f"segment {number:02d}" for number in range(num_classes)),
        feature_names=tuple(f"amount {number}" for number in range(16)),
        ids=np.array([f"customer-{number:06d}" for number in range(num_nodes)]),
        name="large",
    )


def measure(graph: Graph, folder: Path, *, steps: int) -> Row:
    settings = {"train.steps": steps, "train.warmup_steps": steps // 10}
    Embedder(device="cpu", settings=settings).fit(graph, run=folder)
    path, started, processor = folder / "report.html", time.monotonic(), time.process_time()
    health = write_report([(Run.open(folder), Embedder.load(folder, device="cpu"))], path, graph=graph)
    seconds, processor_seconds = time.monotonic() - started, time.process_time() - processor
    return {
        "num_nodes": graph.num_nodes,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds, 1),
        "num_threads": torch.get_num_threads(),
        "has_precedence": os.sched_getscheduler(0) != os.SCHED_OTHER,
        "megabytes": round(path.stat().st_size / 1e6, 1),
        "verdict": health.headline,
        "load_average": os.getloadavg()[0],
        **frames(path),
    }


def frames(path: Path) -> Row:
    sys.path.insert(0, str(REPOSITORY / "tests" / "report"))
    from browser import Browser, find_chromium

    if find_chromium() is None:
        return {}
    found: Row = {}
    for query in ("", "?webgl"):
        with Browser() as browser:
            browser.open(path, query=query)
            kind = browser.run("graphstrap.kind")
            found[f"frames_per_second_{kind}"] = round(browser.run(PANNING), 1)
    return found


def main(*, graphs: Sequence[str] = ("stdlib", "large"), to: Path = RESULTS / "report.json") -> None:
    record = Record(to, "report")
    for name in graphs:
        graph = large_graph() if name == "large" else load(name)
        with tempfile.TemporaryDirectory() as folder:
            row = measure(graph, Path(folder) / name, steps=30 if name == "large" else 300)
        record.add({"graph": name, **row})


if __name__ == "__main__":
    run(main)
