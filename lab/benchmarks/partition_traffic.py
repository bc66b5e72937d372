"""What 64 workers on a graph in parts would send each other, counted on a generated MAG-like graph: a simulation.

    python lab/benchmarks/partition_traffic.py [--scale 0.002] [--parts 64] [--to partition_traffic.json]

The fan-outs, the batch (1,024 roots in all, 16 a worker) and the choice of roots are those of the recipe `mag240m`. The
batch of a step is drawn from the whole graph, and every message that the workers would exchange for it is counted
(`graphstrap_lab.bench.traffic`, whose numbers a test compares with what two processes really send). Partitions: random,
streaming (LDG), METIS. Roots in turn, or to their owner. Caches of the busiest nodes' features: none, 0.1, 1, 5 % of
the nodes. Bytes are those of features of 128 columns in float16, and of MAG240M's own 768.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import torch
from torch import Tensor

from graphstrap.io.generate import mag
from graphstrap.io.partition import choose_partitioner, partition
from graphstrap.io.parts import Part
from graphstrap.run.recipe import load_recipe
from graphstrap.train.batches import BatchMaker
from graphstrap.train.parallel.part_batches import by_part
from graphstrap_lab.bench.traffic import Traffic, message_sizes, step_traffic
from harness import Record, Row, run

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


def bytes_of(found: Sequence[Traffic], width: int) -> Row:
    """Means over steps and workers, and of the busiest worker of each step."""
    features, answered, ids, num_rows = (
        torch.stack([getattr(one, name) for one in found])
        for name in ("features", "features_answered", "ids", "num_rows")
    )
    return {
        "id_bytes": round(float(ids.mean())),
        "feature_rows": round(float(num_rows.mean())),
        f"feature_bytes_{width}": round(float(features.mean())),
        f"feature_bytes_{width}_busiest_asker": round(float(features.max(1).values.mean())),
        f"feature_bytes_{width}_busiest_answerer": round(float(answered.max(1).values.mean())),
    }


def main(*, scale: float = 0.002, parts: int = 64, steps: int = 8, to: Path | None = None) -> None:
    recipe, graph = load_recipe("mag240m"), mag(scale)
    graph = replace(graph, labels=graph.training_labels, splits=None)  # roots are chosen by what may be learned from
    maker = BatchMaker(graph, recipe=recipe, seed=0, device=graph.device)
    batches = [maker.sample(step) for step in range(1, steps + 1)]
    facts: Row = {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "batch_size": recipe.sampling.batch_size,
        "nodes_a_step": round(sum(batch.num_nodes for batch in batches) / steps),
        "edges_a_step": round(sum(batch.num_edges for batch in batches) / steps),
    }
    print(facts, flush=True)
    record = Record(to, "partition_traffic", **facts, simulated=True)
    busiest = torch.sort(graph.transpose.indptr.diff(), descending=True, stable=True).indices
    num_hops = len(recipe.sampling.fan_outs)
    for how in ("random", "streaming", "metis"):
        begin = time.perf_counter()
        part_of, cut = partition(graph, parts, how=choose_partitioner(how, graph))
        seconds = round(time.perf_counter() - begin, 1)
        for roots_how, cache in product(("turn", "owner"), CACHES):
            is_hot = torch.zeros(graph.num_nodes, dtype=torch.bool)
            is_hot[busiest[: round(cache * graph.num_nodes)]] = True
            row = {**cut.to_dict(), "partition_seconds": seconds, "roots": roots_how, "cache": cache}
            for width in WIDTHS:
                sizes = message_sizes(graph, num_hops=num_hops, by_time=True, unbiased=False, num_columns=width)
                count = partial(step_traffic, sizes=sizes, num_parts=parts, is_hot=is_hot)
                roots = [batch.roots_of(cast(Tensor, batch.node_ids)) for batch in batches]
                ranks = [ranks_of(one, part_of, parts, roots_how) for one in roots]
                row |= bytes_of([count(batch, part_of, own) for batch, own in zip(batches, ranks, strict=True)], width)
            record.add(row)


if __name__ == "__main__":
    run(main)
