"""On paper: what a step of the recipe `mag240m` would cost on 8 to 512 GPUs, and what 10 billion edges would take.

    python lab/benchmarks/projection.py [--to lab/benchmarks/results/projection.json]

Nothing here was run on several GPUs. Counted: the parameters, and the bytes that a root moves (`partition_traffic.py`
at 8, 64 and 512 parts). Measured on an H200: the time a step computes (`mag_step.py`, `results/step_split_cuda.json`),
on straight lines between the numbers of roots that it was measured with. Assumed: all of `ASSUMED`. Time of a step:

    ideal        =  roots a GPU / 1,024 * compute of 1,024 roots
    compute      =  measured
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

from graphstrap.io.generate import mag
from graphstrap.nn.model import Model
from graphstrap.run.recipe import load_recipe
from graphstrap_lab.bench.record import read_record
from harness import RESULTS, Record, Row, run

ASSUMED = {
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


def count_parameters() -> int:
    """Those that are learned, with MAG240M's 768 columns."""
    model = Model.build(mag(5e-4, num_features=768), load_recipe("mag240m"), seed=0)
    return sum(p.numel() for p in model.module.parameters() if p.requires_grad)


def compute_seconds(roots: float) -> float:
    """Forward and backward pass and the optimiser on so many roots: a batch smaller than the smallest is no faster."""
    known = sorted((row["roots"], row["compute_ms"]) for row in read_record(RESULTS / "step_split_cuda.json")["rows"])
    sizes, milliseconds = zip(*known, strict=True)
    return float(np.interp(roots, sizes, milliseconds)) / 1e3


def project(num_gpus: int, roots: float, *, parameters: int, by: str) -> Row:
    """A step of one GPU, in seconds and bytes."""
    traffic, ideal = traffic_of(num_gpus), roots * compute_seconds(BATCH_SIZE) / BATCH_SIZE
    compute = compute_seconds(roots)
    headers = 8 * NUM_ASKS * (num_gpus - 1)  # sizes of messages: the same for any number of roots
    ids = headers + roots * (traffic["id_bytes"] - headers) / traffic["roots_a_worker"]
    features = roots * traffic["feature_bytes_768"] / traffic["roots_a_worker"]
    latency, peer = ASSUMED[f"{by}_latency_seconds"], ASSUMED[f"{by}_latency_a_peer_seconds"]
    bandwidth = ASSUMED[f"{by}_bytes_per_second"]
    exchange = NUM_COLLECTIVES * (latency + peer * (num_gpus - 1)) + (ids + features) / bandwidth
    gradient_bytes = 2 * (num_gpus - 1) / num_gpus * 4 * parameters
    gradients = gradient_bytes / ASSUMED["network_bytes_per_second"]
    gradients += ASSUMED["network_latency_seconds"] * math.log2(num_gpus)
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
        "efficiency": round(ideal / (max(compute, exchange) + gradients), 3),
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
    parameters = count_parameters()
    sizes = [
        part_sizes(edges, parts, columns)
        for edges, columns, parts in product((float(MAG_EDGES), 1e10), (128, 768), (8, 64, 512))
    ]
    record = Record(to, "projection", assumed=ASSUMED, parameters=parameters, parts=sizes, simulated=True)
    for by, has_fixed_batch, num_gpus in product(("tcp", "network"), (False, True), (8, 64, 512)):
        roots = BATCH_SIZE / num_gpus if has_fixed_batch else float(BATCH_SIZE)
        record.add(project(num_gpus, roots, parameters=parameters, by=by))
    for row in sizes:
        print(row)


if __name__ == "__main__":
    run(main)
