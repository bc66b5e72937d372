"""From drawn edges to a batch: which nodes were found, in which order, and the graph that they make."""

from __future__ import annotations

from itertools import accumulate
from types import TracebackType
from typing import NamedTuple, Self

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.sparse import row_positions, row_starts

NOT_FOUND = torch.iinfo(torch.int32).max


class Hop(NamedTuple):
    """The edges that one hop added, row by row."""

    counts: Tensor  # (F,) how many edges each row got
    sources: Tensor  # (E,) places in the batch
    edges: Tensor  # (E,) global ids
    factors: Tensor | None  # (E,) how many edges each stands for; None for one


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
                self._clear()
                raise ValueError("roots must be different nodes; with disjoint=True the same one may come twice")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._clear()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes within 0, 1, 2, ... hops."""
        return tuple(accumulate(len(nodes) for nodes in self._nodes))

    def nodes(self, part: slice | None = None) -> tuple[Tensor, Tensor | None]:
        """Global ids, and for each the number of the root that it belongs to."""
        if part is None:
            return torch.cat(self._nodes), torch.cat(self._owners) if self._owners else None
        assert part.stop == self.num_nodes
        assert part.start == self.num_nodes - len(self._nodes[-1])
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
        known, known_owners = self.nodes()
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

    def _clear(self) -> None:
        if self._places is not None:
            for nodes in self._nodes:
                self._places.index_fill_(0, nodes, NOT_FOUND)


def assemble(graph: Graph, found: Found, hops: list[Hop], *, num_roots: int, missing_degrees: Tensor | None) -> Graph:
    """The batch as a graph: roots first; where nodes have types, type by type, roots first within each."""
    nodes, owners = found.nodes()
    edges = _join([hop.edges for hop in hops], nodes)
    counts = _join([hop.counts for hop in hops], nodes)
    counts = torch.cat([counts, counts.new_zeros(len(nodes) - len(counts))])
    indices = _join([hop.sources for hop in hops], nodes).int()
    parts = [hop.factors for hop in hops if hop.factors is not None]
    factors = torch.cat(parts) if parts else None
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
        weights=weights,
        num_roots=num_roots,
        missing_degrees=missing_degrees,
        hop_offsets=found.sizes if root_places is None else (),
        type_offsets=offsets,
        owners=owners,
        root_places=root_places,
    )


def make_batch(
    graph: Graph,
    *,
    nodes: Tensor,
    edges: Tensor,
    indptr: Tensor,
    indices: Tensor,
    weights: Tensor | None,
    num_roots: int,
    missing_degrees: Tensor | None,
    hop_offsets: tuple[int, ...],
    type_offsets: tuple[int, ...] = (),
    owners: Tensor | None = None,
    root_places: Tensor | None = None,
) -> Graph:
    """A batch with what the graph knows of its nodes and edges beside features and labels."""
    return Graph(
        indptr=indptr,
        indices=indices,
        features=(None,) * len(graph.features),
        type_offsets=type_offsets,
        node_types=graph.node_types,
        class_names=graph.class_names,
        node_times=_rows_of(graph.node_times, nodes),
        edge_types=_rows_of(graph.edge_types, edges),
        edge_type_names=graph.edge_type_names,
        edge_weights=weights,
        edge_times=_rows_of(graph.edge_times, edges),
        edge_columns=_rows_of(graph.edge_columns, edges),
        edge_column_names=graph.edge_column_names,
        node_ids=nodes,
        edge_ids=edges,
        num_roots=num_roots,
        root_places=root_places,
        owners=owners,
        missing_degrees=missing_degrees,
        hop_offsets=hop_offsets,
        feature_names=graph.feature_names,
        name=graph.name,
    )


def _by_type(graph: Graph, nodes: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The order that puts nodes of one type side by side, and where each type begins."""
    inner = torch.tensor(graph.type_offsets[1:-1], device=nodes.device)
    kinds = torch.searchsorted(inner, nodes, right=True)
    counts = torch.bincount(kinds, minlength=len(graph.features)).tolist()
    return torch.sort(kinds, stable=True).indices, tuple(accumulate(counts, initial=0))


def _rows_of(column: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if column is None else column.index_select(0, rows)


def _join(parts: list[Tensor], like: Tensor) -> Tensor:
    return torch.cat(parts) if parts else like.new_zeros(0)
