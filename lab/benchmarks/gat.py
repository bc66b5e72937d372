"""GAT forward and backward: ours against PyG's GATConv stack with the same weights, in one process.

    python lab/benchmarks/gat.py --to lab/benchmarks/results/gat_cuda.json            # PPI's size, the paper's widths
    python lab/benchmarks/gat.py --nodes 2000 --edges 20000 --sizes 16,16,32 --to gat.json  # a small one, for a CPU

A graph with power-law degrees; 4 heads of 256, 4 heads of 256, 6 heads of 512 averaged, linear skips, ELU. Both are
timed in turn with TF32 (medians), their peak memory is that of one pass beyond weights and graph, and their gradients
are compared in strict float32: the largest of |ours - theirs| / |theirs| over all weights. Ours is also timed in
bfloat16.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap import Graph
from graphstrap.io.pyg import import_pyg
from graphstrap.nn.encoders.gat import GAT
from graphstrap.ops import backend, resolve_device
from graphstrap.ops.precision import computing_in
from graphstrap_lab.bench.memory import PeakMemory
from graphstrap_lab.bench.record import write_record
from graphstrap_lab.bench.timing import Call, time_in_turn

HUB_POWER = 1.6  # the largest degree is then about twice PPI's 722


class Stack(nn.Module):
    """GATConv layers with linear skips and ELU, their weights those of a GAT."""

    def __init__(self, encoder: GAT) -> None:
        super().__init__()
        self.convs, self.skips = nn.ModuleList(), nn.ParameterList()
        for layer in encoder.layers:
            self.convs.append(make_conv(layer))
            self.skips.extend(nn.Parameter(skip.detach().clone()) for skip in layer.skips)  # type: ignore[union-attr]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for index, conv in enumerate(self.convs):
            z = conv(x, edge_index)
            x = F.elu(z + x @ self.skips[index] if index < len(self.skips) else z)
        return x

    def gradients(self) -> list[Tensor | None]:
        """In the order of `gradients_of`."""
        found: list[Tensor | None] = []
        for index, conv in enumerate(self.convs):
            convs: Any = conv
            found += [convs.lin.weight.grad.T, convs.att_src.grad[0], convs.att_dst.grad[0], convs.bias.grad]
            found += [self.skips[index].grad] if index < len(self.skips) else []
        return found


def make_conv(layer: Any) -> Any:
    heads, size = layer.source.shape
    conv = import_pyg("nn").GATConv(layer.weights[0].shape[0], size, heads=heads, concat=not layer.is_last)
    with torch.no_grad():
        conv.lin.weight.copy_(layer.weights[0].T)
        conv.att_src.copy_(layer.source[None])
        conv.att_dst.copy_(layer.target[None])
        conv.bias.copy_(layer.bias)
    return conv


def gradients_of(encoder: GAT) -> list[Tensor | None]:
    layers: list[Any] = list(encoder.layers)
    return [
        p.grad for layer in layers for p in (layer.weights[0], layer.source, layer.target, layer.bias, *layer.skips)
    ]


def power_law_graph(num_nodes: int, num_edges: int, num_features: int) -> Graph:
    """Undirected, without duplicates, cut to the number of directed edges asked for."""
    generator = torch.Generator().manual_seed(0)
    ends = (torch.rand(2, num_edges, generator=generator) ** HUB_POWER * num_nodes).long()
    low, high = ends.min(0).values, ends.max(0).values
    pairs = torch.unique((low * num_nodes + high)[low != high])
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[: num_edges // 2]]
    shuffle = torch.randperm(num_nodes, generator=generator)
    x = torch.randn(num_nodes, num_features, generator=generator)
    return Graph.from_edges(shuffle[pairs // num_nodes], shuffle[pairs % num_nodes], num_nodes=num_nodes, x=x)


class Sides:
    """Both networks, and one pass of each under a precision: forward, backward, gradients left in the weights."""

    def __init__(self, graph: Graph, sizes: list[int], heads: tuple[int, int], device: torch.device) -> None:
        self.graph, self.device = graph.to(device), device
        encoder = GAT(
            graph.num_features,
            sizes,
            num_heads=heads[0],
            num_output_heads=heads[1],
            generator=torch.Generator().manual_seed(0),
        )
        self.stack, self.encoder = Stack(encoder).to(device), encoder.to(device)
        self.edge_index = torch.stack([self.graph.indices.long(), self.graph.targets])
        self.upstream = torch.randn(graph.num_nodes, sizes[-1], generator=torch.Generator().manual_seed(1)).to(device)

    def ours(self, precision: str = "tf32") -> None:
        self.encoder.zero_grad(set_to_none=True)
        with computing_in(precision, self.device):
            out = self.encoder(self.graph)
            torch.autograd.backward(out, self.upstream.to(out.dtype))

    def pyg(self, precision: str = "tf32") -> None:
        self.stack.zero_grad(set_to_none=True)
        assert isinstance(self.graph.x, Tensor)
        with computing_in(precision, self.device):
            torch.autograd.backward(self.stack(self.graph.x, self.edge_index), self.upstream)

    def gradient_difference(self, slope: float) -> float:
        """Relative, of all parameters together. Attention's gradient jumps where a score is 0; of millions of them
        some are so near that two orders of summation disagree. With a slope of 1 nothing jumps."""
        for layer, conv in zip(self.encoder.layers, self.stack.convs, strict=True):
            layer.slope = conv.negative_slope = slope  # type: ignore[assignment]
        self.ours("fp32")
        self.pyg("fp32")
        pairs = zip(gradients_of(self.encoder), self.stack.gradients(), strict=True)
        given = [(a.flatten(), b.flatten()) for a, b in pairs if a is not None and b is not None]
        ours, theirs = (torch.cat(parts) for parts in zip(*given, strict=True))
        return float(torch.linalg.norm(ours - theirs) / torch.linalg.norm(theirs))


def measure(sides: Sides, *, rounds: int) -> dict[str, Any]:
    device = sides.device
    without_jumps, difference = (sides.gradient_difference(slope) for slope in (1.0, 0.2))
    calls: dict[str, Call] = {"ours": sides.ours, "pyg": sides.pyg, "ours_bf16": lambda: sides.ours("bf16")}
    peaks = {}
    for name, call in calls.items():
        sides.encoder.zero_grad(set_to_none=True)
        sides.stack.zero_grad(set_to_none=True)
        call()  # what is worked out once for a graph is there now
        with PeakMemory(device) as memory:
            call()
        peaks[name] = memory.peak_bytes
    timings = time_in_turn(calls, rounds=rounds, device=device)
    medians = {name: timing.median_ms for name, timing in timings.items()}
    return {
        "nodes": sides.graph.num_nodes,
        "edges": sides.graph.num_edges,
        "largest_degree": int(sides.graph.in_degrees.max()),
        "backend": backend(device.type).name,
        **{f"{name}_ms": value for name, value in medians.items()},
        **{f"{name}_iqr_ms": timing.iqr_ms for name, timing in timings.items()},
        **{f"{name}_peak_bytes": value for name, value in peaks.items()},
        "speedup": medians["pyg"] / medians["ours"],
        "memory_ratio": peaks["ours"] / max(1, peaks["pyg"]),
        "fp32_gradient_difference": difference,
        "fp32_gradient_difference_without_jumps": without_jumps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=44_906)
    parser.add_argument("--edges", type=int, default=1_200_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--sizes", default="256,256,512", help="width of one head of each layer")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--output-heads", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    graph = power_law_graph(arguments.nodes, arguments.edges, arguments.features)
    heads = arguments.heads, arguments.output_heads
    sides = Sides(graph, sizes, heads, resolve_device(arguments.device))
    row = {"sizes": sizes, "heads": heads, **measure(sides, rounds=arguments.rounds)}
    for name, value in row.items():
        print(f"{name}: {value}")
    command = (
        f"python lab/benchmarks/gat.py --nodes {arguments.nodes} --edges {arguments.edges} --sizes {arguments.sizes}"
    )
    write_record(arguments.to, bench="gat", command=command, rows=[row])


if __name__ == "__main__":
    main()
