"""GAT forward and backward: ours against PyG's GATConv stack with the same weights, in one process.

    python lab/benchmarks/gat.py --to lab/benchmarks/results/gat_cuda.json            # PPI's size, the paper's widths
    python lab/benchmarks/gat.py --nodes 2000 --edges 20000 --sizes 16,16,32 --to gat.json  # a small one, for a CPU

A graph with power-law degrees; 4 heads of 256, 4 heads of 256, 6 heads of 512 averaged, linear skips, ELU. Both are
timed in turn with TF32 (medians), their peak memory is that of one pass beyond weights and graph, and their gradients
are compared in strict float32: |ours - theirs| / |theirs| of all weights together. Attention's gradient jumps where a
score is 0; of millions of them some are so near that two orders of summation disagree. Ours is also timed in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap import Graph
from graphstrap.io.pyg import import_pyg
from graphstrap.nn.encoders.gat import GAT
from graphstrap.ops import backend, resolve_device
from graphstrap.ops.precision import computing_in
from graphstrap_lab.bench.measure import Call
from harness import Record, Row, compare, run

HEADS = (4, 6)  # of the hidden layers, and of the last
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


def make_conv(layer: Any) -> Any:
    heads, size = layer.source.shape
    conv = import_pyg("nn").GATConv(layer.weights[0].shape[0], size, heads=heads, concat=not layer.is_last)
    with torch.no_grad():
        conv.lin.weight.copy_(layer.weights[0].T)
        conv.att_src.copy_(layer.source[None])
        conv.att_dst.copy_(layer.target[None])
        conv.bias.copy_(layer.bias)
    return conv


def gradients(encoder: GAT, stack: Stack) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each weight, ours and theirs."""
    layers: list[Any] = list(encoder.layers)
    convs: list[Any] = list(stack.convs)
    for layer, conv in zip(layers, convs, strict=True):
        yield layer.weights[0].grad, conv.lin.weight.grad.T
        yield layer.source.grad, conv.att_src.grad[0]
        yield layer.target.grad, conv.att_dst.grad[0]
        yield layer.bias.grad, conv.bias.grad
    for skip, other in zip((skip for layer in layers for skip in layer.skips), stack.skips, strict=True):
        yield skip.grad, cast(Tensor, other.grad)


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


def measure(graph: Graph, sizes: list[int], heads: tuple[int, int], *, device: torch.device) -> Row:
    graph, random = graph.to(device), torch.Generator().manual_seed(1)
    start = torch.Generator().manual_seed(0)
    encoder = GAT(graph.num_features, sizes, num_heads=heads[0], num_output_heads=heads[1], generator=start).to(device)
    stack = Stack(encoder).to(device)
    x, edge_index = graph.x, torch.stack([graph.indices.long(), graph.targets])
    upstream = torch.randn(graph.num_nodes, sizes[-1], generator=random).to(device)

    def ours(precision: str = "tf32") -> None:
        encoder.zero_grad(set_to_none=True)
        with computing_in(precision, device):
            out = encoder(graph)
            torch.autograd.backward(out, upstream.to(out.dtype))

    def pyg(precision: str = "tf32") -> None:
        stack.zero_grad(set_to_none=True)
        with computing_in(precision, device):
            torch.autograd.backward(stack(x, edge_index), upstream)

    ours("fp32")
    pyg("fp32")
    mine, theirs = (torch.cat([g.flatten() for g in own]) for own in zip(*gradients(encoder, stack), strict=True))
    facts = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "largest_degree": int(graph.in_degrees.max()),
        "backend": backend(device.type).name,
        "fp32_gradient_difference": float(torch.linalg.norm(mine - theirs) / torch.linalg.norm(theirs)),
    }
    calls: dict[str, Call] = {"ours": ours, "pyg": pyg, "ours_bf16": partial(ours, "bf16")}
    return {**facts, **compare(calls, rounds=7, device=device)}


def main(
    *,
    nodes: int = 44_906,
    edges: int = 1_200_000,
    sizes: str = "256,256,512",
    device: str = "auto",
    to: Path | None = None,
) -> None:
    """`sizes` are the widths of one head of each layer."""
    graph, widths = power_law_graph(nodes, edges, 50), [int(size) for size in sizes.split(",")]
    row = measure(graph, widths, HEADS, device=resolve_device(device))
    Record(to, "gat").add({"sizes": widths, "heads": HEADS, **row})


if __name__ == "__main__":
    run(main)
