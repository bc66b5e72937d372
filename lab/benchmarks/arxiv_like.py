"""Time, memory and accuracy on a graph of ogbn-arxiv's size: an untrained encoder, BGRL, and GRACE with few negatives.

    python lab/benchmarks/arxiv_like.py --device cuda --minutes 9  # 10,000 steps; the same command goes on
    python lab/benchmarks/arxiv_like.py --device cpu --nodes 4000 --steps 20     # a small check

The graph is generated (`graphstrap/io/generate/arxiv.py`), the recipe is `ogbn-arxiv`, the protocols are `adamw`, as in
the paper, and `adamw-reference`, both also on validation nodes. GRACE with all negatives is refused with what it would
need. Every run is written to results/arxiv_like.json as soon as it is known, and one that is cut goes on where it was:
its time is then by the logged speed. Memory is the peak of PyTorch's allocator on CUDA while training, the graph
included; on a CPU it is not measured. The graph is synthetic: accuracies say whether training finds what was planted.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch

import graphstrap as gs
from graphstrap.api.ensemble import embed_on_device
from graphstrap.api.estimator import random_init
from graphstrap.io.generate.arxiv import ARXIV_NODES, arxiv_like
from graphstrap.ops import resolve_device
from graphstrap.ops.memory import free_memory, parse_bytes
from graphstrap_lab.reproduce.deadline import fit_or_go_on, training_seconds
from graphstrap_lab.reproduce.memory import estimate_bytes, refusal
from harness import RESULTS, Record, Row, now, run, within

PROTOCOLS = ("adamw", "adamw-reference")
GRACE = {"method.name": "grace", "method.projector_size": 256}
METHODS: dict[str, Mapping[str, Any] | None] = {
    "random init": None,
    "BGRL": {},
    "GRACE k=2": {**GRACE, "method.num_negatives": 2},
    "GRACE k=32": {**GRACE, "method.num_negatives": 32},
    "GRACE k=2048": {**GRACE, "method.num_negatives": 2048},
    "GRACE full": {**GRACE, "method.num_negatives": 0, "method.keep_similarities": True},  # as its own code does
}


def measure(name: str, graph: gs.Graph, *, steps: int, seed: int, device: str, limit: int, unfinished: Path) -> Row:
    """One row: a method trained, timed and evaluated; or why it was not."""
    changes = METHODS[name]
    settings = {"train.steps": steps, **(changes or {})}
    estimator = gs.Embedder(recipe="ogbn-arxiv", settings=settings, seed=seed, device=device)
    recipe = estimator.resolve(graph)
    row: Row = {"method": name, "seed": seed, "steps": 0 if changes is None else steps}
    if changes is None:
        h = torch.from_numpy(random_init(graph, recipe, seed=seed, device=device)).to(resolve_device(device))
    else:
        row["estimated_bytes"] = estimate_bytes(graph, recipe)
        if (why := refusal(graph, recipe, limit=limit)) is not None:
            return {**row, "refused": why}
        estimator, found = train(estimator, graph, unfinished / f"{name.replace(' ', '-')}-{steps}-{seed}")
        row |= {**found, "ms_a_step": round(1000 * found["train_seconds"] / steps, 3)}
        h = embed_on_device(estimator, graph)
    started = time.perf_counter()
    for protocol in PROTOCOLS:
        outcome = gs.evaluate(h, graph, protocol=protocol)
        row |= {f"{protocol} val": outcome.val_runs[0], f"{protocol} test": outcome.mean}
    return {**row, "probe_seconds": round(time.perf_counter() - started, 2)}


def train(estimator: gs.Embedder, graph: gs.Graph, folder: Path) -> tuple[gs.Embedder, Row]:
    device = resolve_device(estimator.device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    fitted, records, was_cut = fit_or_go_on(estimator, graph, folder=folder)
    seconds = now(device) - started
    row = {
        "train_seconds": round(training_seconds(records) if was_cut else seconds, 2),
        "was_cut": was_cut,
        **{key: round(records[-1][key], 4) for key in ("loss", "spread", "effective_rank")},
    }
    if device.type == "cuda":
        row |= {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
    return fitted, row


def main(
    *,
    methods: Annotated[Sequence[str], METHODS] = tuple(METHODS),
    steps: int = 10_000,
    nodes: int = ARXIV_NODES,
    seeds: int = 1,
    device: str = "auto",
    memory_limit: str | None = None,
    minutes: float | None = None,
    to: Path = RESULTS / "arxiv_like.json",
) -> None:
    place, unfinished = resolve_device(device), to.with_suffix(".unfinished")
    graph = arxiv_like(num_nodes=nodes)
    options = {"steps": steps, "nodes": nodes, "memory_limit": memory_limit, "device": place.type}
    record = Record(to, "arxiv-like", options=options, graph=repr(graph))
    with within(minutes):
        for name, seed in product(methods, range(seeds)):
            if not record.has(method=name, seed=seed):
                limit = free_memory(place) if memory_limit is None else parse_bytes(memory_limit)
                more: dict[str, Any] = {"steps": steps, "device": device, "limit": limit, "unfinished": unfinished}
                record.add(measure(name, graph, seed=seed, **more))
                shutil.rmtree(unfinished, ignore_errors=True)


if __name__ == "__main__":
    run(main)
