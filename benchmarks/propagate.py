"""Masked propagation, forward and backward: ours against PyG's GCNConv propagation on an edge list, in one process.

    python benchmarks/propagate.py                # 13,752 nodes, 491,722 directed edges, 256 columns, as Amazon
    Computers

Both do what a training step does: drop half of the edges, normalise, propagate, and send a gradient back. The two are
timed in turn; the table gives medians. Writes results/propagate.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from graphstrap import Graph, View, ViewSpec
from graphstrap.environment import describe_environment, describe_git
from graphstrap.ops import propagate

RESULTS = Path(__file__).parent / "results" / "propagate.json"


def power_law_graph(num_nodes: int, num_edges: int) -> Graph:
    """Undirected, with hubs; close to the number of edges asked for, then cut to it."""
    generator = torch.Generator().manual_seed(0)
    half = num_edges // 2
    ends = (torch.rand(2, 2 * num_edges, generator=generator) ** 2.5 * num_nodes).long()
    low, high = ends.min(0).values, ends.max(0).values
    pairs = torch.unique((low * num_nodes + high)[low != high])
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[:half]]
    shuffle = torch.randperm(num_nodes, generator=generator)
    return Graph.from_edges(shuffle[pairs // num_nodes], shuffle[pairs % num_nodes], num_nodes=num_nodes)


def ours(graph: Graph, h: torch.Tensor, upstream: torch.Tensor, step: int) -> torch.Tensor:
    view = View(ViewSpec(edge_drop_prob=0.5), step)
    return torch.autograd.grad(propagate(graph, view, h), h, upstream)[0]


def pyg(graph: Graph, h: torch.Tensor, upstream: torch.Tensor, step: int) -> torch.Tensor:
    from torch_geometric.nn import GCNConv
    from torch_geometric.utils import dropout_edge

    layer = GCNConv(1, 1, bias=False)
    layer.lin = torch.nn.Identity()
    edge_index = torch.stack([graph.indices.long(), graph.targets])
    torch.manual_seed(step)
    kept, _ = dropout_edge(edge_index, p=0.5)
    return torch.autograd.grad(layer(h, kept), h, upstream)[0]


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=13_752)
    parser.add_argument("--edges", type=int, default=491_722)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    graph = power_law_graph(arguments.nodes, arguments.edges)
    h = torch.randn(arguments.nodes, arguments.columns, requires_grad=True)
    upstream = torch.randn(arguments.nodes, arguments.columns)
    times: dict[str, list[float]] = {"ours": [], "pyg": []}
    peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours(graph, h, upstream, 0)
    peak_ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pyg(graph, h, upstream, 0)
    peak_pyg = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for step in range(1, arguments.repeats + 1):
        times["ours"].append(seconds(lambda step=step: ours(graph, h, upstream, step)))  # type: ignore[misc]
        times["pyg"].append(seconds(lambda step=step: pyg(graph, h, upstream, step)))  # type: ignore[misc]
    medians = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    floor = bandwidth_floor_ms(graph, arguments.columns)
    result = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "columns": arguments.columns,
        "ours_ms": medians["ours"],
        "pyg_ms": medians["pyg"],
        "speedup": medians["pyg"] / medians["ours"],
        "floor_ms": floor,
        "ours_over_floor": medians["ours"] / floor,
        "ours_peak_growth_kib": peak_ours - peak_before,
        "pyg_peak_growth_kib": peak_pyg - peak_ours,
        "times_ms": {name: [round(value * 1e3, 2) for value in values] for name, values in times.items()},
        "environment": describe_environment(),
        "git": describe_git(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(f"ours {medians['ours']:.1f} ms, PyG {medians['pyg']:.1f} ms: {result['speedup']:.1f} times faster")
    print(
        f"floor {floor:.1f} ms (gathered bytes over measured copy bandwidth): {result['ours_over_floor']:.1f} times it"
    )


def bandwidth_floor_ms(graph: Graph, columns: int) -> float:
    """Half of the edges gathered once forward and once backward, at the rate at which this machine copies memory."""
    block = torch.empty(64 << 20, dtype=torch.uint8)
    target = torch.empty_like(block)
    rate = 2 * len(block) / min(seconds(lambda: target.copy_(block)) for _ in range(5))
    moved = 2 * (graph.num_edges / 2 + 2 * graph.num_nodes) * columns * 4
    return moved / rate * 1e3


if __name__ == "__main__":
    main()
