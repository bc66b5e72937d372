"""Graph: a frozen value. Whole graphs, sampled batches and heterogeneous graphs are all this one class.

Edges are held as CSR by destination: the sources of the edges into node i are `indices[indptr[i]:indptr[i + 1]]`,
sorted. The position of an edge in `indices` is its id. Nodes of one type are contiguous: type t holds the nodes from
`type_offsets[t]` up to `type_offsets[t + 1]`, and has a feature block of its own width, or none. Several graphs of one
node type are one, block by block: graph g holds the nodes from `graph_offsets[g]` up to `graph_offsets[g + 1]`, and no
edge joins two of them (see `many_graphs.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from graphstrap.edge_table import (
    Cleaning,
    EdgeTable,
    as_floats,
    as_integers,
    check_choice,
    count_nodes,
    numbers_as_names,
)
from graphstrap.errors import InputError
from graphstrap.quantised import QuantisedMatrix
from graphstrap.scaled import ScaledMatrix
from graphstrap.sparse import SparseMatrix

Features = Tensor | SparseMatrix
Block = Features | QuantisedMatrix | ScaledMatrix


_HASHED_AT_ONCE = 1 << 24


class Transpose(NamedTuple):
    """CSR of outgoing edges. `edge_positions` says where each of them stands in the graph's own `indices`."""

    indptr: Tensor  # (N + 1,) int64
    indices: Tensor  # (E,) destinations
    edge_positions: Tensor  # (E,) int64


@dataclass(frozen=True, eq=False)
class Splits:
    """Published train, validation and test nodes: boolean masks of shape (N, S), one column per split."""

    train: Tensor
    val: Tensor
    test: Tensor

    @property
    def num_splits(self) -> int:
        return int(self.train.shape[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
    """A directed graph, as a value: nothing mutates it.

    Args:
        indptr: (N + 1,) int64, start of each node's incoming edges.
        indices: (E,) int32 (int64 from 2**31 nodes up), source of each edge, sorted within a row.
        features: one block per node type, dense (N_t, F_t), sparse, quantised, scaled when it is read, or None. Dense
            is float32; a store may hold float16 or bfloat16, which becomes float32 on its way to an encoder.
        type_offsets: (T + 1,) first node of each type, then N.
        graph_offsets: (G + 1,) first node of each graph, then N; one graph unless given.
        labels: (N,) int64 with -1 for "none", or (N, C) uint8 for several labels a node.
        splits: published splits.
        edge_types, edge_weights, edge_times, edge_columns: aligned with `indices`.
        ids: (N,) external ids as a NumPy array of integers or strings; None means 0..N-1.
        outgoing: the transpose, where it is at hand; otherwise it is computed when asked for.
        node_ids, edge_ids: in a batch, the int64 global ids of its nodes and edges.
        num_roots: in a batch, the number of leading nodes that the loss applies to; None means all.
        root_places: in a batch of several node types, where the roots stand: types keep their nodes together.
        owners: (N,) in a batch with a subgraph for each root, the number of the root that a node belongs to.
        hop_offsets: in a sampled batch of one node type, the number of nodes within 0, 1, 2, ... hops of the roots.
        missing_degrees: (N,) in a sampled batch, the weight of the edges into a node that were left out without
            others standing for them; normalisation counts it.
    """

    indptr: Tensor
    indices: Tensor
    features: tuple[Block | None, ...] = (None,)
    type_offsets: tuple[int, ...] = ()
    node_types: tuple[str, ...] = ("node",)
    graph_offsets: tuple[int, ...] = ()
    labels: Tensor | None = None
    class_names: tuple[str, ...] | None = None
    splits: Splits | None = None
    node_times: Tensor | None = None
    edge_types: Tensor | None = None
    edge_type_names: tuple[str, ...] = ()
    edge_weights: Tensor | None = None
    edge_times: Tensor | None = None
    edge_columns: Tensor | None = None
    edge_column_names: tuple[str, ...] = ()
    ids: np.ndarray[Any, Any] | None = None
    outgoing: Transpose | None = None
    node_ids: Tensor | None = None
    edge_ids: Tensor | None = None
    num_roots: int | None = None
    root_places: Tensor | None = None
    owners: Tensor | None = None
    hop_offsets: tuple[int, ...] = ()
    missing_degrees: Tensor | None = None
    feature_names: tuple[str, ...] | None = None
    cleaning: Cleaning = field(default_factory=Cleaning)
    name: str = "graph"

    def __post_init__(self) -> None:
        if not self.type_offsets:
            object.__setattr__(self, "type_offsets", (0, self.num_nodes))
        if not self.graph_offsets:
            object.__setattr__(self, "graph_offsets", (0, self.num_nodes))
        _check(self)

    # ---- sizes -------------------------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return int(self.indptr.shape[0]) - 1

    @property
    def num_edges(self) -> int:
        return int(self.indices.shape[0])

    @property
    def num_graphs(self) -> int:
        return len(self.graph_offsets) - 1

    @property
    def num_features(self) -> tuple[int, ...]:
        """The width of each type's feature block; 0 where there is none."""
        return tuple(0 if block is None else int(block.shape[1]) for block in self.features)

    @property
    def num_classes(self) -> int:
        if self.labels is None:
            return 0
        if self.labels.dim() == 2:
            return int(self.labels.shape[1])
        return len(self.class_names) if self.class_names is not None else int(self.labels.max()) + 1

    @property
    def device(self) -> torch.device:
        return self.indptr.device

    @property
    def num_bytes(self) -> int:
        """What its edges and features take."""
        columns = (self.indptr, self.indices, self.edge_types, self.edge_weights, self.edge_times, self.edge_columns)
        tensors = [column for column in columns if column is not None]
        tensors += [tensor for block in self.features for tensor in block_tensors(block)]
        return sum(tensor.nbytes for tensor in tensors)

    @property
    def x(self) -> Features | None:
        """The features of a graph with one node type."""
        if len(self.features) != 1:
            raise ValueError(
                f"graph has {len(self.features)} node types: ask for graph.features[type] instead of graph.x"
            )
        block = self.features[0]
        return readable(block)

    @property
    def in_degrees(self) -> Tensor:
        return self.indptr.diff()

    @property
    def external_ids(self) -> np.ndarray[Any, Any]:
        return np.arange(self.num_nodes) if self.ids is None else self.ids

    def roots_of(self, h: Tensor) -> Tensor:
        """The rows of h that the loss applies to: the first `num_roots`, or all."""
        if self.root_places is not None:
            return h.index_select(0, self.root_places)
        return h if self.num_roots is None else h[: self.num_roots]

    @cached_property
    def inner(self) -> Graph:
        """A sampled batch without its last hop, and without features: the nodes for which one layer gives what it gives
        in the whole graph. A graph that was not sampled is its own inner one."""
        if len(self.hop_offsets) < 2:
            return self
        num_nodes, num_rows = self.hop_offsets[-2], ([0, *self.hop_offsets])[-3]  # nodes that stay, that keep edges
        first, last = int(self.indptr[num_rows]), int(self.indptr[num_nodes])
        degrees = self.in_degrees[:num_nodes].float()
        if self.edge_weights is not None:
            offsets = self.indptr[num_rows : num_nodes + 1] - first
            sums = torch.segment_reduce(self.edge_weights[first:last], "sum", offsets=offsets, unsafe=True)
            degrees = torch.cat([degrees[:num_rows], sums])
        degrees[:num_rows] = 0
        return Graph(
            indptr=self.indptr[: num_nodes + 1].clamp(max=first),
            indices=self.indices[:first],
            edge_weights=None if self.edge_weights is None else self.edge_weights[:first],
            node_ids=None if self.node_ids is None else self.node_ids[:num_nodes],
            edge_ids=None if self.edge_ids is None else self.edge_ids[:first],
            num_roots=self.num_roots,
            hop_offsets=self.hop_offsets[:-1],
            missing_degrees=None if self.missing_degrees is None else degrees,
        )

    @cached_property
    def targets(self) -> Tensor:
        """(E,) destination of each edge."""
        return torch.repeat_interleave(torch.arange(self.num_nodes, device=self.device), self.in_degrees)

    @cached_property
    def graph_starts(self) -> Tensor:
        """(G + 1,) `graph_offsets`, where the graph is."""
        return torch.tensor(self.graph_offsets, device=self.device)

    @cached_property
    def graph_ids(self) -> Tensor:
        """(N,) the graph that each node belongs to."""
        return torch.repeat_interleave(torch.arange(self.num_graphs, device=self.device), self.graph_starts.diff())

    @cached_property
    def transpose(self) -> Transpose:
        if self.outgoing is not None:
            return self.outgoing
        order = torch.sort(self.indices, stable=True).indices
        counts = torch.bincount(self.indices, minlength=self.num_nodes)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Transpose(indptr, self.targets[order].to(self.indices.dtype), order)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse."""
        back = self.transpose
        return bool(torch.equal(back.indptr, self.indptr) and torch.equal(back.indices, self.indices))

    # ---- making one --------------------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        source: Any,
        target: Any,
        *,
        num_nodes: int | None = None,
        directed: bool = False,
        self_loops: str = "drop",
        duplicates: str = "merge",
        x: Any = None,
        labels: Any = None,
        edge_types: Any = None,
        edge_type_names: tuple[str, ...] = (),
        edge_weights: Any = None,
        edge_times: Any = None,
        edge_columns: Any = None,
        **rest: Any,
    ) -> Self:
        """Build a graph from two aligned arrays of node numbers.

        `directed=False` adds the reverse of every edge that has none; where edges have types, every edge gets one, of
        the type "reverse_<name>". Merged duplicates add up their weights and keep the first one's other columns; with
        `duplicates="keep"` every edge gets a reverse. Edge types without names are called by their numbers.
        `graph.cleaning` says what was done.
        """
        check_choice("self_loops", self_loops, ("drop", "keep"))
        check_choice("duplicates", duplicates, ("merge", "keep"))
        columns = EdgeTable(
            source=as_integers("source", source),
            target=as_integers("target", target),
            types=None if edge_types is None else as_integers("edge_types", edge_types),
            weights=as_floats(edge_weights),
            times=None if edge_times is None else torch.as_tensor(edge_times),
            columns=as_floats(edge_columns),
        )
        x, num_given = as_features(x), len(columns.source)
        if columns.types is not None and not edge_type_names:
            edge_type_names = numbers_as_names(columns.types)
        num_rows = max(0 if x is None else x.shape[0], 0 if labels is None else len(labels))
        num_nodes = count_nodes(columns, num_nodes, num_rows=num_rows)
        if self_loops == "drop":
            columns = columns.select(columns.source != columns.target)
        num_without_loops = len(columns.source)
        columns = columns.sorted(num_nodes)
        if duplicates == "merge":
            columns = columns.merged(num_nodes)
        num_distinct = len(columns.source)
        if not directed:
            columns, edge_type_names = columns.with_reverse(edge_type_names)
            columns = columns.sorted(num_nodes)
            if duplicates == "merge":
                columns = columns.firsts(num_nodes)
        cleaning = Cleaning(
            num_edges_given=num_given,
            num_self_loops_dropped=num_given - num_without_loops,
            num_duplicates_merged=num_without_loops - num_distinct,
            num_reverse_edges_added=len(columns.source) - num_distinct,
        )
        counts = torch.bincount(columns.target, minlength=num_nodes)
        return cls(
            indptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
            indices=columns.source.to(torch.int32 if num_nodes < 2**31 else torch.int64),
            features=rest.pop("features", (x,)),
            labels=None if labels is None else torch.as_tensor(labels),
            edge_types=columns.types,
            edge_type_names=edge_type_names,
            edge_weights=columns.weights,
            edge_times=columns.times,
            edge_columns=columns.columns,
            cleaning=cleaning,
            **rest,
        )

    # ---- derived graphs ----------------------------------------------------------------------------------------------

    def with_features(self, *blocks: Block | None) -> Graph:
        return replace(self, features=tuple(blocks))

    def with_readable_features(self) -> Graph:
        """The same graph with every block as an encoder of whole graphs takes it, made here and now."""
        if all(block is None or isinstance(block, Features) for block in self.features):
            return self
        return replace(self, features=tuple(readable(block) for block in self.features))

    def to(self, device: torch.device | str) -> Graph:
        """The same graph on another device (itself when it is there already)."""
        device = torch.device(device)
        if device == self.device or (device.type == self.device.type == "cuda" and device.index is None):
            return self
        return _map_tensors(self, lambda tensor: tensor.to(device))

    # ---- identity ----------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that training sees: the same graph has the same fingerprint on every machine."""
        digest = hashlib.blake2b(repr(self.type_offsets).encode(), digest_size=16)
        if self.num_graphs > 1:
            digest.update(repr(self.graph_offsets).encode())
        for first in range(0, self.num_nodes, _HASHED_AT_ONCE):
            part = self.external_ids[first : first + _HASHED_AT_ONCE].tolist()
            digest.update(("\n" if first else "").encode() + "\n".join(map(str, part)).encode())
        weights = [] if self.edge_weights is None else [self.edge_weights]
        for tensor in (self.indptr, self.indices, *weights, *_feature_tensors(self.features)):
            digest.update(str(tuple(tensor.shape)).encode())
            step = max(1, _HASHED_AT_ONCE // max(1, tensor[:1].numel()))
            for first in range(0, len(tensor), step):  # part by part: it may be larger than memory
                part = tensor[first : first + step].detach().cpu().contiguous()
                digest.update((part.long() if part.dtype == torch.int32 else part).numpy().tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        several = f"{self.num_graphs} graphs, " if self.num_graphs > 1 else ""
        return (
            f"Graph({self.name!r}: {several}{self.num_nodes:,} nodes, {self.num_edges:,} directed edges, "
            f"features {list(self.num_features)}, {self.num_classes} classes)"
        )


def as_features(x: Any) -> Features | None:
    """Dense or sparse features from a tensor, an array or a SciPy matrix."""
    if x is None or isinstance(x, SparseMatrix):
        return x
    if hasattr(x, "tocsr"):
        return SparseMatrix.from_scipy(x)
    dense = torch.as_tensor(x, dtype=torch.float32)
    if dense.dim() != 2:
        raise InputError(f"x takes a row of numbers for each node, got shape {tuple(dense.shape)}")
    return dense


def readable(block: Block | None) -> Features | None:
    """A block as an encoder of whole graphs takes it."""
    if isinstance(block, ScaledMatrix):
        return block.apply(block.raw)
    return block.to_dense() if isinstance(block, QuantisedMatrix) else block


def block_tensors(block: Block | None) -> list[Tensor]:
    """The tensors that a feature block is made of."""
    if isinstance(block, ScaledMatrix):
        block = block.raw
    if block is None or isinstance(block, Tensor):
        return [] if block is None else [block]
    return [value for value in vars(block).values() if isinstance(value, Tensor)]


def _check(graph: Graph) -> None:
    """Shapes only: cheap enough for every batch."""
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    if graph.type_offsets[0] != 0 or graph.type_offsets[-1] != num_nodes:
        raise ValueError(f"type_offsets must run from 0 to {num_nodes}, got {graph.type_offsets}")
    starts = graph.graph_offsets
    if starts[0] != 0 or starts[-1] != num_nodes or any(a > b for a, b in pairwise(starts)):
        raise ValueError(f"graph_offsets must rise from 0 to {num_nodes}, got {starts}")
    if graph.num_graphs > 1 and len(graph.node_types) > 1:
        raise ValueError(f"several graphs in one must be of one node type, got {len(graph.node_types)}")
    if len(graph.features) != len(graph.type_offsets) - 1 or len(graph.node_types) != len(graph.features):
        raise ValueError(f"{len(graph.type_offsets) - 1} node types need as many feature blocks and names")
    for t, block in enumerate(graph.features):
        size = graph.type_offsets[t + 1] - graph.type_offsets[t]
        if block is not None and block.shape[0] != size:
            raise ValueError(f"{graph.node_types[t]} has {size} nodes but {block.shape[0]} feature rows")
    if graph.labels is not None and len(graph.labels) != num_nodes:
        raise ValueError(f"labels must have one entry for each of the {num_nodes} nodes, got {len(graph.labels)}")
    if graph.ids is not None and len(graph.ids) != num_nodes:
        raise ValueError(f"ids must have one entry for each of the {num_nodes} nodes, got {len(graph.ids)}")
    if graph.outgoing is not None:
        sizes = tuple(len(part) for part in graph.outgoing)
        if sizes != (num_nodes + 1, num_edges, num_edges):
            raise ValueError(f"outgoing must be the transpose of {num_nodes} nodes and {num_edges} edges, got {sizes}")
    for name in ("edge_types", "edge_weights", "edge_times", "edge_columns"):
        column = getattr(graph, name)
        if column is not None and len(column) != num_edges:
            raise ValueError(f"{name} must have one entry for each of the {num_edges} edges, got {len(column)}")


def _feature_tensors(blocks: tuple[Block | None, ...]) -> Iterator[Tensor]:
    for block in blocks:
        if isinstance(block, SparseMatrix):
            yield from (block.indptr, block.indices, block.values)
        elif isinstance(block, QuantisedMatrix):
            yield from (block.codes, block.scale, block.offset)
        elif isinstance(block, ScaledMatrix):
            yield from _feature_tensors((block.raw,))
        elif block is not None:
            yield block if block.dtype != torch.bfloat16 else block.view(torch.int16)


def _map_tensors(graph: Graph, move: Callable[[Tensor], Tensor]) -> Graph:
    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return move(value)
        if isinstance(value, SparseMatrix | QuantisedMatrix | ScaledMatrix):
            return value.map(move)
        if isinstance(value, Transpose):
            return Transpose(*(move(part) for part in value))
        if isinstance(value, Splits):
            return Splits(move(value.train), move(value.val), move(value.test))
        if isinstance(value, tuple):
            return tuple(moved(item) for item in value)
        return value

    return replace(graph, **{f.name: moved(getattr(graph, f.name)) for f in fields(graph)})
