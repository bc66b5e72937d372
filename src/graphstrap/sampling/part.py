"""A part of a disjoint batch: the subgraphs of some of its roots."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

from torch import Tensor

from graphstrap.blocks import Block
from graphstrap.graph import Graph
from graphstrap.scaled import ScaledMatrix, take_rows
from graphstrap.sparse import row_starts


def part_of(batch: Graph, is_wanted: Tensor) -> Graph:
    """The batch of the roots that `is_wanted` (num_roots,) marks, as if it had been sampled for them alone."""
    assert batch.owners is not None
    is_kept = is_wanted.index_select(0, batch.owners)
    nodes = is_kept.nonzero().squeeze(1)
    edges = is_kept.index_select(0, batch.targets).nonzero().squeeze(1)
    place = is_kept.long().cumsum(0) - 1
    counts = batch.in_degrees.index_select(0, nodes)

    def of_nodes(column: Tensor | None) -> Tensor | None:
        return None if column is None else column.index_select(0, nodes)

    def of_edges(column: Tensor | None) -> Tensor | None:
        return None if column is None else column.index_select(0, edges)

    owner_numbers = is_wanted.long().cumsum(0) - 1
    sizes = [int(is_kept[first:last].sum()) for first, last in pairwise(batch.type_offsets)]
    return replace(
        batch,
        indptr=row_starts(counts),
        indices=place.index_select(0, batch.indices.index_select(0, edges).long()).to(batch.indices.dtype),
        features=tuple(
            _rows(x, is_kept[a:b]) for x, (a, b) in zip(batch.features, pairwise(batch.type_offsets), strict=True)
        ),
        type_offsets=tuple(accumulate(sizes, initial=0)),
        graph_offsets=(),
        labels=of_nodes(batch.labels),
        node_times=of_nodes(batch.node_times),
        edge_types=of_edges(batch.edge_types),
        edge_weights=of_edges(batch.edge_weights),
        edge_times=of_edges(batch.edge_times),
        edge_columns=of_edges(batch.edge_columns),
        node_ids=of_nodes(batch.node_ids),
        edge_ids=of_edges(batch.edge_ids),
        num_roots=int(is_wanted.sum()),
        root_places=None if batch.root_places is None else place[batch.root_places[is_wanted]],
        owners=owner_numbers.index_select(0, batch.owners.index_select(0, nodes)),
        hop_offsets=tuple(int(is_kept[:end].sum()) for end in batch.hop_offsets),
        missing_degrees=of_nodes(batch.missing_degrees),
    )


def _rows(block: Block | None, is_kept: Tensor) -> Block | None:
    if block is None:
        return None
    rows = is_kept.nonzero().squeeze(1)
    return block.take(rows) if isinstance(block, ScaledMatrix) else take_rows(block, rows)
