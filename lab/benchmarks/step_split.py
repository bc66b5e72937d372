"""Where the time of a sampled step goes on one machine: drawing ids, fetching rows, computing; and all of it at once.

    python lab/benchmarks/step_split.py [--device cuda] [--scale 0.002] [--to step_split_cuda.json]

The recipe `mag240m` (an MPNN, two hops, disjoint) on the generated MAG-like graph with MAG240M's 768 columns; 1,024,
128 and 16 roots a step: the shares of 1, 8 and 64 GPUs. Medians over steps; the device is waited for after each part.
The whole step is timed over all steps, with batches made ahead as in training. `projection.py` takes `compute_ms` from
the file that this leaves.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from graphstrap.api.embed import prepare
from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.nn.model import Model
from graphstrap.run.recipe import load_recipe
from graphstrap.train.batches import BatchMaker, place_graph
from graphstrap.train.loop import make_step
from graphstrap.train.step import EagerStep
from graphstrap_lab.bench.record import write_record

ROOTS = (1024, 128, 16)


class GivenStep(EagerStep):
    """A step on the batch that it was given."""

    given: Graph

    def batch(self, step: int) -> Graph:
        return self.given


def measure(graph: Graph, num_roots: int, *, device: torch.device, num_steps: int) -> dict[str, Any]:
    settings = {"sampling.batch_size": num_roots, "train.steps": 10 * num_steps}
    recipe = load_recipe("mag240m").with_settings(settings)
    model = Model.build(graph, recipe, seed=0)
    model.module.to(device)
    placed = place_graph(prepare(model, graph), recipe, device)
    make = BatchMaker(placed, recipe=recipe, seed=0, device=device)
    step = GivenStep(model.method, placed, recipe=recipe, seed=0)
    parts: dict[str, list[float]] = {"ids": [], "rows": [], "compute": []}
    sizes = []
    for number in range(1, num_steps + 4):  # three to warm up
        times = [_now(device)]
        ids = make.sample(number)
        times.append(_now(device))
        step.given = make.fill(ids).to(device)
        times.append(_now(device))
        step(number)
        times.append(_now(device))
        for name, begin, end in zip(parts, times, times[1:], strict=False):
            parts[name].append(1e3 * (end - begin))
        sizes.append((step.given.num_nodes, step.given.num_edges))
    whole = make_step(model.method, placed, recipe=recipe, seed=0)
    for number in (1, 2, 3):
        whole(number)
    begin = _now(device)
    for number in range(4, num_steps + 4):
        whole(number)
    seconds = _now(device) - begin
    whole.close()
    return {
        "roots": num_roots,
        "nodes": round(median(nodes for nodes, _ in sizes)),
        "edges": round(median(edges for _, edges in sizes)),
        **{f"{name}_ms": round(median(values[3:]), 2) for name, values in parts.items()},
        "step_ms": round(1e3 * seconds / num_steps, 2),
    }


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=0.002)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--to", type=Path)
    options = parser.parse_args()
    graph = mag(options.scale, num_features=768)
    rows = []
    for num_roots in ROOTS:
        rows.append(measure(graph, num_roots, device=torch.device(options.device), num_steps=options.steps))
        print(json.dumps(rows[-1]), flush=True)
    if options.to is not None:
        command = f"python lab/benchmarks/step_split.py --device {options.device} --scale {options.scale:g}"
        write_record(options.to, bench="step_split", command=f"{command} --steps {options.steps}", rows=rows)


if __name__ == "__main__":
    main()
