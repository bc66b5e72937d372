"""A training step on a MAG-like graph: steps a second, and where their time goes; at MAG240M's size, or a small one.

    python lab/benchmarks/mag_step.py --device cuda      # scale 1, results/mag_full.json: needs a GPU of about 140 GB
    python lab/benchmarks/mag_step.py --device cuda --scale 0.002 --columns 768 --roots 1024 128 16 --hidden-layers 2 \
        --to lab/benchmarks/results/step_split_cuda.json           # the shares of 1, 8 and 64 GPUs, for docs/scale.md
    python lab/benchmarks/mag_step.py --scale 0.0005 --steps 3 --roots 64       # whether it runs

The graph is synthetic (`graphstrap.io.generate.mag`) and made on the device, where it stays. The recipe is `mag240m`:
the paper's MPNN, fan-outs and rates, cross-entropy on labelled roots and BGRL on all; a row with the paper's MLPs of
two hidden layers, one with the released code's of one. `step_ms` is over all steps, with batches made ahead as in
training; drawing ids, fetching rows and computing are medians over steps that wait for each part, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median

import torch

from graphstrap.api.embed import prepare
from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.nn.model import Model
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap.train.batches import BatchMaker, Prefetcher
from graphstrap.train.loop import make_step
from graphstrap.train.step import EagerStep
from harness import RESULTS, Record, Row, now, peak_bytes, run


def measure(graph: Graph, recipe: Recipe, *, device: torch.device, steps: int, warmup: int) -> Row:
    model = Model.build(graph, recipe, seed=0)
    model.module.to(device)
    prepared = prepare(model, graph)
    begin = now(device)
    step = make_step(model.method, prepared, recipe=recipe, seed=0)
    ready = now(device) - begin
    for number in range(1, warmup + 1):
        loss, _ = step(number)
    begin = now(device)
    for number in range(warmup + 1, warmup + steps + 1):
        loss, _ = step(number)
    seconds = (now(device) - begin) / steps
    step.close()
    return {
        "sampler_seconds": round(ready, 1),
        "steps_a_second": 1.0 / seconds,
        "step_ms": round(1e3 * seconds, 2),
        **measure_split(step, device=device, steps=steps, warmup=warmup),
        "loss": float(loss),
        "peak_bytes": peak_bytes(device),
    }


def measure_split(step: EagerStep, *, device: torch.device, steps: int, warmup: int) -> Row:
    """What the parts of a step take, and how large its batches are: medians."""
    assert isinstance(step.batches, Prefetcher)
    make = step.batches.make
    assert isinstance(make, BatchMaker)
    found: dict[str, list[float]] = {name: [] for name in ("nodes", "edges", "ids_ms", "rows_ms", "compute_ms")}
    for number in range(1, warmup + steps + 1):
        begin = now(device)
        ids = make.sample(number)
        drawn = now(device)
        batch = make.fill(ids)
        fetched = now(device)
        step.graph, step.batches = batch, None
        step(number)
        parts = [1e3 * seconds for seconds in (drawn - begin, fetched - drawn, now(device) - fetched)]
        for values, value in zip(found.values(), (batch.num_nodes, batch.num_edges, *parts), strict=True):
            values.append(value)
    return {name: round(median(values[warmup:]), 2) for name, values in found.items()}


def main(
    *,
    scale: float = 1.0,
    columns: int = 128,
    device: str = "cpu",
    steps: int = 50,
    warmup: int = 5,
    roots: Sequence[int] = (1024,),
    hidden_layers: Sequence[int] = (2, 1),
    precision: str = "auto",
    to: Path = RESULTS / "mag_full.json",
) -> None:
    place, record = torch.device(device), Record(to, "mag_step")
    begin = now(place)
    graph = mag(scale, num_features=columns, device=place)
    facts = {
        "scale": scale,
        "num_nodes": graph.num_nodes,
        "num_edges_before_reversal": graph.cleaning.num_edges_given,
        "num_features": columns,
        "generate_seconds": round(now(place) - begin, 1),
        "generate_peak_bytes": peak_bytes(place),
    }
    for num_hidden, num_roots in product(hidden_layers, roots):
        settings = {
            "encoder.hidden_sizes": [512] * num_hidden,
            "sampling.batch_size": num_roots,
            "train.precision": precision,
        }
        recipe = load_recipe("mag240m").with_settings(settings)
        row = {"hidden_layers": num_hidden, "roots": num_roots, "precision": precision, **facts}
        record.add({**row, **measure(graph, recipe, device=place, steps=steps, warmup=warmup)})


if __name__ == "__main__":
    run(main)
