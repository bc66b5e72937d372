"""Graph: a frozen value. Whole graphs, sampled batches and heterogeneous graphs are all this one class.

Edges are held as CSR by destination: the sources of the edges into node i are `indices[indptr[i]:indptr[i + 1]]`,
sorted. The position of an edge in `indices` is its id. Nodes of one type are contiguous: type t holds the nodes from
`type_offsets[t]` up to `type_offsets[t + 1]`, and has a feature block of its own width, or none. Several graphs of one
node type are one, block by block: graph g holds the nodes from `graph_offsets[g]` up to `graph_offsets[g + 1]`, and no
edge joins two of them (see `many.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import edge_list
from graphstrap.graph.blocks import Block, Features, Movable, SparseMatrix, block_tensors, readable, row_starts
from graphstrap.graph.views import fingerprint_of

SPLITS = ("train", "val", "test")
ALWAYS = torch.iinfo(torch.int64).min  # the time of a node that has none: never newer than a root
NODE_FIELDS, EDGE_FIELDS = ("labels", "node_times"), ("edge_types", "edge_weights", "edge_times", "edge_columns")


class Transpose(NamedTuple):
    """CSR of outgoing edges. `edge_positions` says where each of them stands in the graph's own `indices`."""

    indptr: Tensor  # (N + 1,) int64
    indices: Tensor  # (E,) destinations
    edge_positions: Tensor  # (E,) int64


@dataclass(frozen=True, eq=False)
class Splits(Movable):
    """Published train, validation and test nodes: boolean masks of shape (N, S), one column per split."""

    train: Tensor
    val: Tensor
    test: Tensor

    @property
    def num_splits(self) -> int:
        return int(self.train.shape[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph(Movable):
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
    cleaning: edge_list.Cleaning = field(default_factory=edge_list.Cleaning)
    name: str = "graph"

    def __post_init__(self) -> None:
        if not self.type_offsets:
            object.__setattr__(self, "type_offsets", (0, self.num_nodes))
        if not self.graph_offsets:
            object.__setattr__(self, "graph_offsets", (0, self.num_nodes))
        if any(block is not None and block.shape[1] == 0 for block in self.features):  # no columns are no features
            found = (None if block is None or block.shape[1] == 0 else block for block in self.features)
            object.__setattr__(self, "features", tuple(found))
        self._check()

    def _check(self) -> None:
        """Whether the columns fit together: sizes only, cheap enough for every batch."""
        num_nodes, num_edges, names = self.num_nodes, self.num_edges, self.node_types
        types, graphs = self.type_offsets, self.graph_offsets
        if types[0] != 0 or types[-1] != num_nodes:
            raise ValueError(f"type_offsets must run from 0 to {num_nodes}, got {types}")
        if not len(self.features) == len(names) == len(types) - 1:
            raise ValueError(f"{len(types) - 1} node types need as many feature blocks and names")
        for name, block, (first, last) in zip(names, self.features, pairwise(types), strict=True):
            if block is not None and block.shape[0] != last - first:
                raise ValueError(f"{name} has {last - first} nodes but {block.shape[0]} feature rows")
        if graphs[0] != 0 or graphs[-1] != num_nodes or any(a > b for a, b in pairwise(graphs)):
            raise ValueError(f"graph_offsets must rise from 0 to {num_nodes}, got {graphs}")
        if len(graphs) > 2 and len(names) > 1:
            raise ValueError(f"several graphs in one must be of one node type, got {len(names)}")
        for name in ("labels", "ids", *EDGE_FIELDS):
            column, number = getattr(self, name), num_edges if name.startswith("edge") else num_nodes
            if column is not None and len(column) != number:
                what = "edges" if name.startswith("edge") else "nodes"
                raise ValueError(f"{name} must have one entry for each of the {number} {what}, got {len(column)}")
        if self.outgoing is not None:
            sizes = tuple(len(column) for column in self.outgoing)
            if sizes != (num_nodes + 1, num_edges, num_edges):
                raise ValueError(
                    f"outgoing must be the transpose of {num_nodes} nodes and {num_edges} edges, got {sizes}"
                )

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
    def num_relations(self) -> int:
        """How many types edges may have: the named ones, or as many as occur."""
        if self.edge_types is None:
            return 1
        return len(self.edge_type_names) or (int(self.edge_types.max()) + 1 if self.num_edges else 1)

    @property
    def device(self) -> torch.device:
        return self.indptr.device

    def columns(self, names: Iterable[str], move: Callable[[Tensor], Any] = lambda column: column) -> dict[str, Any]:
        """Those of the named columns that the graph has, each as `move` gives it."""
        given = {name: getattr(self, name) for name in names}
        return {name: move(column) for name, column in given.items() if column is not None}

    @property
    def num_bytes(self) -> int:
        """What its edges and features take."""
        tensors = [*self.columns(("indptr", "indices", *EDGE_FIELDS)).values()]
        tensors += [tensor for block in self.features for tensor in block_tensors(block)]
        return sum(tensor.nbytes for tensor in tensors)

    @property
    def x(self) -> Features | None:
        """The features of a graph with one node type."""
        if len(self.features) != 1:
            raise ValueError(
                f"graph has {len(self.features)} node types: ask for graph.features[type] instead of graph.x"
            )
        return readable(self.features[0])

    @property
    def in_degrees(self) -> Tensor:
        return self.indptr.diff()

    @property
    def training_labels(self) -> Tensor:
        """(N,) the labels that may be learned from: the training nodes' of the first split, or all where there is none.
        All others are -1."""
        assert self.labels is not None
        return self.labels if self.splits is None else torch.where(self.splits.train[:, 0], self.labels, -1)

    @property
    def times_in_order(self) -> Tensor:
        """(N,) int64 in an order that only comparisons look at; `ALWAYS` for a node without a time."""
        assert self.node_times is not None
        if not self.node_times.is_floating_point():
            return self.node_times.long()
        ranks = torch.unique(self.node_times.nan_to_num(nan=-torch.inf), return_inverse=True)[1]  # fractions stay apart
        return torch.where(self.node_times.isnan(), ALWAYS, ranks)

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
        if self.missing_degrees is not None:
            degrees = degrees + self.missing_degrees[:num_nodes]
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
        return torch.repeat_interleave(self.indptr.diff().long())

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
        indptr = row_starts(torch.bincount(self.indices, minlength=self.num_nodes))
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
        edge_list.check_names(rest, known={"x", *(one.name for one in fields(cls))})
        edges = edge_list.EdgeList.of(
            source, target, types=edge_types, weights=edge_weights, times=edge_times, columns=edge_columns
        )
        if "features" in rest and not isinstance(rest["features"], tuple):
            raise InputError("features takes a tuple with a block for each node type: give x= for nodes of one type")
        rest.setdefault("feature_names", _column_names(x))
        x = as_features(x)
        if edges.types is not None and not edge_type_names:
            edge_type_names = edge_list.numbers_as_names(edges.types)
        num_rows = max(0 if x is None else x.shape[0], 0 if labels is None else len(labels))
        num_nodes = edge_list.count_nodes(edges, num_nodes, num_rows=num_rows)
        edges, edge_type_names, cleaning = edge_list.clean_edges(
            edges, edge_type_names, num_nodes, directed=directed, self_loops=self_loops, duplicates=duplicates
        )
        return cls(
            indptr=row_starts(torch.bincount(edges.target, minlength=num_nodes)),
            indices=edges.source.to(torch.int32 if num_nodes < 2**31 else torch.int64),
            features=rest.pop("features", (x,)),
            labels=None if labels is None else edge_list.as_labels(labels),
            edge_types=edges.types,
            edge_type_names=edge_type_names,
            edge_weights=edges.weights,
            edge_times=edges.times,
            edge_columns=edges.columns,
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
        return self.map(lambda tensor: tensor.to(device))

    # ---- identity ----------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that training sees: the same graph has the same fingerprint on every machine."""
        return self._fingerprint(with_all=True)

    def has_fingerprint(self, known: str) -> bool:
        """Whether `known` is this graph's fingerprint, or its earlier one, which left out types and columns of edges
        and times of nodes."""
        return known == self.fingerprint or known == self._fingerprint(with_all=False)

    def _fingerprint(self, *, with_all: bool) -> str:
        offsets = [self.type_offsets, self.graph_offsets] if self.num_graphs > 1 else [self.type_offsets]
        types = self.edge_types
        if types is not None and len(types) and int(types.max()) < 256:
            types = types.to(torch.uint8)  # as a store may have them
        more = [types, self.edge_columns, self.node_times] if with_all else []
        tensors = [one for one in (self.indptr, self.indices, self.edge_weights, *more) if one is not None]
        tensors += [tensor for block in self.features for tensor in block_tensors(block)]
        return fingerprint_of(offsets, self.external_ids, tensors)

    def __repr__(self) -> str:
        several = f"{self.num_graphs} graphs, " if self.num_graphs > 1 else ""
        return (
            f"Graph({self.name!r}: {several}{self.num_nodes:,} nodes, {self.num_edges:,} directed edges, "
            f"features {list(self.num_features)}, {self.num_classes} classes)"
        )


def _column_names(x: Any) -> tuple[str, ...] | None:
    """Those of a table of pandas."""
    columns = getattr(x, "columns", None)
    return None if columns is None else tuple(str(name) for name in columns)


def as_features(x: Any) -> Features | None:
    """Dense or sparse features from a tensor, an array or a SciPy matrix."""
    if x is None or isinstance(x, SparseMatrix):
        return x
    if hasattr(x, "tocsr"):
        return SparseMatrix.from_scipy(x)
    dense = edge_list.as_numbers("x", x, fix="turn text into numbers, or leave its columns out", dtype=torch.float32)
    if dense.dim() != 2:
        raise InputError(f"x takes a row of numbers for each node, got shape {tuple(dense.shape)}")
    return dense


# How something else becomes a Graph, by the name of its library or of its type.
_WAYS = {
    "networkx": "turn it into one with graphstrap.io.networkx.from_networkx(graph)",
    "scipy": "turn it into one with graphstrap.io.scipy.from_scipy(matrix)",
    "numpy": "turn a square matrix into one with graphstrap.io.scipy.from_scipy(matrix), rows of node numbers with "
    "gs.Graph.from_edges(source, target)",
    "torch_geometric": "turn it into one with graphstrap.io.pyg.from_pyg(data)",
    "pandas": "write the table to a file and read it with gs.read_tables(edges, nodes), or give columns of node "
    "numbers to gs.Graph.from_edges(source, target)",
    "str": "load a dataset, a store or an .npz file with gs.load(name), tables with gs.read_tables(edges, nodes)",
    "list": "several graphs become one with gs.join_graphs(graphs)",
    "object": "make one with gs.load, gs.read_tables or gs.Graph.from_edges",
}


def check_is_graph(graph: Any) -> None:
    """Refuse what is no Graph. Libraries are known by name: none is imported for it."""
    if isinstance(graph, Graph):
        return
    libraries = [kind.__module__.split(".")[0] for kind in type(graph).__mro__]
    known = [key for key in (*libraries, type(graph).__name__, "object") if key in _WAYS]
    of = f"{libraries[0]}'s " if known[0] in libraries else ""
    raise InputError(f"a graphstrap Graph is due here, got {of}{type(graph).__name__}: {_WAYS[known[0]]}")


def splits_from_masks(train: Any, val: Any, test: Any, *, num_nodes: int) -> Splits | None:
    """Masks of shape (N,) or (N, S), any of which may be None, as (N, S), one column per split; None when all are."""
    masks: dict[str, Tensor] = {}
    for name, mask in zip(SPLITS, (train, val, test), strict=True):
        if mask is None:
            continue
        tensor = torch.as_tensor(mask).cpu()
        if tensor.dim() not in (1, 2) or len(tensor) != num_nodes:
            shape = tuple(tensor.shape)
            raise InputError(f"{name}_mask has shape {shape}, expected one row for each of the {num_nodes} nodes")
        masks[name] = tensor.bool().reshape(num_nodes, -1)
    if not masks:
        return None
    num_splits = max(mask.shape[1] for mask in masks.values())
    for name, mask in masks.items():
        if mask.shape[1] not in (1, num_splits):
            raise InputError(
                f"{name}_mask has {mask.shape[1]} splits where another mask has {num_splits}: give as many or one"
            )
    absent = torch.zeros(num_nodes, 1, dtype=torch.bool)
    wide = [masks.get(name, absent).expand(-1, num_splits).contiguous() for name in SPLITS]
    return Splits(*wide)
