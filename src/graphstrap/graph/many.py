"""Many graphs as one, block by block; a batch is some of them, whole.

    join_graphs([g_0, g_1, ...])     one graph whose adjacency matrix is block-diagonal
    take_graphs(graph, [3, 0])       some of its graphs, as a batch whose roots are all of its nodes
    select_roots(batch, is_wanted)   the subgraphs of some roots of a sampled batch
    draw_graphs(G, k, seed, step)    which k of G graphs a step trains on

An epoch is a random order of all graphs, cut into G // k batches; what is left over sits this epoch out. The order is
a hash of (seed, epoch), so a batch is a function of (seed, step): resumed or not, it is the same. A batch knows the
global ids of its nodes and edges, so a view keeps the same edges in it as in the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph.blocks import Features, SparseMatrix, row_starts, take_rows
from graphstrap.graph.graph import EDGE_FIELDS, NODE_FIELDS, Graph, Splits, check_is_graph
from graphstrap.graph.views import child_seed, hash32

# Batches draw from their own branch of a run's seed, apart from views and initial weights.
_BATCH_BRANCH = 1_000_033
_NUM_BATCHES_KEPT = 64

_NAME_FIELDS = ("class_names", "feature_names", "edge_type_names", "edge_column_names")
_Range = tuple[int, int]


def join_graphs(graphs: Sequence[Graph], *, name: str = "joined") -> Graph:
    """Several graphs of one node type as one. An id becomes "graph/id", such as "twitch-de/17".

    What one of them has (features, labels, edge weights, ...) all of them must have, and in the same form.
    """
    if not graphs:
        raise InputError("join_graphs needs at least one graph, got none")
    for graph in graphs:
        check_is_graph(graph)
    _check_alike(graphs)
    node_starts = _starts([graph.num_nodes for graph in graphs])
    edge_starts = _starts([graph.num_edges for graph in graphs])
    wide = node_starts[-1] >= 2**31
    indices = [graph.indices.to(torch.int64 if wide else torch.int32) for graph in graphs]
    shifted = [sources + start for sources, start in zip(indices, node_starts[:-1], strict=True)]
    ends = [graph.indptr[1:] + start for graph, start in zip(graphs, edge_starts[:-1], strict=True)]
    inner = [
        start + offset for graph, start in zip(graphs, node_starts, strict=False) for offset in graph.graph_offsets[:-1]
    ]
    first = graphs[0]
    fields = (*NODE_FIELDS, *EDGE_FIELDS)
    columns: dict[str, Any] = {f: join_tensors([getattr(graph, f) for graph in graphs]) for f in fields}
    return Graph(
        indptr=torch.cat([first.indptr[:1], *ends]),
        indices=torch.cat(shifted),
        features=(join_features([graph.x for graph in graphs]),),
        node_types=first.node_types,
        graph_offsets=(*inner, node_starts[-1]),
        splits=join_splits([graph.splits for graph in graphs]),
        ids=_joined_ids(graphs),
        name=name,
        **columns,
        **{field: getattr(first, field) for field in _NAME_FIELDS},
    )


def take_graphs(graph: Graph, numbers: Sequence[int]) -> Graph:
    """Some of the graphs of a joined one, in the order given. One, or neighbours in order, are not copied but shown."""
    if not 0 < len(set(numbers)) == len(numbers) or not all(0 <= number < graph.num_graphs for number in numbers):
        raise InputError(f"graphs must be different numbers from 0 to {graph.num_graphs - 1}, got {list(numbers)}")
    offsets = graph.graph_offsets
    nodes = [(offsets[number], offsets[number + 1]) for number in numbers]
    bounds = graph.indptr[torch.tensor(nodes, device=graph.device)].tolist()
    edges: list[_Range] = [(start, end) for start, end in bounds]
    starts = _starts([end - start for start, end in nodes])
    moves = [new - old for (old, _), new in zip(nodes, starts[:-1], strict=True)]
    indices = [graph.indices[start:end] + move for (start, end), move in zip(edges, moves, strict=True)]
    every_node = torch.arange(graph.num_nodes, device=graph.device) if graph.node_ids is None else graph.node_ids
    every_edge = torch.arange(graph.num_edges, device=graph.device) if graph.edge_ids is None else graph.edge_ids
    return replace(
        graph,
        indptr=row_starts(_cut(graph.in_degrees, nodes)),
        indices=indices[0] if len(indices) == 1 else torch.cat(indices),
        features=(_cut_features(graph.x, nodes),),
        type_offsets=(0, starts[-1]),
        graph_offsets=tuple(starts),
        splits=None if graph.splits is None else graph.splits.map(lambda mask: _cut(mask, nodes)),
        ids=None if graph.ids is None else np.concatenate([graph.ids[a:b] for a, b in nodes]),
        node_ids=_cut(every_node, nodes),
        edge_ids=_cut(every_edge, edges),
        **graph.columns(NODE_FIELDS, lambda column: _cut(column, nodes)),
        **graph.columns(EDGE_FIELDS, lambda column: _cut(column, edges)),
    )


def draw_graphs(num_graphs: int, num_drawn: int, *, seed: int, step: int) -> list[int]:
    """The graphs that a step (from 1 up) trains on, ascending."""
    if not 1 <= num_drawn <= num_graphs:
        raise InputError(f"train.graphs_per_step must lie between 1 and the {num_graphs} graphs, got {num_drawn}")
    epoch, place = divmod(step - 1, num_graphs // num_drawn)
    words = hash32(np.arange(num_graphs), child_seed(seed, _BATCH_BRANCH, epoch))
    order = np.argsort(words, kind="stable")
    return sorted(order[place * num_drawn : (place + 1) * num_drawn].tolist())


class GraphBatches:
    """The batch of every step: `num_drawn` whole graphs.

    Batches drawn before are kept, up to 64 of them: what backends work out for a graph is then there already.
    """

    def __init__(self, graph: Graph, *, num_drawn: int, seed: int) -> None:
        self.graph, self.num_drawn, self.seed = graph, num_drawn, seed
        self._kept: dict[tuple[int, ...], Graph] = {}
        draw_graphs(graph.num_graphs, num_drawn, seed=seed, step=1)  # an impossible number is refused now

    def __call__(self, step: int) -> Graph:
        chosen = tuple(draw_graphs(self.graph.num_graphs, self.num_drawn, seed=self.seed, step=step))
        batch = self._kept.pop(chosen, None) or take_graphs(self.graph, chosen)
        self._kept[chosen] = batch  # the newest stands last
        if len(self._kept) > _NUM_BATCHES_KEPT:
            del self._kept[next(iter(self._kept))]
        return batch

    def close(self) -> None:
        """Nothing runs in the background."""


def training_graphs(graph: Graph, which: str) -> Graph:
    """The graphs that `data.training_graphs` asks for: "all", those of "train", or those of "train-val"."""
    if which == "all":
        return graph
    if graph.splits is None or graph.num_graphs == 1:
        raise InputError(
            f"data.training_graphs={which} needs several graphs that are split into train, val and test, "
            f"and {graph.name!r} is not: use all"
        )
    seen = graph.splits.train[:, 0] if which == "train" else graph.splits.train[:, 0] | graph.splits.val[:, 0]
    numbers = torch.unique(graph.graph_ids[seen.to(graph.device)]).tolist()
    if not numbers:
        raise InputError(f"data.training_graphs={which}: the first split of {graph.name!r} has no node for {which}")
    # A graph of its own, not a batch: its edges are numbered from 0.
    return replace(take_graphs(graph, numbers), node_ids=None, edge_ids=None)


def select_roots(batch: Graph, is_wanted: Tensor) -> Graph:
    """The batch of the roots that `is_wanted` (num_roots,) marks, as if it had been sampled for them alone.

    The batch must be a disjoint one: a subgraph of its own for each root.
    """
    assert batch.owners is not None
    is_kept = is_wanted.index_select(0, batch.owners)
    nodes = is_kept.nonzero().squeeze(1)
    edges = is_kept.index_select(0, batch.targets).nonzero().squeeze(1)
    place = is_kept.long().cumsum(0) - 1
    owner_numbers = is_wanted.long().cumsum(0) - 1
    features, sizes = [], []
    for block, (first, last) in zip(batch.features, pairwise(batch.type_offsets), strict=True):
        rows = is_kept[first:last].nonzero().squeeze(1)
        features.append(None if block is None else take_rows(block, rows))
        sizes.append(len(rows))
    of_nodes = (*NODE_FIELDS, "node_ids", "missing_degrees")
    return replace(
        batch,
        indptr=row_starts(batch.in_degrees.index_select(0, nodes)),
        indices=place.index_select(0, batch.indices.index_select(0, edges).long()).to(batch.indices.dtype),
        features=tuple(features),
        type_offsets=tuple(accumulate(sizes, initial=0)),
        graph_offsets=(),
        num_roots=int(is_wanted.sum()),
        root_places=None if batch.root_places is None else place[batch.root_places[is_wanted]],
        owners=owner_numbers.index_select(0, batch.owners.index_select(0, nodes)),
        hop_offsets=tuple(int(is_kept[:end].sum()) for end in batch.hop_offsets),
        **batch.columns(of_nodes, lambda column: column.index_select(0, nodes)),
        **batch.columns((*EDGE_FIELDS, "edge_ids"), lambda column: column.index_select(0, edges)),
    )


# ---- putting together ------------------------------------------------------------------------------------------------


def _check_alike(graphs: Sequence[Graph]) -> None:
    for graph in graphs:
        if len(graph.features) != 1:
            raise InputError(f"join_graphs takes graphs of one node type, and {graph.name!r} has several")
        if graph.num_features != graphs[0].num_features:
            sizes = f"{graphs[0].num_features[0]} and {graph.num_features[0]}"
            raise InputError(f"{graphs[0].name!r} and {graph.name!r} have {sizes} feature columns: give the same ones")
        for field in _NAME_FIELDS:
            if getattr(graph, field) != getattr(graphs[0], field):
                raise InputError(f"{graphs[0].name!r} and {graph.name!r} differ in their {field}: give the same ones")
        num_splits = [one.splits.num_splits for one in (graphs[0], graph) if one.splits is not None]
        if len(set(num_splits)) > 1:
            raise InputError(f"{graphs[0].name!r} and {graph.name!r} have {num_splits} splits: give each as many")
        for field in ("splits", *NODE_FIELDS, *EDGE_FIELDS):
            if (getattr(graph, field) is None) != (getattr(graphs[0], field) is None):
                raise InputError(f"of {graphs[0].name!r} and {graph.name!r} only one has {field}: give both or none")


def join_tensors(columns: Sequence[Tensor | None]) -> Tensor | None:
    given = [column for column in columns if column is not None]
    return torch.cat(given) if given else None


def join_splits(all_splits: Sequence[Splits | None]) -> Splits | None:
    given = [splits for splits in all_splits if splits is not None]
    if not given:
        return None
    return Splits(*(torch.cat(masks) for masks in zip(*(vars(splits).values() for splits in given), strict=True)))


def join_features(blocks: Sequence[Features | None]) -> Features | None:
    dense = [block for block in blocks if isinstance(block, Tensor)]
    sparse = [block for block in blocks if isinstance(block, SparseMatrix)]
    if blocks[0] is None:
        return None
    if dense and sparse:
        raise InputError("some of the graphs have dense and some sparse features: give all of them in one form")
    if dense:
        return torch.cat(dense)
    starts = _starts([len(block.values) for block in sparse])
    ends = [block.indptr[1:] + start for block, start in zip(sparse, starts[:-1], strict=True)]
    indptr = torch.cat([sparse[0].indptr[:1], *ends])
    indices, values = torch.cat([block.indices for block in sparse]), torch.cat([block.values for block in sparse])
    return SparseMatrix(indptr, indices, values, sparse[0].num_columns)


def _joined_ids(graphs: Sequence[Graph]) -> np.ndarray[Any, Any]:
    times = Counter(graph.name for graph in graphs)
    names = [graph.name if times[graph.name] == 1 else f"{graph.name}-{i}" for i, graph in enumerate(graphs)]
    pairs = zip(names, graphs, strict=True)
    return np.array([f"{name}/{one}" for name, graph in pairs for one in graph.external_ids.tolist()], dtype=np.str_)


# ---- taking out ------------------------------------------------------------------------------------------------------


def _cut(column: Tensor, ranges: Sequence[_Range]) -> Tensor:
    """The rows in these ranges; a view where they are one."""
    joined: list[_Range] = []
    for start, end in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    slices = [column[start:end] for start, end in joined]
    return slices[0] if len(slices) == 1 else torch.cat(slices)


def _cut_features(block: Features | None, ranges: Sequence[_Range]) -> Features | None:
    if not isinstance(block, SparseMatrix):
        return None if block is None else _cut(block, ranges)
    bounds = block.indptr[torch.tensor(ranges, device=block.device)].tolist()
    entries: list[_Range] = [(start, end) for start, end in bounds]
    indptr = row_starts(_cut(block.indptr.diff(), ranges))
    return SparseMatrix(indptr, _cut(block.indices, entries), _cut(block.values, entries), block.num_columns)


def _starts(sizes: Sequence[int]) -> list[int]:
    """[0, s_0, s_0 + s_1, ...]."""
    return [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
