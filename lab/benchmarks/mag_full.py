"""Training on a MAG-like graph at MAG240M's full size, on one GPU: steps a second and where their time goes.

    python lab/benchmarks/mag_full.py --device cuda      # scale 1: needs a GPU of about 140 GB
    python lab/benchmarks/mag_full.py --scale 0.0005 --steps 3 --batch-size 64

The graph is synthetic (`graphstrap.io.generate.mag`) and made on the device, where it stays. The recipe is `mag240m`:
the paper's MPNN, fan-outs and rates, cross-entropy on labelled roots and BGRL on all 1,024; a row with the paper's MLPs
of two hidden layers, one with the released code's of one. `steps_a_second` is the rate of the training step, batches
made ahead; the split is of steps that wait for each part, one after the other.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from graphstrap.api.embed import with_labels_to_learn
from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.nn.model import Model
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap.train.batches import BatchMaker, Prefetcher
from graphstrap.train.loop import make_step
from graphstrap.train.step import EagerStep
from graphstrap.train.views import draw_seeds
from graphstrap_lab.bench.record import write_record

RESULTS = Path(__file__).parent / "results" / "mag_full.json"


def make_graph(scale: float, *, device: torch.device) -> tuple[Graph, dict[str, Any]]:
    """The graph, and what is to be said of it."""
    begin = time.perf_counter()
    graph = mag(scale, device=device)
    _wait(device)
    return graph, {
        "scale": scale,
        "num_nodes": graph.num_nodes,
        "num_edges_before_reversal": graph.cleaning.num_edges_given,
        "num_features": graph.num_features[0],
        "generate_seconds": round(time.perf_counter() - begin, 1),
        "generate_peak_bytes": _peak_bytes(device),
    }


def measure(graph: Graph, recipe: Recipe, *, device: torch.device, num_steps: int, warmup: int) -> dict[str, Any]:
    model = Model.build(graph, recipe, seed=0)
    model.module.to(device)
    prepared = with_labels_to_learn(model.transform(graph), model)
    begin = time.perf_counter()
    step = make_step(model.method, prepared, recipe=recipe, seed=0)
    ready = time.perf_counter() - begin
    for number in range(1, warmup + 1):
        loss, _ = step(number)
    _wait(device)
    begin = time.perf_counter()
    for number in range(warmup + 1, warmup + num_steps + 1):
        loss, _ = step(number)
    _wait(device)
    rate = num_steps / (time.perf_counter() - begin)
    step.close()
    split, example = measure_split(step, device=device, num_steps=num_steps)
    return {
        "sampler_seconds": round(ready, 1),
        "steps_a_second": rate,
        "milliseconds": split,
        "batch": {"num_roots": example.num_roots, "num_nodes": example.num_nodes, "num_edges": example.num_edges},
        "loss": float(loss),
        "peak_bytes": _peak_bytes(device),
    }


def measure_split(step: EagerStep, *, device: torch.device, num_steps: int) -> tuple[dict[str, float], Graph]:
    """The median milliseconds of sampling, gathering and computing, each waited for; and a batch."""
    assert isinstance(step.batches, Prefetcher)
    make = step.batches.make
    assert isinstance(make, BatchMaker)
    times: dict[str, list[float]] = {"sampling": [], "gathering": [], "computing": []}
    for number in range(1, num_steps + 2):  # the first warms up
        marks = [_now(device)]
        batch = make.sample(number)
        marks.append(_now(device))
        batch = make.fill(batch)
        marks.append(_now(device))
        step.run(draw_seeds(len(step.specs), seed=0, step=number), number, batch)
        marks.append(_now(device))
        for name, first, last in zip(times, marks, marks[1:], strict=False):
            times[name].append(1e3 * (last - first))
    return {name: median(values[1:]) for name, values in times.items()}, batch


def _now(device: torch.device) -> float:
    _wait(device)
    return time.perf_counter()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak_bytes(device: torch.device) -> int:
    """So far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden-layers", type=int, nargs="+", choices=(1, 2), default=[2, 1])
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    device = torch.device(given.device)
    graph, facts = make_graph(given.scale, device=device)
    rows = []
    for num_hidden in given.hidden_layers:
        settings = {
            "encoder.hidden_sizes": [512] * num_hidden,
            "sampling.batch_size": given.batch_size,
            "train.precision": given.precision,
        }
        recipe = load_recipe("mag240m").with_settings(settings)
        row = {"hidden_layers": num_hidden, "precision": given.precision, **facts}
        row |= measure(graph, recipe, device=device, num_steps=given.steps, warmup=given.warmup)
        rows.append(row)
        for name, value in row.items():
            print(f"{name:<28} {value}", flush=True)
    command = f"python lab/benchmarks/mag_full.py --scale {given.scale:g} --device {given.device}"
    command += f" --steps {given.steps} --batch-size {given.batch_size}"
    write_record(given.to, bench="mag_full", command=command, rows=rows)


if __name__ == "__main__":
    main()
