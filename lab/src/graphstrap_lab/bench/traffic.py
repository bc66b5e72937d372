"""The bytes that a step of workers on a graph in parts moves, counted from the batch that all of them draw together.

What a worker asks of another, and gets for an answer (`parallel/part_batches.py`, `exchange.py`):

    for each frontier node     8 bytes, 8 for its root, 4 for the root's time;   4 for the number of edges, and for each
                               8 + 4 (8 from 2**31 nodes on), its type, weight, time and columns
    for each root              8, and the code of its time                       where nodes newer than it are left out
    for each node              8, and its row of features, label and time        once a worker and step, hot ones never

and 8 bytes for the size of every message. What a worker asks itself does not travel. Subgraphs are disjoint, so that a
batch of all roots is the batches of all workers, whoever takes which root.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.io.store_format import edge_type_dtype


@dataclass(frozen=True)
class MessageSizes:
    """Bytes of what is asked and answered, one of each."""

    question: int  # about a frontier node
    edge: int
    root: int  # the question about a root's time, and the answer
    rows: tuple[int, ...]  # of each node type: features, label, time
    num_asks: int  # how often a step asks: hops, times of roots, node types


@dataclass(frozen=True, eq=False)
class Traffic:
    """(P,) bytes of a step, by the worker that asks, and the feature rows also by the worker that answers."""

    ids: Tensor
    features: Tensor
    features_answered: Tensor
    num_rows: Tensor  # of features, asked for


def step_traffic(
    batch: Graph, part_of: Tensor, ranks: Tensor, sizes: MessageSizes, *, num_parts: int, is_hot: Tensor | None = None
) -> Traffic:
    """Args:
    batch: a disjoint batch without features.
    part_of: (N,) the part of each node.
    ranks: (num_roots,) the worker that has each root.
    is_hot: (N,) whose rows everyone has.
    """
    assert batch.owners is not None
    assert batch.node_ids is not None
    owners = part_of.index_select(0, batch.node_ids).long()
    asker = ranks.index_select(0, batch.owners)
    is_remote = owners != asker
    depth = depths(batch)
    asked = is_remote & (depth < depth.max())
    ids = torch.bincount(asker[asked], minlength=num_parts).double() * (sizes.question + 4)
    ids += sizes.edge * torch.bincount(asker[asked], weights=batch.in_degrees[asked].double(), minlength=num_parts)
    ids += sizes.root * torch.bincount(asker[is_remote & (depth == 0)], minlength=num_parts)
    ids += 8 * sizes.num_asks * (num_parts - 1)
    features, answered, num_rows = torch.zeros(3, num_parts, dtype=torch.float64)
    wanted = is_remote if is_hot is None else is_remote & ~is_hot.index_select(0, batch.node_ids)
    for t, (first, last) in enumerate(pairwise(batch.type_offsets)):
        chosen = wanted[first:last]
        keys = torch.unique(asker[first:last][chosen] * len(part_of) + batch.node_ids[first:last][chosen])
        who, node = keys // len(part_of), keys % len(part_of)
        counts = torch.bincount(who, minlength=num_parts)
        features += counts * (8 + sizes.rows[t])
        num_rows += counts
        answered += sizes.rows[t] * torch.bincount(part_of.index_select(0, node).long(), minlength=num_parts)
    return Traffic(ids, features, answered, num_rows)


def depths(batch: Graph) -> Tensor:
    """(N,) the hop in which each node of a batch was found."""
    depth = torch.full((batch.num_nodes,), -1)
    roots = torch.arange(batch.num_roots or 0) if batch.root_places is None else batch.root_places
    depth[roots] = 0
    sources, targets, hop = batch.indices.long(), batch.targets, 0
    while bool((depth < 0).any()):
        hop += 1
        found = sources[(depth.index_select(0, targets) == hop - 1)]
        depth[found[depth.index_select(0, found) < 0]] = hop
    return depth


def message_sizes(
    graph: Graph, *, num_hops: int, by_time: bool, unbiased: bool, num_columns: int | None
) -> MessageSizes:
    """Of disjoint batches of a graph with dense features of two bytes a value: its own, or so many columns."""
    columns = (graph.edge_weights, graph.edge_times, graph.edge_columns)
    edge = 8 + graph.indices.element_size() + 4 * unbiased
    if graph.edge_types is not None:
        edge += np.dtype(edge_type_dtype(len(graph.edge_type_names))).itemsize
    edge += sum(column[:1].nbytes for column in columns if column is not None)
    more = sum(column[:1].nbytes for column in (graph.labels, graph.node_times) if column is not None)
    code = 0
    if by_time:
        assert graph.node_times is not None
        num_times = len(torch.unique(graph.node_times))
        code = 1 if num_times < 255 else 2 if num_times < 2**15 - 1 else 4
    widths = graph.num_features if num_columns is None else (num_columns,) * len(graph.num_features)
    return MessageSizes(
        question=16 + 4 * by_time,
        edge=edge,
        root=8 + code if by_time else 0,
        rows=tuple(2 * width + more for width in widths),
        num_asks=num_hops + by_time + len(widths),
    )
