"""GAT forward and backward: ours against PyG's GATConv stack with the same weights, in one process.

    python lab/benchmarks/gat.py --to lab/benchmarks/results/gat_cuda.json            # PPI's size, the paper's widths
    python lab/benchmarks/gat.py --nodes 2000 --edges 20000 --sizes 16,16,32 --to gat.json  # a small one, for a CPU

A graph with power-law degrees; 4 heads of 256, 4 heads of 256, 6 heads of 512 averaged, linear skips, ELU. Both are
timed in turn with TF32 (medians), their peak memory is that of one pass beyond weights and graph, and their gradients
are compared in strict float32: the largest of |ours - theirs| / |theirs| over all weights. Ours is also timed in
bfloat16.
"""

from __future__ import annotations

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
from graphstrap_lab.bench.timing import Call, time_in_turn
from harness import Record, Row, run

HUB_POWER = 1.6  # the largest degree is then about twice PPI's 722


class Stack(nn.Module):
    """GATConv layers with linear skips and ELU, their weights those of a GAT."""

    def __init__(self, encoder: GAT) -> None:
        super().__init__()
        layers: list[Any] = list(encoder.layers)
        self.convs = nn.ModuleList(make_conv(layer) for layer in layers)
        self.skips = nn.ParameterList(skip.detach().clone() for layer in layers for skip in layer.skips)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for index, conv in enumerate(self.convs):
            z = conv(x, edge_index)
            x = F.elu(z + x @ self.skips[index] if index < len(self.skips) else z)
        return x

    def gradients(self) -> list[Tensor]:
        """In the order of `gradients_of`."""
        convs: list[Any] = list(self.convs)
        found = [(c.lin.weight.grad.T, c.att_src.grad[0], c.att_dst.grad[0], c.bias.grad) for c in convs]
        return [gradient for own in found for gradient in own] + [skip.grad for skip in self.skips]


def make_conv(layer: Any) -> Any:
    heads, size = layer.source.shape
    conv = import_pyg("nn").GATConv(layer.weights[0].shape[0], size, heads=heads, concat=not layer.is_last)
    with torch.no_grad():
        conv.lin.weight.copy_(layer.weights[0].T)
        conv.att_src.copy_(layer.source[None])
        conv.att_dst.copy_(layer.target[None])
        conv.bias.copy_(layer.bias)
    return conv


def gradients_of(encoder: GAT) -> list[Tensor]:
    layers: list[Any] = list(encoder.layers)
    found = [one.grad for own in layers for one in (own.weights[0], own.source, own.target, own.bias)]
    return found + [skip.grad for own in layers for skip in own.skips]


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
        sides = (gradients_of(self.encoder), self.stack.gradients())
        ours, theirs = (torch.cat([gradient.flatten() for gradient in own]) for own in sides)
        return float(torch.linalg.norm(ours - theirs) / torch.linalg.norm(theirs))


def measure(sides: Sides, *, rounds: int) -> Row:
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


def main(
    *,
    nodes: int = 44_906,
    edges: int = 1_200_000,
    features: int = 50,
    sizes: str = "256,256,512",
    heads: int = 4,
    output_heads: int = 6,
    rounds: int = 7,
    device: str = "auto",
    to: Path | None = None,
) -> None:
    """`sizes` are the widths of one head of each layer."""
    widths = [int(size) for size in sizes.split(",")]
    sides = Sides(power_law_graph(nodes, edges, features), widths, (heads, output_heads), resolve_device(device))
    Record(to, "gat").add({"sizes": widths, "heads": (heads, output_heads), **measure(sides, rounds=rounds)})


if __name__ == "__main__":
    run(main)
