"""Masked propagation, forward and backward: ours against PyG's GCNConv propagation on an edge list, in one process.

    python lab/benchmarks/propagate.py                # 13,752 nodes, 491,722 directed edges, 256 columns, as Amazon
    Computers

Both do what a training step does with a view: drop half of the edges, normalise, propagate through one or two layers,
send a gradient back. The two are timed in turn; the table gives medians. Writes results/propagate.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from graphstrap import Graph, View, ViewSpec
from graphstrap.ops import propagate
from graphstrap.run.environment import describe_environment, describe_git

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


def ours(graph: Graph, h: torch.Tensor, upstream: torch.Tensor, *, step: int, layers: int) -> torch.Tensor:
    view = view_of(step)
    out = h
    for _ in range(layers):
        out = propagate(graph, view, out)
    return torch.autograd.grad(out, h, upstream)[0]


def pyg(graph: Graph, h: torch.Tensor, upstream: torch.Tensor, *, step: int, layers: int) -> torch.Tensor:
    from torch_geometric.nn import GCNConv

    layer = GCNConv(1, 1, bias=False)
    layer.lin = torch.nn.Identity()
    kept = kept_by_pyg(graph, step)
    out = h
    for _ in range(layers):
        out = layer(out, kept)
    return torch.autograd.grad(out, h, upstream)[0]


@lru_cache(maxsize=1)
def view_of(step: int) -> View:
    return View(ViewSpec(edge_drop_prob=0.5), step)


@lru_cache(maxsize=1)
def kept_by_pyg(graph: Graph, step: int) -> torch.Tensor:
    from torch_geometric.utils import dropout_edge

    torch.manual_seed(step)
    kept: torch.Tensor = dropout_edge(edge_index_of(graph), p=0.5)[0]
    return kept


@cache
def edge_index_of(graph: Graph) -> torch.Tensor:
    return torch.stack([graph.indices.long(), graph.targets])


def measure(graph: Graph, *, columns: int, layers: int, repeats: int, new_views: bool) -> dict[str, Any]:
    """`new_views`: every repeat draws its own view; otherwise all go through one that is drawn already."""
    h = torch.randn(graph.num_nodes, columns, requires_grad=True)
    upstream = torch.randn(graph.num_nodes, columns)
    times: dict[str, list[float]] = {"ours": [], "pyg": []}
    for step in range(repeats + 1):  # the first of each warms up
        for name, work in (("ours", ours), ("pyg", pyg)):
            started = time.perf_counter()
            work(graph, h, upstream, step=step if new_views else 0, layers=layers)
            times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values[1:]) * 1e3 for name, values in times.items()}
    floor = layers * bandwidth_floor_ms(graph, columns)
    views = "view drawn each time" if new_views else "view drawn before"
    print(
        f"{layers} layer(s), {views}: ours {medians['ours']:.1f} ms, PyG {medians['pyg']:.1f} ms, "
        f"{medians['pyg'] / medians['ours']:.1f} times faster; floor {floor:.1f} ms"
    )
    return {
        "layers": layers,
        "new_views": new_views,
        "ours_ms": medians["ours"],
        "pyg_ms": medians["pyg"],
        "speedup": medians["pyg"] / medians["ours"],
        "floor_ms": floor,
        "ours_over_floor": medians["ours"] / floor,
        "times_ms": {name: [round(value * 1e3, 2) for value in values] for name, values in times.items()},
    }


def bandwidth_floor_ms(graph: Graph, columns: int) -> float:
    """Half of the edges gathered once forward and once backward, at the rate at which this machine copies memory."""
    block = torch.empty(64 << 20, dtype=torch.uint8)
    target = torch.empty_like(block)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        target.copy_(block)
        seconds.append(time.perf_counter() - started)
    moved = 2 * (graph.num_edges / 2 + 2 * graph.num_nodes) * columns * 4
    return moved / (2 * len(block) / min(seconds)) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=13_752)
    parser.add_argument("--edges", type=int, default=491_722)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    graph = power_law_graph(arguments.nodes, arguments.edges)
    rows = [
        measure(graph, columns=arguments.columns, layers=layers, repeats=arguments.repeats, new_views=new_views)
        for layers, new_views in ((1, False), (1, True), (2, True))
    ]
    sizes = {"nodes": graph.num_nodes, "edges": graph.num_edges, "columns": arguments.columns}
    result = {**sizes, "rows": rows, "environment": describe_environment(), "git": describe_git()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
