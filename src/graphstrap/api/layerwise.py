"""Layer-wise inference: each layer once for all nodes, a block of rows at a time, in arrays that may lie on disk.

A GCN's layers as one pass each over the graph, Z being what a layer's neighbours are summed from:

    Z_1      = X W_1
    H_i      = prelu(norm(A_hat Z_i))         rows of A_hat in blocks
    Z_{i+1}  = H_i W_{i+1}                    at once, so that H_i is never held
    H_L      = the embeddings

The columns of `instant` are made likewise, z_k from z_{k-1}.

The numbers are those of a full pass. With a folder, Z and H are memory-mapped files in it, and an interrupted run goes
on with the missing blocks. Several workers of one host share the blocks, which are the same however many workers there
are, and so are the bits. Memory: one block, and 12 bytes a node for degrees.

Of a graph in parts, each worker computes the rows of its own nodes and asks their owners for the rows of neighbours.
All workers go through the same number of blocks, some of them empty, because each block is an exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeGuard

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import Block, SparseMatrix, take_rows
from graphstrap.io.files import DoneBlocks, make_array_file
from graphstrap.io.parts import Part
from graphstrap.nn.encoders.gcn import GCN, Epilogue, standardize
from graphstrap.nn.encoders.mlp import MLP
from graphstrap.nn.methods.instant import HopColumns
from graphstrap.train.parallel.exchange import Answer, Exchange
from graphstrap.train.parallel.workers import ALONE, Workers

Array = np.ndarray[Any, Any]
ROWS_PER_BLOCK = 1 << 16


def has_layers(encoder: nn.Module) -> TypeGuard[GCN | HopColumns]:
    """Whether this encoder's layers are known here: functions of a node's own row and a sum over neighbours."""
    if isinstance(encoder, GCN):
        return not any(isinstance(module, Epilogue) and module.is_per_graph for module in encoder.layers)
    return isinstance(encoder, HopColumns)


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
    """(N, D) the encoder's embeddings of a prepared graph, in memory or, as several workers need it, as a memory map in
    `folder`. Of a graph in parts, the (n, D) embeddings of the part's own nodes; every worker calls this."""
    if not has_layers(encoder):
        raise InputError(
            "layer-wise embedding knows instant, and gcn and mlp without a norm over the graph: embed full"
        )
    encoder.eval()
    if isinstance(graph, Part):
        return PartLayerWork.of(encoder, graph, workers).embed()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return LayerWork(encoder, graph, device or graph.device, rows_per_block, folder, workers).embed()


@torch.no_grad()
def recalibrate_layers(
    encoder: nn.Module, graph: Graph, *, device: torch.device | None = None, workers: Workers = ALONE
) -> None:
    """As `recalibrate_batch_norm`, a block of rows at a time: every layer's statistics become those of the clean graph
    before the next layer is computed. Of a graph in parts, all workers call this and end with the same statistics."""
    assert has_layers(encoder)
    was_training = encoder.training
    encoder.eval()
    if isinstance(graph, Part):
        PartLayerWork.of(encoder, graph, workers).recalibrate()
    else:
        with TemporaryDirectory(prefix="graphstrap-") as folder:
            LayerWork(encoder, graph, device or graph.device, ROWS_PER_BLOCK, Path(folder)).recalibrate()
    encoder.train(was_training)


@dataclass(frozen=True, eq=False)
class LayerWork:
    """One encoder's pass through one graph, layer by layer."""

    encoder: GCN | HopColumns
    graph: Graph
    device: torch.device
    rows_per_block: int
    folder: Path | None = None
    workers: Workers = ALONE  # share the blocks; of a graph in parts each has its own

    def embed(self) -> Array:
        """The embeddings."""
        if isinstance(self.encoder, HopColumns):
            return self._hops(self.encoder)
        z = self.first()
        for index in range(len(self.encoder.layers)):
            z = self.after(index, z)
        return z

    def _hops(self, encoder: HopColumns) -> Array:
        parts = [self.first()]
        for hop in range(1, encoder.num_hops + 1):
            parts.append(self.make(hop, self.width(hop), partial(self.propagated, parts[-1])))

        def joined(first: int, last: int) -> Tensor:
            return encoder.join([torch.from_numpy(z[first:last]) for z in parts])

        return self.make(len(parts), encoder.embedding_size, joined)

    def recalibrate(self) -> None:
        """Set every batch norm's statistics to those of its inputs."""
        assert isinstance(self.encoder, GCN)
        z, last = self.first(), len(self.encoder.layers) - 1
        for index, layer in enumerate(self.encoder.layers):
            if isinstance(layer.norm, nn.BatchNorm1d):
                self._set_statistics(layer.norm, z)
            if index < last:
                z = self.after(index, z)

    def first(self) -> Array:
        """Z_1 = X W_1, or z_0."""

        def rows(first: int, last: int) -> Tensor:
            encoder, products = self.encoder, []
            for t, block in enumerate(self.graph.features):
                begin, end = self.graph.type_offsets[t], self.graph.type_offsets[t + 1]
                low, high = max(first, begin), min(last, end)
                if low >= high:
                    continue
                if isinstance(encoder, HopColumns):
                    assert block is not None
                    products.append(encoder.own_rows(t, take_rows(block, slice(low - begin, high - begin))))
                else:
                    products.append(_times(block, encoder.input_weights[t], low - begin, high - begin, self.device))
            return torch.cat(products) if products else torch.empty(0, self.width(0))

        return self.make(0, self.width(0), rows)

    def after(self, index: int, z: Array) -> Array:
        """What follows a layer: Z of the next one, or H after the last."""
        assert isinstance(self.encoder, GCN)
        encoder, layer = self.encoder, self.encoder.layers[index]
        weight = None if index + 1 == len(encoder.layers) else encoder.weights[index]
        if weight is not None and encoder.weight_standardization:
            weight = standardize(weight)

        def rows(first: int, last: int) -> Tensor:
            h: Tensor = layer(self.propagated(z, first, last))
            return h if weight is None else h @ weight

        return self.make(index + 1, self.width(index + 1), rows)

    def width(self, index: int) -> int:
        """The number of columns: of a layer's Z, or, after the last, of the embeddings."""
        if isinstance(self.encoder, HopColumns):
            return self.encoder.num_columns
        if index > len(self.encoder.weights):
            return self.encoder.embedding_size
        return int((self.encoder.weights[index - 1] if index else self.encoder.input_weights[0]).shape[1])

    def make(self, number: int, width: int, rows: Callable[[int, int], Tensor]) -> Array:
        """Array `number`, its rows computed block by block; blocks that an earlier run has completed are kept."""
        shape = (self.graph.num_nodes, width)
        if self.folder is None:
            array: Array = np.empty(shape, dtype=np.float32)
            for first, last in self.blocks():
                array[first:last] = rows(first, last).float().cpu().numpy()
            return array
        # what must not have changed when an interrupted run goes on
        sums = [float(parameter.double().sum()) for parameter in self.encoder.state_dict().values()]
        identity = [self.graph.num_nodes, self.graph.num_edges, sums]
        path, done = self.folder / f"table-{number}.npy", DoneBlocks(self.folder, number, identity)
        if self.workers.is_first and not done.is_begun(path):
            make_array_file(path, shape)
            done.begin()
        self.workers.wait()
        array = np.lib.format.open_memmap(path, mode="r+", dtype=np.float32, shape=shape)
        missing = sorted(set(self.blocks()) - done.blocks())
        self.workers.wait()  # until all have read what is missing
        for first, last in self.workers.share(missing):
            array[first:last] = rows(first, last).float().cpu().numpy()
            array.flush()
            done.add(self.workers.rank, first, last)
        self.workers.wait()  # the next array is made of this one
        return array

    def blocks(self) -> Iterator[tuple[int, int]]:
        """The first row of each block, and the first one after it."""
        for first in range(0, self.graph.num_nodes, self.rows_per_block):
            yield first, min(first + self.rows_per_block, self.graph.num_nodes)

    def propagated(self, z: Array, first: int, last: int) -> Tensor:
        """Rows of A_hat Z; of Z for an encoder that looks at no edge."""
        own = torch.from_numpy(z[first:last]).to(self.device)
        if isinstance(self.encoder, MLP):
            return own
        graph = self.graph
        begin, end = int(graph.indptr[first]), int(graph.indptr[last])
        places, rows, scales = self.sources(z, begin, end)
        if first == last:
            return own
        weights = scales.index_select(0, places)
        if graph.edge_weights is not None:
            weights = weights * graph.edge_weights[begin:end].cpu()
        offsets = (graph.indptr[first : last + 1] - begin).cpu()
        narrow = torch.int32 if len(rows) < 2**31 and end - begin < 2**31 else torch.int64
        places, offsets = places.to(narrow), offsets.to(narrow)
        sums = F.embedding_bag(places, rows, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)
        scale = self.scales[first:last]
        return (sums * scale[:, None]).to(self.device) + own * scale.square().to(self.device)[:, None]

    def sources(self, z: Array, begin: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """The sources of some edges, as places in a matrix of rows; that matrix; and the scale of each of its rows."""
        return self.graph.indices[begin:end].cpu().long(), torch.from_numpy(z), self.scales

    @cached_property
    def scales(self) -> Tensor:
        """(N,) 1 / sqrt(in-degree + 1)."""
        graph = self.graph
        if graph.edge_weights is None:
            degrees = graph.in_degrees.cpu().float()
        else:
            degrees = torch.segment_reduce(graph.edge_weights, "sum", offsets=graph.indptr, unsafe=True).cpu()
        return (degrees + 1.0).rsqrt()

    def _set_statistics(self, norm: nn.BatchNorm1d, z: Array) -> None:
        """Mean and variance of the rows that a layer normalises."""
        total, squares = torch.zeros(2, norm.num_features, dtype=torch.float64, device=self.device)
        for first, last in self.blocks():
            rows = self.propagated(z, first, last).double()
            total += rows.sum(0)
            squares += rows.square().sum(0)
        total, squares = self.workers.add(torch.stack([total, squares]))
        num_rows = int(self.workers.add(torch.tensor(self.graph.num_nodes)))
        mean = total / num_rows
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.copy_(mean)
        norm.running_var.copy_((squares - num_rows * mean.square()).clamp(min=0) / max(1, num_rows - 1))


@dataclass(frozen=True, eq=False, kw_only=True)
class PartLayerWork(LayerWork):
    """The same for the rows of one part; `graph` is the part's own nodes."""

    part: Part
    exchange: Exchange

    @classmethod
    def of(cls, encoder: GCN | HopColumns, part: Part, workers: Workers) -> PartLayerWork:
        """The work of one worker, which all of them begin together."""
        device = next(encoder.parameters()).device
        return cls(encoder, part.own, device, ROWS_PER_BLOCK, workers=workers, part=part, exchange=Exchange(workers))

    def blocks(self) -> Iterator[tuple[int, int]]:
        for number in range(most(-(-self.graph.num_nodes // self.rows_per_block), self.workers)):
            first, last = number * self.rows_per_block, (number + 1) * self.rows_per_block
            yield min(first, self.graph.num_nodes), min(last, self.graph.num_nodes)

    def sources(self, z: Array, begin: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """Each source's row comes once, from its owner."""
        own, node_ids = torch.from_numpy(z), self.graph.node_ids
        assert node_ids is not None

        def answer(asked: list[Tensor]) -> Answer:
            rows = torch.searchsorted(node_ids, asked[0])
            return Answer(None, [own.index_select(0, rows), self.scales.index_select(0, rows)])

        nodes, places = torch.unique(self.graph.indices[begin:end].long(), return_inverse=True)
        owners = self.part.part_of.index_select(0, nodes).long()
        rows, scales = self.exchange.ask(owners, [nodes], answer).columns
        return places, rows if len(rows) else own.new_zeros(1, own.shape[1]), scales


def most(number: int, workers: Workers) -> int:
    """The largest of all workers' numbers."""
    numbers = torch.zeros(workers.size, dtype=torch.int64)
    numbers[workers.rank] = number
    return int(workers.add(numbers).max())


def _times(block: Block | None, weight: Tensor, first: int, last: int, device: torch.device) -> Tensor:
    """Rows of a feature block times its weight; a type without features has one row of 1."""
    if block is None:
        return weight.expand(last - first, -1)
    rows = take_rows(block, slice(first, last))
    if isinstance(rows, SparseMatrix):
        rows = rows.map(lambda tensor: tensor.to(device))
        columns, values = rows.indices.long(), rows.values
        return F.embedding_bag(
            columns, weight, rows.indptr, mode="sum", per_sample_weights=values, include_last_offset=True
        )
    return rows.to(device, weight.dtype) @ weight
