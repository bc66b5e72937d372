"""What 64 workers on a graph in parts would send each other, counted on a generated MAG-like graph: a simulation.

    python lab/benchmarks/partition_traffic.py [--scale 0.002] [--parts 64] [--to partition_traffic.json]

The fan-outs, the batch (1,024 roots in all, 16 a worker) and the choice of roots are those of the recipe `mag240m`. The
batch of a step is drawn from the whole graph, and every message that the workers would exchange for it is counted
(`graphstrap.bench.traffic`, whose numbers a test compares with what two processes really send). Partitions: random,
streaming (LDG), METIS. Roots in turn, or to their owner. Caches of the busiest nodes' features: none, 0.1, 1, 5 % of
the nodes. Bytes are those of features of 128 columns in float16, and of MAG240M's own 768.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.io.partition import choose_partitioner, partition
from graphstrap.io.parts import Part
from graphstrap.nn.methods.semi_supervised import training_labels
from graphstrap.run.recipe import load_recipe
from graphstrap.train.batches import BatchMaker
from graphstrap.train.parallel.part_batches import by_part
from graphstrap_lab.bench.record import write_record
from graphstrap_lab.bench.traffic import message_sizes, step_traffic

CACHES = (0.0, 0.001, 0.01, 0.05)
WIDTHS = (128, 768)


def ranks_of(roots: Tensor, part_of: Tensor, num_parts: int, how: str) -> Tensor:
    """(B,) the worker that takes each root."""
    if how == "turn":
        return torch.arange(len(roots)) % num_parts
    ranks = torch.empty(len(roots), dtype=torch.int64)
    for number in range(num_parts):
        part = cast(Part, SimpleNamespace(part_of=part_of, num_parts=num_parts, number=number))
        ranks[torch.isin(roots, by_part(roots, part=part))] = number
    return ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.002)
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--to", type=Path)
    options = parser.parse_args()
    recipe = load_recipe("mag240m")
    graph = learning_from(mag(options.scale))
    maker = BatchMaker(graph, recipe=recipe, seed=0, device=graph.device)
    batches = [maker.sample(step) for step in range(1, options.steps + 1)]
    nodes = sum(batch.num_nodes for batch in batches) / len(batches)
    edges = sum(batch.num_edges for batch in batches) / len(batches)
    print(f"{graph}: {nodes:,.0f} nodes and {edges:,.0f} edges a step", flush=True)
    busiest = torch.sort(graph.transpose.indptr.diff(), descending=True, stable=True).indices
    num_hops = len(recipe.sampling.fan_outs)
    rows: list[dict[str, Any]] = []
    for how in ("random", "streaming", "metis"):
        begin = time.perf_counter()
        part_of, cut = partition(graph, options.parts, how=choose_partitioner(how, graph))
        seconds = time.perf_counter() - begin
        for roots_how in ("turn", "owner"):
            for cache in CACHES:
                is_hot = torch.zeros(graph.num_nodes, dtype=torch.bool)
                is_hot[busiest[: round(cache * graph.num_nodes)]] = True
                row = {**cut.to_dict(), "partition_seconds": round(seconds, 1), "roots": roots_how, "cache": cache}
                for width in WIDTHS:
                    sizes = message_sizes(graph, num_hops=num_hops, by_time=True, unbiased=False, num_columns=width)
                    count = partial(step_traffic, sizes=sizes, num_parts=options.parts, is_hot=is_hot)
                    found = []
                    for batch in batches:
                        roots = batch.roots_of(cast(Tensor, batch.node_ids))
                        found.append(count(batch, part_of, ranks_of(roots, part_of, options.parts, roots_how)))
                    features = torch.stack([one.features for one in found])
                    answered = torch.stack([one.features_answered for one in found])
                    row |= {
                        "id_bytes": round(float(torch.stack([one.ids for one in found]).mean())),
                        "feature_rows": round(float(torch.stack([one.num_rows for one in found]).mean())),
                        f"feature_bytes_{width}": round(float(features.mean())),
                        f"feature_bytes_{width}_busiest_asker": round(float(features.max(1).values.mean())),
                        f"feature_bytes_{width}_busiest_answerer": round(float(answered.max(1).values.mean())),
                    }
                rows.append(row)
                print(json.dumps(row), flush=True)
    if options.to is not None:
        command = (
            f"python lab/benchmarks/partition_traffic.py --scale {options.scale:g} --parts {options.parts} "
            f"--steps {options.steps} --to {options.to}"
        )
        write_record(
            options.to,
            bench="partition_traffic",
            command=command,
            rows=rows,
            num_nodes=graph.num_nodes,
            num_edges=graph.num_edges,
            batch_size=recipe.sampling.batch_size,
            nodes_a_step=round(nodes),
            edges_a_step=round(edges),
            simulated=True,
        )


def learning_from(graph: Graph) -> Graph:
    """With the labels that may be learned from: roots are chosen by them."""
    return replace(graph, labels=training_labels(graph), splits=None)


if __name__ == "__main__":
    main()
