"""What a batch's nodes have: features and labels, fetched from wherever they lie.

    on the sampler's device    one `index_select`
    a memory map, or host      rows are copied into pinned memory, then to the device without waiting
    hot nodes                  those with the most edges are sampled most: their rows are kept where batches are used

A batch of a power-law graph meets the same hubs again and again: a cache of a few per cent of the rows serves most of
the fetches.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphstrap.blocks import Block, Features
from graphstrap.graph import Graph
from graphstrap.quantised import QuantisedMatrix
from graphstrap.scaled import ScaledMatrix
from graphstrap.sparse import SparseMatrix


class Gatherer:
    """Fills batches of one graph.

    Args:
        graph: the whole graph, whose features may be on the host or memory-mapped.
        device: where batches are to be used.
        num_hot: how many rows of each feature block to keep there; 0 for none.
    """

    def __init__(self, graph: Graph, *, device: torch.device | None = None, num_hot: int = 0) -> None:
        self.graph = graph
        self.device = torch.empty(0, device=device or graph.device).device  # "cuda" by its number, as tensors name it
        ends = zip(graph.type_offsets, graph.type_offsets[1:], strict=False)
        self.blocks = [
            None
            if block is None
            else _Block(block, graph.indptr[first : last + 1], device=self.device, num_hot=num_hot)
            for block, (first, last) in zip(graph.features, ends, strict=True)
        ]

    def fill(self, batch: Graph) -> Graph:
        """The batch with its features and labels, on the device where it is to be used."""
        assert batch.node_ids is not None
        nodes, labels = batch.node_ids, self.graph.labels
        moved = to_device(batch, self.device)
        features = []
        for t, block in enumerate(self.blocks):
            rows = nodes[batch.type_offsets[t] : batch.type_offsets[t + 1]] - self.graph.type_offsets[t]
            features.append(None if block is None else block.rows(rows))
        if labels is not None:
            labels = labels.index_select(0, nodes.to(labels.device)).to(self.device)
        return replace(moved, features=tuple(features), labels=labels)


class _Block:
    """The feature rows of one node type."""

    def __init__(self, block: Block, indptr: Tensor, *, device: torch.device, num_hot: int) -> None:
        self.scaled = block if isinstance(block, ScaledMatrix) else None
        self.block, self.device = block.raw if isinstance(block, ScaledMatrix) else block, device
        self.hot: Tensor | None = None
        table = self.block
        if num_hot and isinstance(table, Tensor) and len(table):
            hottest = torch.topk(indptr.diff(), min(num_hot, len(table))).indices.to(table.device)
            self.places = torch.full((len(table),), -1, dtype=torch.int32, device=table.device)
            self.places[hottest] = torch.arange(len(hottest), dtype=torch.int32, device=table.device)
            self.hot = table.index_select(0, hottest).to(device)

    def rows(self, rows: Tensor) -> Features:
        """These rows as the encoder takes them, scaled where they are used."""
        raw = self._raw_rows(rows)
        return raw if self.scaled is None else self.scaled.apply(raw)

    def _raw_rows(self, rows: Tensor) -> Features:
        rows = rows.to(self.block.device)
        if isinstance(self.block, SparseMatrix):
            return self.block.select_rows(rows).map(lambda tensor: tensor.to(self.device, non_blocking=True))
        if isinstance(self.block, QuantisedMatrix):
            return self.block.take(rows).to(self.device, non_blocking=True)
        if self.hot is None:
            return self._fetch(rows)
        places = self.places.index_select(0, rows)
        is_hot = places >= 0
        hits, misses = is_hot.nonzero().squeeze(1), (~is_hot).nonzero().squeeze(1)
        out = torch.empty(len(rows), self.block.shape[1], dtype=self.block.dtype, device=self.device)
        out.index_copy_(
            0, hits.to(self.device), self.hot.index_select(0, places.index_select(0, hits).to(self.device).long())
        )
        return out.index_copy_(0, misses.to(self.device), self._fetch(rows.index_select(0, misses)))

    def _fetch(self, rows: Tensor) -> Tensor:
        assert isinstance(self.block, Tensor)
        if self.block.device == self.device or self.device.type == "cpu":
            return self.block.index_select(0, rows)
        staged = torch.empty(len(rows), self.block.shape[1], dtype=self.block.dtype, pin_memory=True)
        torch.index_select(self.block, 0, rows, out=staged)
        return staged.to(self.device, non_blocking=True)


def to_device(batch: Graph, device: torch.device) -> Graph:
    """A batch where it is to be used."""
    return batch if batch.device == device else batch.to(device)
