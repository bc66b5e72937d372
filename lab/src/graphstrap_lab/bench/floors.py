"""The least that each part of a training step must move and multiply, and the time that this takes at measured rates.

    dense product       the larger of  FLOPs / matrix rate  and  bytes / memory rate
    sparse product      gathered rows / rate of what holds the table  +  bytes streamed / memory rate
    anything else       bytes / memory rate

The cache's rate stands in for the memory's where everything that is touched fits into the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.rates import Rates

INDEX_BYTES = 4


@dataclass(frozen=True)
class Floor:
    """Of one call."""

    flops: float
    num_bytes: float
    seconds: float


@dataclass(frozen=True)
class Floors:
    """Of the parts of a step on one graph, at one precision and one device's rates."""

    graph: Graph
    recipe: Recipe
    rates: Rates
    precision: str
    element_bytes: int = 4  # of activations: on a CPU they are float32 whatever products are computed in

    def propagate(self, width: int) -> Floor:
        """Every kept edge and every self-loop gathers one row; the result is written once. Backward is the same."""
        drop_probs = self.recipe.views.edge_drop_probs
        kept = self.graph.num_edges * (1.0 - sum(drop_probs) / len(drop_probs)) + self.graph.num_nodes
        return self._sparse(kept, num_rows=self.graph.num_nodes, table_rows=self.graph.num_nodes, width=width)

    def project(self, width: int, *, backward: bool = False) -> Floor:
        """X W, or X^T G for the gradient: the most frequent columns as a dense product, the others as a sparse one, cut
        where that is least."""
        x, num_nodes = self.graph.x, self.graph.num_nodes
        assert x is not None
        num_columns = int(x.shape[1])
        if not isinstance(x, SparseMatrix):
            return self.matmul(num_nodes, num_columns, width)
        num_rows, table_rows = (num_columns, num_nodes) if backward else (num_nodes, num_columns)
        counts = torch.bincount(x.indices, minlength=num_columns).sort(descending=True).values.cumsum(0).tolist()
        cuts = [(0, 0), *((hot, counts[hot - 1]) for hot in (*range(64, num_columns, 64), num_columns))]
        floors = []
        for hot, entries in cuts:
            parts = [self.matmul(num_nodes, hot, width)] if hot else []
            if hot < num_columns:
                rest = len(x.values) - entries
                parts.append(self._sparse(rest, num_rows=num_rows, table_rows=table_rows, width=width))
            floors.append(together(*parts))
        return min(floors, key=lambda floor: floor.seconds)

    def matmul(self, rows: int, inner: int, columns: int) -> Floor:
        flops = 2.0 * rows * inner * columns
        num_bytes = float((rows * inner + inner * columns + rows * columns) * self.element_bytes)
        multiply = self.rates.seconds_to_multiply(flops, precision=self.precision)
        return Floor(flops, num_bytes, max(multiply, self._streamed(num_bytes).seconds))

    def passes(self, count: float, *, width: int) -> Floor:
        """So many times reading or writing (N, width)."""
        return self._streamed(count * self.graph.num_nodes * width * self.element_bytes)

    def draw_view(self) -> Floor:
        """One pass over the edges, one degree written for each node."""
        return self._streamed(float(INDEX_BYTES * (self.graph.num_edges + self.graph.num_nodes)))

    def update(self, *, num_learned: int, num_averaged: int) -> Floor:
        """AdamW reads weight, gradient and two moments and writes three of them; the average reads two, writes one."""
        return self._streamed(4.0 * (7 * num_learned + 3 * num_averaged))

    def _sparse(self, entries: float, *, num_rows: int, table_rows: int, width: int) -> Floor:
        gathered = entries * width * self.element_bytes
        table = float(table_rows * width * self.element_bytes)
        streamed = self._streamed(num_rows * width * self.element_bytes + entries * INDEX_BYTES)
        seconds = self.rates.seconds_to_move(gathered, table_bytes=table) + streamed.seconds
        return Floor(2.0 * entries * width, gathered + streamed.num_bytes, seconds)

    def _streamed(self, num_bytes: float) -> Floor:
        return Floor(0.0, num_bytes, self.rates.seconds_to_move(num_bytes, table_bytes=num_bytes))


def together(*floors: Floor) -> Floor:
    """Of calls that follow each other."""
    return Floor(sum(f.flops for f in floors), sum(f.num_bytes for f in floors), sum(f.seconds for f in floors))
