"""A graph in parts, embedded: every worker the rows of its own nodes.

    layers     each layer once, a block of rows at a time (`layerwise.py`); the rows of a block's neighbours come from
               their owners
    sampled    a sampled batch around each node, for encoders whose layers are not known, and for those to which a whole
               graph would look different from what they were trained on

All workers work through the same number of blocks, some of them empty: each is an exchange.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.api.embed import INFERENCE_BRANCH, must_sample, with_labels_to_learn
from graphstrap.api.layerwise import ROWS_PER_BLOCK, Array, LayerWork, has_layers, layer_width, set_statistics
from graphstrap.errors import InputError
from graphstrap.graph.keep import child_seed
from graphstrap.io.parts import Part
from graphstrap.nn.encoders.gcn import GCN
from graphstrap.nn.encoders.mlp import MLP
from graphstrap.nn.model import Model
from graphstrap.train.batches import sampler_flags
from graphstrap.train.parallel.exchange import Answer, Exchange, PartGatherer
from graphstrap.train.parallel.part_sampler import PartSampler
from graphstrap.train.parallel.workers import Workers


def finish_in_parts(model: Model, part: Part, workers: Workers) -> None:
    """What turns trained weights into a frozen encoder: batch-norm statistics of the clean graph, where a recipe asks
    for them. Every worker calls this, and ends with the same."""
    encoder = model.method.frozen
    if model.recipe.encoder.batch_norm_statistics == "recalibrated" and has_layers(encoder):
        recalibrate_in_parts(encoder, part, workers=workers)


@torch.no_grad()
def recalibrate_in_parts(encoder: nn.Module, part: Part, *, workers: Workers) -> None:
    """`layerwise.recalibrate_layers`, by all workers together."""
    assert isinstance(encoder, GCN | MLP)
    was_training = encoder.training
    encoder.eval()
    work = _PartWork.of(encoder, part, workers)
    table = work.make(0, layer_width(encoder, 0), work.first_rows)
    for index, finish in enumerate(encoder.layers):
        if isinstance(finish.norm, nn.BatchNorm1d):
            set_statistics(finish.norm, work, table, num_rows=part.num_nodes, add=workers.add)
        if index + 1 < len(encoder.layers):
            table = work.make(index + 1, layer_width(encoder, index + 1), work.layer_rows(index, table))
    encoder.train(was_training)


@torch.no_grad()
def embed_part(model: Model, part: Part, *, workers: Workers, how: str = "auto") -> Array:
    """(n, D) embeddings of the part's own nodes; `part` is as `prepare_part` gives it."""
    encoder = model.method.frozen
    if how == "auto":
        how = "layers" if has_layers(encoder) and not must_sample(model) else "sampled"
    if how == "sampled":
        return _sampled(model, part, workers)
    if how != "layers" or not isinstance(encoder, GCN | MLP) or not has_layers(encoder):
        raise InputError(f"a graph in parts cannot be embedded {how} with this encoder: give --how auto")
    encoder.eval()
    work = _PartWork.of(encoder, part, workers)
    table = work.make(0, layer_width(encoder, 0), work.first_rows)
    for index in range(len(encoder.layers)):
        table = work.make(index + 1, layer_width(encoder, index + 1), work.layer_rows(index, table))
    return table


def _sampled(model: Model, part: Part, workers: Workers) -> Array:
    recipe, exchange = model.recipe, Exchange(workers)
    device = next(model.module.parameters()).device
    sampler = PartSampler(part, recipe.sampling.by_hop(), exchange, **sampler_flags(recipe))
    gatherer = PartGatherer(part, exchange, device=device, num_hot=recipe.sampling.hot_nodes)
    nodes = _nodes(part)
    parts = torch.split(nodes, recipe.sampling.batch_size)
    rows = []
    for number in range(_most(len(parts), workers)):
        roots = parts[number] if number < len(parts) else nodes[:0]
        batch = gatherer.fill(sampler.sample(roots, seed=child_seed(model.seed, INFERENCE_BRANCH, 0)))
        if len(roots):
            h = model.method.embed(batch)
            rows.append((h if len(h) == len(roots) else batch.roots_of(h)).float().cpu())
    return torch.cat(rows).numpy()


@dataclass(frozen=True, eq=False, kw_only=True)
class _PartWork(LayerWork):
    """One encoder's way through the rows of one part."""

    part: Part
    exchange: Exchange
    num_blocks: int

    @classmethod
    def of(cls, encoder: GCN | MLP, part: Part, workers: Workers) -> _PartWork:
        num_blocks = _most(-(-part.own.num_nodes // ROWS_PER_BLOCK), workers)
        device = next(encoder.parameters()).device
        return cls(
            encoder,
            part.own,
            device,
            ROWS_PER_BLOCK,
            None,
            part=part,
            exchange=Exchange(workers),
            num_blocks=num_blocks,
        )

    def blocks(self) -> Iterator[tuple[int, int]]:
        for number in range(self.num_blocks):
            ends = (number * self.rows_per_block, (number + 1) * self.rows_per_block)
            yield min(ends[0], self.graph.num_nodes), min(ends[1], self.graph.num_nodes)

    def first_rows(self, first: int, last: int) -> Tensor:
        if first == last:
            return torch.empty(0, layer_width(self.encoder, 0))
        return super().first_rows(first, last)

    def propagated(self, table: Array, first: int, last: int) -> Tensor:
        own = torch.from_numpy(table[first:last]).to(self.device)
        if isinstance(self.encoder, MLP):
            return own
        graph, z = self.graph, torch.from_numpy(table)
        begin, end = int(graph.indptr[first]), int(graph.indptr[last])
        sources, places = torch.unique(graph.indices[begin:end].long(), return_inverse=True)

        def tell(asked: list[Tensor]) -> Answer:
            rows = torch.searchsorted(_nodes(self.part), asked[0])
            return Answer(None, [z.index_select(0, rows), self.scales.index_select(0, rows)])

        owners = self.part.part_of.index_select(0, sources).long()
        rows, scales = self.exchange.ask(owners, [sources], tell).columns
        if first == last:
            return own
        weights = scales.index_select(0, places)
        if graph.edge_weights is not None:
            weights = weights * graph.edge_weights[begin:end]
        offsets = graph.indptr[first : last + 1] - begin
        if len(rows) == 0:
            rows = z.new_zeros(1, z.shape[1])
        sums = F.embedding_bag(places, rows, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)
        scale = self.scales[first:last]
        return (sums * scale[:, None]).to(self.device) + own * scale.square().to(self.device)[:, None]


def prepare_part(model: Model, part: Part) -> Part:
    """The part with its own rows as the encoder was trained on: scaled when they are read, with the labels that may be
    seen."""
    return replace(part, own=with_labels_to_learn(model.transform.when_read(part.own), model))


def _nodes(part: Part) -> Tensor:
    assert part.own.node_ids is not None
    return part.own.node_ids


def _most(number: int, workers: Workers) -> int:
    """The largest of all workers' numbers."""
    numbers = torch.zeros(workers.size, dtype=torch.int64)
    numbers[workers.rank] = number
    return int(workers.add(numbers).max())
