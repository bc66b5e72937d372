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

import argparse
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch

import graphstrap as gs
from graphstrap.api.ensemble import embed_on_device
from graphstrap.api.estimator import random_init
from graphstrap.io.generate.arxiv import ARXIV_NODES, arxiv_like
from graphstrap.ops import resolve_device
from graphstrap.ops.memory import free_memory, parse_bytes
from graphstrap_lab.bench.record import kept_rows, write_record
from graphstrap_lab.reproduce.deadline import Deadline, TimeUpError
from graphstrap_lab.reproduce.memory import estimate_bytes, refusal
from graphstrap_lab.reproduce.unfinished import fit_or_go_on, training_seconds

RESULTS = Path(__file__).parent / "results" / "arxiv_like.json"
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


def measure(
    name: str, graph: gs.Graph, *, steps: int, seed: int, device: str, limit: int | None, unfinished: Path
) -> dict[str, Any]:
    """One row: a method trained, timed and evaluated; or why it was not."""
    changes = METHODS[name]
    settings = {"train.steps": steps, **(changes or {})}
    estimator = gs.Embedder(recipe="ogbn-arxiv", settings=settings, seed=seed, device=device)
    recipe = estimator.resolve(graph)
    row: dict[str, Any] = {"method": name, "seed": seed, "steps": 0 if changes is None else steps}
    if changes is None:
        h = torch.from_numpy(random_init(graph, recipe, seed=seed, device=device)).to(resolve_device(device))
    else:
        row["estimated_bytes"] = estimate_bytes(graph, recipe)
        if (why := refusal(graph, recipe, limit=limit)) is not None:
            return {**row, "refused": why}
        folder = unfinished / f"{name.replace(' ', '-')}-{steps}-{seed}"
        estimator, found = _train(estimator, graph, steps, folder)
        row |= found
        h = embed_on_device(estimator, graph)
    started = time.perf_counter()
    for protocol in PROTOCOLS:
        outcome = gs.evaluate(h, graph, protocol=protocol)
        row |= {f"{protocol} val": outcome.val_runs[0], f"{protocol} test": outcome.mean}
    return {**row, "probe_seconds": round(time.perf_counter() - started, 2)}


def _train(estimator: gs.Embedder, graph: gs.Graph, steps: int, folder: Path) -> tuple[gs.Embedder, dict[str, Any]]:
    on_cuda = resolve_device(estimator.device).type == "cuda"
    if on_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    fitted, records, was_cut = fit_or_go_on(estimator, graph, folder=folder)
    if on_cuda:
        torch.cuda.synchronize()
    seconds = training_seconds(records) if was_cut else time.perf_counter() - started
    last = {key: round(records[-1][key], 4) for key in ("loss", "spread", "effective_rank")}
    found = {
        "train_seconds": round(seconds, 2),
        "ms_a_step": round(1000 * seconds / steps, 3),
        "was_cut": was_cut,
        **last,
    }
    if on_cuda:
        found |= {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
    return fitted, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=ARXIV_NODES)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--memory-limit", default=None, help="such as 16GB; what is free by default")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many; the same command goes on")
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    device, unfinished = resolve_device(given.device), given.to.with_suffix(".unfinished")
    graph = arxiv_like(num_nodes=given.nodes)
    options = {key: vars(given)[key] for key in ("steps", "nodes", "memory_limit")} | {"device": device.type}
    rows, command = kept_rows(given.to, options=options), shlex.join(["python", *sys.argv])
    try:
        with Deadline(given.minutes).enforced():
            for name, seed in product(given.methods, range(given.seeds)):
                if any(row["method"] == name and row["seed"] == seed for row in rows):
                    continue
                limit = free_memory(device) if given.memory_limit is None else parse_bytes(given.memory_limit)
                more = {"steps": given.steps, "device": given.device, "limit": limit, "unfinished": unfinished}
                rows.append(measure(name, graph, seed=seed, **more))
                print(rows[-1], flush=True)
                write_record(
                    given.to, bench="arxiv-like", command=command, rows=rows, graph=repr(graph), options=options
                )
                shutil.rmtree(unfinished, ignore_errors=True)
    except TimeUpError:
        print("stopped: the time is up; the same command goes on from here")


if __name__ == "__main__":
    main()
