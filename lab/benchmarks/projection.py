"""On paper: what a step of the recipe `mag240m` would cost on 8 to 512 GPUs, and what 10 billion edges would take.

    python lab/benchmarks/projection.py [--to lab/benchmarks/results/projection.json]

Nothing here was run on several GPUs. Counted: parameters and floating-point operations of a step (PyTorch's counter, a
small batch on a CPU, scaled by the number of edges), bytes a root moves (`partition_traffic.py` at 8, 64 and 512
parts). Measured on an H200: the time a step computes (`mag_step.py`, `results/step_split_cuda.json`), on straight
lines between the numbers of roots that it was measured with; where that file is missing, operations by a share of the
rate of a large bfloat16 product (`results/bench_ops_cuda.json`). Assumed: all of `ASSUMED`. Time of a step:

    ideal        =  roots a GPU / 1,024 * compute of 1,024 roots
    compute      =  measured, or max(ideal, what launching a step's kernels takes)
    exchange     =  collectives * (latency + latency a peer * (P - 1))  +  roots a GPU * bytes a root / bandwidth
    gradients    =  2 (P - 1) / P * 4 bytes * parameters / bandwidth  +  latency * log2 P
    step         =  max(compute, exchange) + gradients       batches are made ahead; gradients are added up at the end
    efficiency   =  ideal / step
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from graphstrap.api.embed import prepare
from graphstrap.graph import View
from graphstrap.io.generate import mag
from graphstrap.nn.model import Model
from graphstrap.run.recipe import load_recipe
from graphstrap.train.batches import BatchMaker
from graphstrap_lab.bench.record import read_record
from harness import RESULTS, Record, Row, run

ASSUMED = {
    "share_of_matmul_rate": 0.3,  # the MPNN's products are smaller than the measured one, and not all there is
    "least_step_seconds": 10e-3,  # an eager GCN step took 9 to 11 ms to launch (docs/LOG.md); the MPNN was not measured
    "network_bytes_per_second": 25e9,  # of a GPU to other hosts: half of a 400 Gb/s card
    "tcp_bytes_per_second": 1e9,  # of a worker, by gloo: the transport that the exchange has now
    "network_latency_seconds": 30e-6,  # of a collective, by NCCL
    "tcp_latency_seconds": 200e-6,  # likewise by gloo
    "network_latency_a_peer_seconds": 1e-6,
    "tcp_latency_a_peer_seconds": 10e-6,
}
NUM_ASKS = 1 + 2 + 3  # times of roots, two hops, three node types
NUM_COLLECTIVES = 1 * 3 + 2 * 4 + 3 * 3
BATCH_SIZE = 1024
MAG_NODES, MAG_EDGES = 244_160_499, 2 * 1_728_364_232  # both directions
ROW_BYTES, EDGE_BYTES, LABEL_AND_TIME_BYTES = 24, 4 + 1 + 1, 16


def count_step(num_features: int, *, num_roots: int) -> tuple[int, float]:
    """Learned parameters, and operations of a step for each edge of its batch, backward pass included."""
    recipe = load_recipe("mag240m").with_settings({"sampling.batch_size": num_roots, "train.precision": "fp32"})
    graph = mag(5e-4, num_features=num_features)
    model = Model.build(graph, recipe, seed=0)
    batch = BatchMaker(prepare(model, graph), recipe=recipe, seed=0, device=torch.device("cpu"))(1)
    views = [View(spec, seed) for seed, spec in enumerate(recipe.views.specs())]
    with FlopCounterMode(display=False) as counter:
        loss, _ = model.method.loss(batch, views)
        torch.autograd.backward(loss)
    learned = sum(p.numel() for p in model.module.parameters() if p.requires_grad)
    return learned, counter.get_total_flops() / batch.num_edges


def compute_seconds(roots: float, work: Row) -> float:
    """Forward and backward pass and the optimiser on so many roots."""
    if work["measured"]:
        known = sorted((row["roots"], 1e-3 * row["compute_ms"]) for row in work["measured"])
        sizes, seconds = ([one[place] for one in known] for place in (0, 1))
        return float(np.interp(roots, sizes, seconds))  # a smaller batch than the smallest is no faster
    return max(float(roots * work["flops_a_root"] / work["flops_per_second"]), ASSUMED["least_step_seconds"])


def project(num_gpus: int, roots: float, *, work: Row, traffic: Row, by: str) -> Row:
    """A step of one GPU, in seconds and bytes."""
    ideal = roots * compute_seconds(BATCH_SIZE, work) / BATCH_SIZE
    compute = compute_seconds(roots, work)
    headers = 8 * NUM_ASKS * (num_gpus - 1)  # sizes of messages: the same for any number of roots
    ids = headers + roots * (traffic["id_bytes"] - headers) / traffic["roots_a_worker"]
    features = roots * traffic["feature_bytes_768"] / traffic["roots_a_worker"]
    latency, peer = ASSUMED[f"{by}_latency_seconds"], ASSUMED[f"{by}_latency_a_peer_seconds"]
    bandwidth = ASSUMED[f"{by}_bytes_per_second"]
    exchange = NUM_COLLECTIVES * (latency + peer * (num_gpus - 1)) + (ids + features) / bandwidth
    gradient_bytes = 2 * (num_gpus - 1) / num_gpus * 4 * work["parameters"]
    gradients = gradient_bytes / ASSUMED["network_bytes_per_second"]
    gradients += ASSUMED["network_latency_seconds"] * math.log2(num_gpus)
    step = max(compute, exchange) + gradients
    return {
        "gpus": num_gpus,
        "roots_a_gpu": roots,
        "exchange_by": by,
        "id_bytes": round(ids),
        "feature_bytes": round(features),
        "gradient_bytes": round(gradient_bytes),
        "compute_ms": round(1e3 * compute, 2),
        "exchange_ms": round(1e3 * exchange, 2),
        "gradients_ms": round(1e3 * gradients, 2),
        "efficiency": round(ideal / step, 3),
    }


def traffic_of(num_parts: int) -> Row:
    """METIS, roots to their owner, a cache of 1 % of the nodes."""
    record = read_record(RESULTS / f"partition_traffic_{num_parts}.json")
    wanted = {"partitioner": "metis", "roots": "owner", "cache": 0.01}
    row = next(row for row in record["rows"] if wanted.items() <= row.items())
    return {**row, "roots_a_worker": record["batch_size"] / num_parts}


def part_sizes(num_edges: float, num_parts: int, num_columns: int) -> Row:
    """A part of a graph in MAG240M's proportions."""
    nodes = num_edges * MAG_NODES / MAG_EDGES
    rows = ROW_BYTES * nodes + EDGE_BYTES * num_edges + LABEL_AND_TIME_BYTES * nodes
    features = 2 * num_columns * nodes
    return {
        "edges": num_edges,
        "nodes": round(nodes),
        "parts": num_parts,
        "columns": num_columns,
        "part_gb": round((rows + features) / num_parts / 1e9, 1),
        "map_gb": round(nodes * (1 if num_parts <= 256 else 2) / 1e9, 2),
        "whole_gb": round((rows + features) / 1e9),
    }


def main(*, to: Path | None = None) -> None:
    rate = read_record(RESULTS / "bench_ops_cuda.json")["rates"]["flops_per_second"]["bf16"]
    parameters, flops = count_step(768, num_roots=33)
    traffic = read_record(RESULTS / "partition_traffic_64.json")
    split = RESULTS / "step_split_cuda.json"
    work = {
        "measured": read_record(split)["rows"] if split.exists() else [],
        "parameters": parameters,
        "flops_a_root": flops * traffic["edges_a_step"] / traffic["batch_size"],
        "flops_per_second": ASSUMED["share_of_matmul_rate"] * rate,
    }
    sizes = [
        part_sizes(edges, parts, columns)
        for edges, columns, parts in product((float(MAG_EDGES), 1e10), (128, 768), (8, 64, 512))
    ]
    record = Record(to, "projection", assumed=ASSUMED, work=work, parts=sizes, simulated=True)
    for by, has_fixed_batch, num_gpus in product(("tcp", "network"), (False, True), (8, 64, 512)):
        roots = BATCH_SIZE / num_gpus if has_fixed_batch else float(BATCH_SIZE)
        record.add(project(num_gpus, roots, work=work, traffic=traffic_of(num_gpus), by=by))
    for row in sizes:
        print(row)


if __name__ == "__main__":
    run(main)
