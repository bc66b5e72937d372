"""Batches a second of the sampler, ids alone and with features gathered, on a random graph.

    python lab/benchmarks/sampler.py [--device cuda] [--threads 2] [--to lab/benchmarks/results/sampler_cpu.json]

1 million nodes, 20 million edges, fan-out 15 and 10, 1,024 roots, 128 feature columns. The graph is synthetic: sources
at random, degrees with a power-law tail (`--uniform`: Poisson). Every figure is the median over rounds of batches, each
batch with roots of its own; `ids` draws nodes and edges with weights (`unbiased`), `ids_plain` without.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from graphstrap.graph import Graph
from graphstrap.graph.keep import child_seed
from graphstrap.ops.memory import keep_freed_memory
from graphstrap.run.environment import describe_environment, describe_git
from graphstrap.train.batches import Prefetcher, roots_at
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer


def make_graph(num_nodes: int, num_edges: int, *, num_features: int, uniform: bool, device: torch.device) -> Graph:
    generator = torch.Generator(device).manual_seed(0)
    place = torch.rand(num_edges, generator=generator, device=device)
    if not uniform:
        place = place**2  # degrees fall with the root of the rank
    targets = (place * num_nodes).long().clamp(max=num_nodes - 1)
    degrees = torch.bincount(targets, minlength=num_nodes)
    degrees = degrees[torch.randperm(num_nodes, generator=generator, device=device)]
    return Graph(
        indptr=torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]),
        indices=torch.randint(0, num_nodes, (num_edges,), generator=generator, device=device, dtype=torch.int32),
        features=(torch.rand(num_nodes, num_features, generator=generator, device=device),),
        name="random",
    )


def batches_a_second(
    make: Callable[[int], Graph], *, num_rounds: int, num_batches: int, device: torch.device
) -> dict[str, float]:
    """The median over rounds, the best, and the processor's seconds for a thousand batches."""
    rates, begin_cpu = [], time.process_time()
    for number in range(num_rounds + 1):
        _wait(device)
        begin = time.perf_counter()
        for step in range(num_batches):
            make(number * num_batches + step + 1)
        _wait(device)
        rates.append(num_batches / (time.perf_counter() - begin))
    busy = (time.process_time() - begin_cpu) / (num_batches * len(rates))
    return {"median": median(rates[1:]), "best": max(rates[1:]), "cpu_ms_a_batch": 1e3 * busy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--fan-outs", type=int, nargs="+", default=[15, 10])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--uniform", action="store_true")
    parser.add_argument("--to", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    graph = make_graph(
        options.nodes, options.edges, num_features=options.features, uniform=options.uniform, device=device
    )
    gatherer = Gatherer(graph, device=graph.device)
    seed = child_seed(0, 1)
    numbers = range(1, (options.rounds + 1) * options.batches + 1)
    roots = [
        roots_at(step, candidates=graph.num_nodes, batch_size=options.batch_size, seed=seed).to(graph.device)
        for step in numbers
    ]
    how = {"num_rounds": options.rounds, "num_batches": options.batches, "device": graph.device}
    result: dict[str, Any] = {}
    for name, flags in (
        ("ids", {}),
        ("ids_plain", {"unbiased": False}),
        ("ids_disjoint", {"disjoint": True}),
    ):
        sampler = Sampler(graph, options.fan_outs, **flags)

        def draw(step: int, sampler: Sampler = sampler) -> Graph:
            return sampler.sample(roots[step - 1], seed=seed, step=step, are_distinct=True)

        result[name] = batches_a_second(draw, **how)
        print(name, result[name], flush=True)
    merged = Sampler(graph, options.fan_outs)

    def filled(step: int) -> Graph:
        return gatherer.fill(merged.sample(roots[step - 1], seed=seed, step=step, are_distinct=True))

    result["with_features"] = batches_a_second(filled, **how)
    print("with_features", result["with_features"], flush=True)
    ahead = Prefetcher(filled, last_step=numbers[-1], device=graph.device, depth=2)
    result["with_features_prefetched"] = batches_a_second(ahead, **how)
    ahead.close()
    print("with_features_prefetched", result["with_features_prefetched"], flush=True)
    example = merged.sample(roots[0], seed=seed, step=1)
    record = {
        "settings": {key: value for key, value in vars(options).items() if key != "to"},
        "batch": {"num_nodes": example.num_nodes, "num_edges": example.num_edges},
        "largest_degree": int(graph.in_degrees.max()),
        "batches_a_second": result,
        "environment": describe_environment(),
        "git": describe_git(),
    }
    if options.to is not None:
        options.to.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record["batches_a_second"], indent=2))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
