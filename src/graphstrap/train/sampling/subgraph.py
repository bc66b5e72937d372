"""From drawn edges to a batch: which nodes were found, in which order, the graph that they make, and its features."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.graph.blocks import (
    Block,
    Features,
    Raw,
    ScaledMatrix,
    SparseMatrix,
    row_positions,
    row_starts,
    take_rows,
)
from graphstrap.train.sampling.draw import NOT_FOUND, Drawn


class Hop(NamedTuple):
    """The edges that one hop added, and the places of their sources in the batch."""

    drawn: Drawn
    places: Tensor  # (E,)


class Found:
    """The nodes of a batch so far, in the order in which they were found.

    Merged, a table with a place for each node of the graph says where it stands; it is cleared at the end. Disjoint,
    a node is a pair (root, node), and sorting brings equal pairs together.
    """

    def __init__(
        self, roots: Tensor, owners: Tensor | None, *, places: Tensor | None, num_nodes: int, check: bool = True
    ) -> None:
        self._nodes, self._owners = [roots], [] if owners is None else [owners]
        self._places, self._stride, self.num_nodes = places, num_nodes, len(roots)
        if places is not None:
            order = torch.arange(len(roots), dtype=torch.int32, device=roots.device)
            places.scatter_reduce_(0, roots, order, "amin")
            if check and not bool((places.index_select(0, roots) == order).all()):
                self.close()
                raise ValueError("roots must be different nodes; with disjoint=True the same one may come twice")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes within 0, 1, 2, ... hops."""
        return tuple(accumulate(len(nodes) for nodes in self._nodes))

    @property
    def nodes(self) -> tuple[Tensor, Tensor | None]:
        """Global ids of all nodes, and for each the number of the root that it belongs to."""
        return torch.cat(self._nodes), torch.cat(self._owners) if self._owners else None

    @property
    def frontier(self) -> tuple[Tensor, Tensor | None]:
        """The same of those that were added last."""
        return self._nodes[-1], self._owners[-1] if self._owners else None

    def add(self, nodes: Tensor, owners: Tensor | None) -> Tensor:
        """Take in the nodes that are new; the place of every one of them."""
        if owners is None:
            new, places = self._add_merged(nodes)
        else:
            is_first, places = self._add_disjoint(nodes, owners)
            new = nodes.masked_select(is_first)
            self._owners.append(owners.masked_select(is_first))
        self._nodes.append(new)
        self.num_nodes += len(self._nodes[-1])
        return places

    def _add_merged(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        table = self._places
        assert table is not None
        place = torch.arange(self.num_nodes, self.num_nodes + len(nodes), dtype=torch.int32, device=nodes.device)
        table.scatter_reduce_(0, nodes, place, "amin")  # the earlier place wins, on every device
        firsts = (table.index_select(0, nodes) == place).nonzero().squeeze(1)
        new = nodes.index_select(0, firsts)
        table.scatter_(0, new, place[: len(new)])  # index_copy and [] take two and four times as long on a CPU
        return new, table.index_select(0, nodes)

    def _add_disjoint(self, nodes: Tensor, owners: Tensor) -> tuple[Tensor, Tensor]:
        known, known_owners = self.nodes
        assert known_owners is not None
        keys = torch.cat([known_owners * self._stride + known, owners * self._stride + nodes])
        ordered, order = torch.sort(keys, stable=True)
        begins = torch.ones_like(ordered, dtype=torch.bool)
        begins[1:] = ordered[1:] != ordered[:-1]
        firsts = torch.empty_like(order)
        firsts[order] = order[begins][begins.long().cumsum(0) - 1]  # where each pair was seen first
        is_first = firsts[len(known) :] == torch.arange(len(known), len(keys), device=nodes.device)
        renumbered = torch.arange(len(keys), device=nodes.device)
        renumbered[len(known) :] = is_first.long().cumsum(0) + (len(known) - 1)
        return is_first, renumbered.index_select(0, firsts[len(known) :]).int()

    def close(self) -> None:
        """Give the table of places back as it was."""
        if self._places is not None:
            for nodes in self._nodes:
                self._places.index_fill_(0, nodes, NOT_FOUND)


def assemble(graph: Graph, found: Found, hops: list[Hop], *, num_roots: int, missing_degrees: Tensor | None) -> Graph:
    """The batch as a graph: roots first; where nodes have types, type by type, roots first within each."""
    nodes, owners = found.nodes
    edges = _join([hop.drawn.edges for hop in hops], nodes)
    counts = _join([hop.drawn.counts for hop in hops], nodes)
    counts = torch.cat([counts, counts.new_zeros(len(nodes) - len(counts))])
    indices = _join([hop.places for hop in hops], nodes).int()
    by_hop = [hop.drawn.factors for hop in hops if hop.drawn.factors is not None]
    factors = torch.cat(by_hop) if by_hop else None
    offsets: tuple[int, ...] = (0, len(nodes))
    root_places = None
    if len(graph.features) > 1:
        order, offsets = _by_type(graph, nodes)
        place_of = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        moved = row_positions(row_starts(counts), order)
        edges, indices = edges[moved], place_of[indices.long()[moved]].int()
        factors = None if factors is None else factors[moved]
        nodes, counts = nodes[order], counts[order]
        owners = None if owners is None else owners[order]
        missing_degrees = None if missing_degrees is None else missing_degrees[order]
        root_places = place_of[:num_roots]
    weights = None if graph.edge_weights is None else graph.edge_weights.index_select(0, edges)
    if factors is not None:
        weights = factors if weights is None else weights * factors
    return make_batch(
        graph,
        nodes=nodes,
        edges=edges,
        indptr=row_starts(counts),
        indices=indices,
        edge_weights=weights,
        num_roots=num_roots,
        missing_degrees=missing_degrees,
        hop_offsets=found.sizes if root_places is None else (),
        type_offsets=offsets,
        owners=owners,
        root_places=root_places,
    )


def make_batch(graph: Graph, *, nodes: Tensor, edges: Tensor, **drawn: Any) -> Graph:
    """A batch of what was drawn, with what the graph knows of its nodes and edges beside features and labels."""
    return Graph(
        features=(None,) * len(graph.features),
        node_types=graph.node_types,
        class_names=graph.class_names,
        node_times=_pick(graph.node_times, nodes),
        edge_types=_pick(graph.edge_types, edges),
        edge_type_names=graph.edge_type_names,
        edge_times=_pick(graph.edge_times, edges),
        edge_columns=_pick(graph.edge_columns, edges),
        edge_column_names=graph.edge_column_names,
        node_ids=nodes,
        edge_ids=edges,
        feature_names=graph.feature_names,
        name=graph.name,
        **drawn,
    )


def _by_type(graph: Graph, nodes: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The order that puts nodes of one type side by side, and where each type begins."""
    inner = torch.tensor(graph.type_offsets[1:-1], device=nodes.device)
    kinds = torch.searchsorted(inner, nodes, right=True)
    counts = torch.bincount(kinds, minlength=len(graph.features)).tolist()
    return torch.sort(kinds, stable=True).indices, tuple(accumulate(counts, initial=0))


def _pick(column: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if column is None else column.index_select(0, rows)


def _join(tensors: list[Tensor], like: Tensor) -> Tensor:
    return torch.cat(tensors) if tensors else like.new_zeros(0)


def rows_to(rows: Features, device: torch.device) -> Features:
    """Rows on the device where they are to be used."""
    if isinstance(rows, SparseMatrix):
        return rows.map(lambda tensor: tensor.to(device, non_blocking=True))
    return rows.to(device, non_blocking=True)


class Gatherer:
    """Fills batches of one graph with features and labels, fetched from wherever they lie.

    Rows on the device come by one `index_select`; those of a memory map or on the host are copied into pinned memory,
    then to the device without waiting. The rows of hot nodes, those with the most edges, which are sampled most, can be
    kept on the device: of a power-law graph a few per cent of the rows serve most of the fetches.

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
            else _FeatureRows(block, graph.indptr[first : last + 1], device=self.device, num_hot=num_hot)
            for block, (first, last) in zip(graph.features, ends, strict=True)
        ]

    def fill(self, batch: Graph) -> Graph:
        """The batch with its features and labels, on the device where it is to be used."""
        assert batch.node_ids is not None
        nodes, labels = batch.node_ids, self.graph.labels
        moved = batch.to(self.device)
        features = []
        for t, block in enumerate(self.blocks):
            rows = nodes[batch.type_offsets[t] : batch.type_offsets[t + 1]] - self.graph.type_offsets[t]
            features.append(None if block is None else block.take(rows))
        if labels is not None:
            labels = labels.index_select(0, nodes.to(labels.device)).to(self.device)
        return replace(moved, features=tuple(features), labels=labels)


class _FeatureRows:
    """The feature rows of one node type."""

    def __init__(self, block: Block, indptr: Tensor, *, device: torch.device, num_hot: int) -> None:
        self.scaled = block if isinstance(block, ScaledMatrix) else None
        self.raw: Raw = block.raw if isinstance(block, ScaledMatrix) else block
        self.device, self.hot = device, None
        raw = self.raw
        if num_hot and isinstance(raw, Tensor) and len(raw):
            hottest = torch.topk(indptr.diff(), min(num_hot, len(raw))).indices.to(raw.device)
            self.hot_places = torch.full((len(raw),), -1, dtype=torch.int32, device=raw.device)
            self.hot_places[hottest] = torch.arange(len(hottest), dtype=torch.int32, device=raw.device)
            self.hot = raw.index_select(0, hottest).to(device)

    def take(self, rows: Tensor) -> Features:
        """These rows as the encoder takes them, scaled where they are used."""
        raw = self._take_raw(rows.to(self.raw.device))
        return raw if self.scaled is None else self.scaled.apply(raw)

    def _take_raw(self, rows: Tensor) -> Features:
        if not isinstance(self.raw, Tensor):
            return rows_to(take_rows(self.raw, rows), self.device)
        if self.hot is None:
            return self._fetch(self.raw, rows)
        places = self.hot_places.index_select(0, rows)
        is_hot = places >= 0
        hits, misses = is_hot.nonzero().squeeze(1), (~is_hot).nonzero().squeeze(1)
        out = torch.empty(len(rows), self.raw.shape[1], dtype=self.raw.dtype, device=self.device)
        hot_rows = self.hot.index_select(0, places.index_select(0, hits).to(self.device).long())
        out.index_copy_(0, hits.to(self.device), hot_rows)
        return out.index_copy_(0, misses.to(self.device), self._fetch(self.raw, rows.index_select(0, misses)))

    def _fetch(self, matrix: Tensor, rows: Tensor) -> Tensor:
        if matrix.device == self.device or self.device.type == "cpu":
            return matrix.index_select(0, rows)
        staged = torch.empty(len(rows), matrix.shape[1], dtype=matrix.dtype, pin_memory=True)
        torch.index_select(matrix, 0, rows, out=staged)
        return staged.to(self.device, non_blocking=True)
