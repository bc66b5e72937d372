"""Layer-wise inference: each layer once for all nodes, a block of rows at a time, in tables that may lie on disk.

A GCN's layers as one pass each over the graph, Z being what a layer's neighbours are summed from:

    Z_1      = X W_1
    H_i      = prelu(norm(A_hat Z_i))         rows of A_hat in blocks
    Z_{i+1}  = H_i W_{i+1}                    at once, so that H_i is never held
    H_L      = the embeddings

The numbers are those of a full pass. With a folder, Z and H are memory-mapped files in it, and a cut run goes on with
the blocks that were missing. Several workers of one host share the blocks of each table, which are the same however
many there are, and so are the bits. Memory: one block, and 12 bytes a node for degrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import Block, SparseMatrix, take_rows
from graphstrap.io.files import DoneBlocks, make_array_file
from graphstrap.nn.encoders.gcn import GCN, Epilogue, standardize
from graphstrap.nn.encoders.mlp import MLP
from graphstrap.ops.memory import free_memory
from graphstrap.train.parallel.workers import ALONE, Workers

Array = np.ndarray[Any, Any]
ROWS_PER_BLOCK = 1 << 16


def has_layers(encoder: nn.Module) -> bool:
    """Whether this encoder's layers are known here, each a function of a node's own row once neighbours are summed."""
    return isinstance(encoder, GCN | MLP) and not any(
        isinstance(module, Epilogue) and module.is_per_graph for module in encoder.layers
    )


@torch.no_grad()
def embed_layers(
    encoder: nn.Module,
    graph: Graph,
    *,
    device: torch.device | None = None,
    folder: Path | None = None,
    rows_per_block: int = ROWS_PER_BLOCK,
    workers: Workers = ALONE,
) -> Array:
    """(N, D) the encoder's embeddings of a prepared graph, in memory or as a memory map in `folder`, which several
    workers need."""
    if not isinstance(encoder, GCN | MLP) or not has_layers(encoder):
        raise InputError(
            "layer-wise embedding knows the encoders gcn and mlp, without a norm over the graph: embed full or sampled "
            "with this one"
        )
    encoder.eval()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    work = LayerWork(encoder, graph, device or graph.device, rows_per_block, folder, workers)
    table = work.make(0, layer_width(encoder, 0), work.first_rows)
    for index in range(len(encoder.layers)):
        table = work.make(index + 1, layer_width(encoder, index + 1), work.layer_rows(index, table))
    return table


@torch.no_grad()
def recalibrate_layers(encoder: nn.Module, graph: Graph, *, device: torch.device | None = None) -> None:
    """As `recalibrate_batch_norm`, a block of rows at a time: every layer's statistics become those of the clean graph
    before the next layer is computed."""
    assert isinstance(encoder, GCN | MLP)
    was_training = encoder.training
    encoder.eval()
    with TemporaryDirectory(prefix="graphstrap-") as folder:
        work = LayerWork(encoder, graph, device or graph.device, ROWS_PER_BLOCK, Path(folder))
        table = work.make(0, layer_width(encoder, 0), work.first_rows)
        for index, finish in enumerate(encoder.layers):
            if isinstance(finish.norm, nn.BatchNorm1d):
                set_statistics(finish.norm, work, table, num_rows=graph.num_nodes)
            if index + 1 < len(encoder.layers):
                table = work.make(index + 1, layer_width(encoder, index + 1), work.layer_rows(index, table))
    encoder.train(was_training)


def set_statistics(
    norm: nn.BatchNorm1d,
    work: LayerWork,
    table: Array,
    *,
    num_rows: int,
    add: Callable[[Tensor], Tensor] = lambda sums: sums,
) -> None:
    """Mean and variance of the rows that a layer normalises; `add` adds up what several workers have."""
    total, squares = torch.zeros(2, norm.num_features, dtype=torch.float64, device=work.device)
    for first, last in work.blocks():
        rows = work.propagated(table, first, last).double()
        total += rows.sum(0)
        squares += rows.square().sum(0)
    total, squares = add(torch.stack([total, squares]))
    mean = total / num_rows
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(mean)
    norm.running_var.copy_((squares - num_rows * mean.square()).clamp(min=0) / max(1, num_rows - 1))


def full_pass_fits(encoder: nn.Module, graph: Graph, device: torch.device) -> bool:
    """Whether a pass over the whole graph at once would take at most half of the memory that is free."""
    width = max(parameter.shape[-1] for parameter in encoder.parameters() if parameter.dim() > 0)
    needed = 4 * 4 * graph.num_nodes * width
    if graph.device.type != device.type:
        needed += graph.num_bytes
    return needed < free_memory(device) // 2


def layer_width(encoder: GCN | MLP, index: int) -> int:
    """The width of a table: of a layer's Z, or, after the last, of the embeddings."""
    if index > len(encoder.weights):
        return encoder.embedding_size
    return int((encoder.weights[index - 1] if index else encoder.input_weights[0]).shape[1])


@dataclass(frozen=True, eq=False)
class LayerWork:
    """One encoder's way through one graph."""

    encoder: GCN | MLP
    graph: Graph
    device: torch.device
    rows_per_block: int
    folder: Path | None
    workers: Workers = ALONE

    def make(self, number: int, width: int, rows: Callable[[int, int], Tensor]) -> Array:
        """Table `number`, its rows computed block by block; blocks that an earlier run has finished are kept."""
        shape = (self.graph.num_nodes, width)
        if self.folder is None:
            assert self.workers.size == 1
            table: Array = np.empty(shape, dtype=np.float32)
            for first, last in self.blocks():
                table[first:last] = rows(first, last).float().cpu().numpy()
            return table
        path, done = self.folder / f"table-{number}.npy", DoneBlocks(self.folder, number, self._identity())
        if self.workers.is_first and not done.is_begun(path):
            make_array_file(path, shape)
            done.begin()
        self.workers.wait()
        table = np.lib.format.open_memmap(path, mode="r+", dtype=np.float32, shape=shape)
        missing = sorted(set(self.blocks()) - done.blocks())
        self.workers.wait()  # until all have read what is missing
        for first, last in self.workers.share(missing):
            table[first:last] = rows(first, last).float().cpu().numpy()
            table.flush()
            done.add(self.workers.rank, first, last)
        self.workers.wait()  # the next table is made of this one
        return table

    def blocks(self) -> Iterator[tuple[int, int]]:
        for first in range(0, self.graph.num_nodes, self.rows_per_block):
            yield first, min(first + self.rows_per_block, self.graph.num_nodes)

    def first_rows(self, first: int, last: int) -> Tensor:
        """Rows of X W_1."""
        parts = []
        for t, weight in enumerate(self.encoder.input_weights):
            begin, end = self.graph.type_offsets[t], self.graph.type_offsets[t + 1]
            low, high = max(first, begin), min(last, end)
            if low < high:
                parts.append(_times(self.graph.features[t], weight, low - begin, high - begin, self.device))
        return torch.cat(parts)

    def layer_rows(self, index: int, table: Array) -> Callable[[int, int], Tensor]:
        """Rows of what follows a layer: H W of the next one, or H after the last."""
        encoder, finish = self.encoder, self.encoder.layers[index]
        weight = None if index + 1 == len(encoder.layers) else encoder.weights[index]
        if weight is not None and encoder.weight_standardization:
            weight = standardize(weight)

        def rows(first: int, last: int) -> Tensor:
            h: Tensor = finish(self.propagated(table, first, last))
            return h if weight is None else h @ weight

        return rows

    def propagated(self, table: Array, first: int, last: int) -> Tensor:
        """Rows of A_hat Z; of Z for an encoder that looks at no edge."""
        own = torch.from_numpy(table[first:last]).to(self.device)
        if isinstance(self.encoder, MLP):
            return own
        graph = self.graph
        begin, end = int(graph.indptr[first]), int(graph.indptr[last])
        sources = graph.indices[begin:end].cpu().long()
        offsets = (graph.indptr[first : last + 1] - begin).cpu()
        scale, weights = self.scales[first:last], self.scales.index_select(0, sources)
        if graph.edge_weights is not None:
            weights = weights * graph.edge_weights[begin:end].cpu()
        z = torch.from_numpy(table)
        narrow = torch.int32 if len(table) < 2**31 and end - begin < 2**31 else torch.int64
        sums = F.embedding_bag(
            sources.to(narrow), z, offsets.to(narrow), mode="sum", per_sample_weights=weights, include_last_offset=True
        )
        return (sums * scale[:, None]).to(self.device) + own * scale.square().to(self.device)[:, None]

    @cached_property
    def scales(self) -> Tensor:
        """(N,) 1 / sqrt(in-degree + 1)."""
        graph = self.graph
        if graph.edge_weights is None:
            degrees = graph.in_degrees.cpu().float()
        else:
            degrees = torch.segment_reduce(graph.edge_weights, "sum", offsets=graph.indptr, unsafe=True).cpu()
        return (degrees + 1.0).rsqrt()

    def _identity(self) -> list[Any]:
        """What must not have changed when a cut run goes on."""
        sums = [float(parameter.double().sum()) for parameter in self.encoder.state_dict().values()]
        return [self.graph.num_nodes, self.graph.num_edges, sums]


def _times(block: Block | None, weight: Tensor, first: int, last: int, device: torch.device) -> Tensor:
    """Rows of a feature block times its weight; a type without features has one row of 1."""
    if block is None:
        return weight.expand(last - first, -1)
    part = slice(first, last)
    rows = take_rows(block, part)
    if isinstance(rows, SparseMatrix):
        rows = rows.map(lambda tensor: tensor.to(device))
        return F.embedding_bag(
            rows.indices.long(),
            weight,
            rows.indptr,
            mode="sum",
            per_sample_weights=rows.values,
            include_last_offset=True,
        )
    return rows.to(device, weight.dtype) @ weight
