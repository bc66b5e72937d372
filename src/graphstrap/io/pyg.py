"""PyTorch Geometric: `from_pyg` and `to_pyg`, for Data and HeteroData.

In PyG `edge_index[0]` are the sources and `edge_index[1]` the targets. Besides PyG's own names (x, y, edge_index,
edge_attr, edge_weight, edge_type, time, train_mask, ...) the bridge uses `edge_time`, `ids` for external ids, and
`graphstrap` for a dictionary of names that PyG has no place for, so that a graph survives the way there and back.
"""

from __future__ import annotations

import logging
import warnings
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import Block, Features, SparseMatrix
from graphstrap.graph.graph import SPLITS, as_features, splits_from_masks
from graphstrap.io.registry import import_extra

EdgeTriple = tuple[str, str, str]
logger = logging.getLogger(__name__)
_EDGE_KEYS = {"edge_weights": "edge_weight", "edge_times": "edge_time", "edge_columns": "edge_attr"}
_DEFAULTS = {"edge_weights": 1.0, "edge_columns": 0.0}  # for edge types that lack what others have
_NAMES = ("name", "class_names", "feature_names", "edge_type_names", "edge_column_names")


def from_pyg(data: Any, *, directed: bool | None = None, self_loops: str = "drop", duplicates: str = "merge") -> Graph:
    """A graph from a Data or HeteroData object, which is left as it is.

    PyG lists both directions of an undirected edge, so edges are taken as they are, unless some lead from one node type
    to another and none lead back: then every edge gets its reverse, as in tables, and a note says so. `directed=True`
    takes them as they are, `directed=False` always adds the missing ones.
    """
    nodes, edges = _stores(data)
    if directed is None:
        one_way = [triple for triple in edges if not any((e[0], e[2]) == (triple[2], triple[0]) for e in edges)]
        directed = not one_way
        if one_way:
            said = ", ".join("-".join(triple) for triple in one_way)
            logger.warning("every edge gets its reverse, as there is none of %s: directed=True leaves them out", said)
    names = dict(getattr(data, "graphstrap", None) or {})
    counts = [_count_nodes(node_type, store) for node_type, store in nodes.items()]
    offsets = (0, *accumulate(counts))
    index = _edge_index(edges, dict(zip(nodes, offsets, strict=False)), dict(zip(nodes, counts, strict=True)))
    edge_types, edge_type_names = _edge_types(data, edges, names)
    rest = {key: names[key] for key in _NAMES if key in names and key != "edge_type_names"}
    return Graph.from_edges(
        index[0],
        index[1],
        num_nodes=offsets[-1],
        directed=directed,
        self_loops=self_loops,
        duplicates=duplicates,
        type_offsets=offsets,
        node_types=tuple(names.get("node_types", nodes)),
        edge_types=edge_types,
        edge_type_names=edge_type_names,
        **{key: _edge_values(edges, key) for key in _EDGE_KEYS},
        **_node_fields(nodes, counts),
        **rest,
    )


def to_pyg(graph: Graph, *, dense: bool = True) -> Any:
    """Data, or HeteroData for several node types. `dense=False` keeps sparse features sparse, as COO tensors."""
    geometric = import_pyg()
    graph = graph.to("cpu")
    names: dict[str, Any] = {key: value for key in _NAMES if (value := getattr(graph, key))}
    names["node_types"] = graph.node_types
    if len(graph.node_types) == 1:
        data = geometric.Data(num_nodes=graph.num_nodes)
        _write_nodes(data, graph, 0, dense=dense)
        _write_edges(data, graph, torch.arange(graph.num_edges), offsets=(0, 0))
        if graph.edge_types is not None:
            data.edge_type = graph.edge_types
    else:
        data = geometric.HeteroData()
        for number, node_type in enumerate(graph.node_types):
            _write_nodes(data[node_type], graph, number, dense=dense)
        edge_names = _write_edge_types(data, graph)
        names["edge_names"] = None if graph.edge_types is None else edge_names
    data.graphstrap = names
    return data


def import_pyg(module: str = "data") -> Any:
    """A module of torch_geometric, whose own import warns of things that are none of the user's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fix = "torch_geometric is not installed: pip install torch-geometric"
        return import_extra(f"torch_geometric.{module}", fix)


def _stores(data: Any) -> tuple[dict[str, Any], dict[EdgeTriple, Any]]:
    """Where nodes and edges of each type are; a Data object is one node type and one edge type."""
    geometric = import_pyg()
    if isinstance(data, geometric.HeteroData):
        ends = {end for source, _, target in data.edge_types for end in (source, target)}
        for node_type in sorted(ends - set(data.node_types)):
            _refuse_uncounted(node_type)
        return {kind: data[kind] for kind in data.node_types}, {triple: data[triple] for triple in data.edge_types}
    if not isinstance(data, geometric.Data):
        raise InputError(f"from_pyg takes a Data or HeteroData object, got {type(data).__name__}")
    return {"node": data}, {("node", "to", "node"): data}


def _count_nodes(node_type: str, store: Any) -> int:
    if "num_nodes" in store:
        return int(store.num_nodes)
    for key in ("x", "y", "ids"):
        if (value := getattr(store, key, None)) is not None:
            return len(value) if key == "ids" else int(value.shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns where it has to infer the number from the edges
        count = store.num_nodes
    return _refuse_uncounted(node_type) if count is None else int(count)


def _refuse_uncounted(node_type: str) -> NoReturn:
    raise InputError(f"nodes of type {node_type!r} have neither x nor num_nodes: set data[{node_type!r}].num_nodes")


def _edge_index(edges: dict[EdgeTriple, Any], first: dict[str, int], sizes: dict[str, int]) -> Tensor:
    """(2, E) in the common numbering."""
    parts = [torch.zeros(2, 0, dtype=torch.int64)]
    for (source, relation, target), store in edges.items():
        index = getattr(store, "edge_index", None)
        if index is None or index.dim() != 2 or len(index) != 2:
            raise InputError(
                f"edges {source}-{relation}-{target} have no edge_index of shape (2, E): give one (not adj_t)"
            )
        index = index.as_subclass(Tensor).cpu().long()
        for row, node_type in zip(index, (source, target), strict=True):
            if len(row) and not 0 <= int(row.min()) <= int(row.max()) < sizes[node_type]:
                raise InputError(
                    f"edge_index of {source}-{relation}-{target} names a {node_type} beyond {sizes[node_type]}"
                )
        parts.append(index + torch.tensor([[first[source]], [first[target]]]))
    return torch.cat(parts, dim=1)


def _edge_types(
    data: Any, edges: dict[EdgeTriple, Any], names: dict[str, Any]
) -> tuple[Tensor | None, tuple[str, ...]]:
    """The type of each edge, and the names of the types: "source|relation|target" unless the graph had others."""
    known = tuple(names.get("edge_type_names", ()))
    if any(store is data for store in edges.values()):
        types = getattr(data, "edge_type", None)
        return (None if types is None else types.cpu().long()), known
    edge_names = names.get("edge_names", {})
    if edge_names is None:
        return None, ()
    own = [edge_names.get(triple, "|".join(triple)) for triple in edges]
    known = tuple(dict.fromkeys([*known, *own]))
    counts = torch.tensor([store.edge_index.shape[1] for store in edges.values()], dtype=torch.int64)
    numbers = torch.tensor([known.index(name) for name in own], dtype=torch.int64)
    return torch.repeat_interleave(numbers, counts), known


def _edge_values(edges: dict[EdgeTriple, Any], key: str) -> Tensor | None:
    """An edge column over all edge types: (E,), or (E, K) for edge_columns."""
    name, counts = _EDGE_KEYS[key], [store.edge_index.shape[1] for store in edges.values()]
    if key not in _DEFAULTS:
        _all_or_none(edges, name)
    given = [getattr(store, name, None) for store in edges.values()]
    width = (-1,) if key == "edge_columns" else ()
    columns = [
        None if one is None else one.cpu().reshape(count, *width) for one, count in zip(given, counts, strict=True)
    ]
    return _join(columns, counts, name, blank=_DEFAULTS.get(key, 0.0))


def _node_fields(nodes: dict[str, Any], counts: list[int]) -> dict[str, Any]:
    """The fields of Graph that belong to nodes, gathered over all node types."""
    labels = [_labels(kind, store, count) for (kind, store), count in zip(nodes.items(), counts, strict=True)]
    has_several = any(column is not None and column.dim() == 2 for column in labels)
    masks = [
        _join([_mask(store, f"{split}_mask") for store in nodes.values()], counts, f"{split}_mask") for split in SPLITS
    ]
    times, ids = _all_or_none(nodes, "time"), _all_or_none(nodes, "ids")
    return {
        "features": tuple(_features(store) for store in nodes.values()),
        "labels": _join(labels, counts, "y", blank=0 if has_several else -1),
        "splits": splits_from_masks(*masks, num_nodes=sum(counts)),
        "node_times": torch.cat([time.cpu().reshape(-1) for time in times]) if times else None,
        "ids": np.concatenate([np.asarray(one) for one in ids]) if ids else None,
    }


def _join(columns: list[Tensor | None], counts: list[int], name: str, *, blank: float = 0) -> Tensor | None:
    """One column over all types, with `blank` for types that lack it; None where all do."""
    found = [column for column in columns if column is not None]
    if not found:
        return None
    width = found[0].shape[1:]
    if any(column.shape[1:] != width for column in found):
        raise InputError(f"{name} has different widths in different types: give all the same number of columns")
    blanks = [found[0].new_full((count, *width), blank) for count in counts]
    return torch.cat([empty if column is None else column for column, empty in zip(columns, blanks, strict=True)])


def _all_or_none(stores: dict[Any, Any], key: str) -> list[Any]:
    """An attribute of every type, or nothing where no type has it."""
    found = [value for store in stores.values() if (value := getattr(store, key, None)) is not None]
    if found and len(found) < len(stores):
        raise InputError(f"some types have the attribute {key} and some do not: give it to all types or to none")
    return found


def _features(store: Any) -> Features | None:
    x = getattr(store, "x", None)
    if x is None:
        return None
    if hasattr(x, "to_scipy"):  # torch_sparse.SparseTensor
        return as_features(x.to_scipy(layout="csr"))
    if x.layout == torch.strided:
        return as_features(x.detach().cpu().reshape(len(x), -1))
    from scipy.sparse import csr_matrix

    entries = (x if x.layout == torch.sparse_coo else x.to_sparse_coo()).detach().cpu().coalesce()
    rows, columns = entries.indices().numpy()
    return as_features(csr_matrix((entries.values().numpy(), (rows, columns)), shape=tuple(x.shape)))


def _labels(node_type: str, store: Any, count: int) -> Tensor | None:
    y = getattr(store, "y", None)
    if y is None:
        return None
    y = y.detach().cpu()
    if y.dim() not in (1, 2) or len(y) != count:
        raise InputError(
            f"y of {node_type!r} has shape {tuple(y.shape)}, expected one row for each of the {count} nodes"
        )
    if y.dim() == 2 and y.shape[1] == 1 and y.dtype != torch.uint8:
        y = y[:, 0]
    y = torch.nan_to_num(y, nan=-1.0) if y.is_floating_point() else y
    if bool((y != y.long()).any()):
        raise InputError(f"y of {node_type!r} holds decimals: labels are whole numbers, with -1 for none")
    if y.dim() == 2 and bool(((y != 0) & (y != 1)).any()):
        raise InputError(f"y of {node_type!r} has several columns, so every entry must be 0 or 1")
    return y.to(torch.int64 if y.dim() == 1 else torch.uint8)


def _mask(store: Any, key: str) -> Tensor | None:
    """(N, S) of true and false."""
    mask = getattr(store, key, None)
    return None if mask is None else mask.cpu().bool().reshape(len(mask), -1)


def _write_nodes(store: Any, graph: Graph, number: int, *, dense: bool) -> None:
    """Set x, y, masks, time and ids of the nodes of one type."""
    begin, end = graph.type_offsets[number], graph.type_offsets[number + 1]
    store.num_nodes = end - begin
    block = graph.features[number]
    if block is not None:
        store.x = _to_torch(block, dense)
    if graph.labels is not None and _belongs(graph.labels, begin, end):
        store.y = graph.labels[begin:end]
    masks = {} if graph.splits is None else vars(graph.splits)
    if masks and _belongs(torch.cat([*masks.values()], dim=1), begin, end):
        for split, mask in masks.items():
            setattr(store, f"{split}_mask", mask[begin:end, 0] if mask.shape[1] == 1 else mask[begin:end])
    if graph.node_times is not None:
        store.time = graph.node_times[begin:end]
    if graph.ids is not None:
        store.ids = graph.ids[begin:end]


def _belongs(values: Tensor, begin: int, end: int) -> bool:
    """Whether these nodes have labels or splits at all, or no node has: then every type keeps its empty ones."""
    nothing = -1 if values.dim() == 1 else 0
    return bool((values[begin:end] != nothing).any()) or not bool((values != nothing).any())


def _to_torch(block: Block, dense: bool) -> Tensor:
    if isinstance(block, SparseMatrix) and not dense:
        places = torch.stack([block.rows, block.indices.long()])
        return torch.sparse_coo_tensor(places, block.values, block.shape, is_coalesced=True, check_invariants=True)
    return block if isinstance(block, Tensor) else block.to_dense()


def _write_edges(store: Any, graph: Graph, edges: Tensor, *, offsets: tuple[int, int]) -> None:
    source, target = graph.indices[edges].long() - offsets[0], graph.targets[edges] - offsets[1]
    store.edge_index = torch.stack([source, target])
    for key, values in graph.columns(_EDGE_KEYS, lambda column: column[edges]).items():
        setattr(store, _EDGE_KEYS[key], values)


def _write_edge_types(data: Any, graph: Graph) -> dict[EdgeTriple, str]:
    """One PyG edge type for each (type of source, edge type, type of target). Returns the graph's own name of each."""
    starts = torch.tensor(graph.type_offsets[1:])
    source_types = torch.bucketize(graph.indices.long(), starts, right=True)
    target_types = torch.bucketize(graph.targets, starts, right=True)
    types = torch.zeros_like(graph.targets) if graph.edge_types is None else graph.edge_types
    keys = torch.stack([types, source_types, target_types])
    names: dict[EdgeTriple, str] = {}
    for kind, source, target in torch.unique(keys, dim=1).T.tolist():
        name = graph.edge_type_names[kind] if graph.edge_type_names else str(kind)
        triple = (graph.node_types[source], _relation(name), graph.node_types[target])
        triple = triple if triple not in names else (triple[0], name, triple[2])
        chosen = (keys == torch.tensor([[kind], [source], [target]])).all(0).nonzero()[:, 0]
        _write_edges(data[triple], graph, chosen, offsets=(graph.type_offsets[source], graph.type_offsets[target]))
        names[triple] = name
    return names


def _relation(name: str) -> str:
    """The middle of "source|relation|target", keeping the "reverse_" in front."""
    parts = name.split("|")
    if len(parts) != 3:
        return name
    return f"reverse_{parts[1]}" if parts[0].startswith("reverse_") else parts[1]
