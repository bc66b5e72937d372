"""NetworkX: `from_networkx` and `to_networkx`. Node names become external ids, and ids become node names.

A graph is written with the node attributes x (a vector), label, train, val, test, time and type, and with the edge
attributes weight, time, type and one for each numeric column. `graph.graph["graphstrap"]` keeps the order of names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral, Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import dense
from graphstrap.graph.edge_list import numbers_as_names
from graphstrap.graph.graph import SPLITS, splits_from_masks
from graphstrap.io.arrays import Array
from graphstrap.io.registry import import_extra

logger = logging.getLogger(__name__)
_NAMES = ("name", "class_names", "feature_names", "edge_type_names", "edge_column_names", "node_types")


def from_networkx(
    graph: Any,
    *,
    feature: str | Sequence[str] | None = None,
    label: str | None = None,
    weight: str | None = None,
    node_type: str | None = None,
    edge_type: str | None = None,
    edge_columns: Sequence[str] = (),
    self_loops: str = "drop",
) -> Graph:
    """A graph from any NetworkX graph; an undirected one gets both directions of every edge.

    Each argument names attributes, which must then be there. Without it label and weight are used where there are such
    attributes, and for features x where it holds vectors, else all attributes that are numbers in every node; a note
    says what was left out. A graph that `to_networkx` made gives back all that it was made from.

    Args:
        graph: a Graph, DiGraph, MultiGraph or MultiDiGraph.
        feature: a vector attribute, or a list of numeric ones.
        label: whole numbers, text (class names), or lists of 0 and 1. A node without it is unlabelled.
        weight: an edge without it weighs 1.
        node_type, edge_type: text.
        edge_columns: numeric edge attributes.
        self_loops: "drop" or "keep".
    """
    known: dict[str, Any] = graph.graph.get("graphstrap", {})
    records, offsets, node_types = _nodes_by_type(graph, node_type, known)
    ends, edges = _edge_records(graph, records.places)
    label = records.find(label, "label")
    if feature is None and not known:
        feature = records.find_features(apart={label, node_type})
    elif feature is None or isinstance(feature, str):
        feature = records.find(feature, "x")
    else:
        feature = tuple(feature)
    labels, class_names = records.labels(label, known.get("class_names"))
    kinds, kind_names = edges.categories(edges.find(edge_type, "type" if known else None), known.get("edge_type_names"))
    columns = tuple(edge_columns or known.get("edge_column_names", ()))
    return Graph.from_edges(
        *ends,
        num_nodes=offsets[-1],
        directed=True,
        self_loops=self_loops,
        duplicates="keep" if known else "merge",
        features=tuple(records.take(range(*bounds)).vectors(feature) for bounds in pairwise(offsets)),
        feature_names=known.get("feature_names") if isinstance(feature, str) else feature,
        labels=labels,
        class_names=class_names,
        type_offsets=tuple(offsets),
        node_types=node_types,
        edge_types=kinds,
        edge_type_names=kind_names,
        edge_weights=edges.find_column(weight, "weight", default=1.0),
        edge_columns=np.stack([edges.column(name) for name in columns], axis=1) if columns else None,
        edge_column_names=columns,
        ids=_as_ids(records.places),
        name=str(known.get("name") or graph.name or "graph"),
        **(_own_fields(records, edges) if known else {}),
    )


def to_networkx(graph: Graph) -> Any:
    """A Graph where every edge has an equal reverse, else a DiGraph; a MultiDiGraph for typed or parallel edges."""
    networkx = import_extra("networkx", "networkx is not installed: pip install 'graphstrap[networkx]'")
    graph = _with_names(graph.to("cpu"))
    result = getattr(networkx, _kind_of(graph))()
    result.graph["graphstrap"] = {key: value for key in _NAMES if (value := getattr(graph, key))}
    ids = graph.external_ids.tolist()
    result.add_nodes_from(zip(ids, _records(_node_columns(graph), graph.num_nodes), strict=True))
    ends = ([ids[node] for node in column.tolist()] for column in (graph.indices, graph.targets))
    result.add_edges_from(zip(*ends, _records(_edge_columns(graph), graph.num_edges), strict=True))
    return result


def _nodes_by_type(
    graph: Any, node_type: str | None, known: dict[str, Any]
) -> tuple[Attributes, list[int], tuple[str, ...]]:
    """Nodes grouped by type, the first position of each type and then N, and the names of the types."""
    names = tuple(known.get("node_types", ("node",)))
    records = Attributes("node", list(graph.nodes), [record for _, record in graph.nodes(data=True)])
    usual, known_names = ("type", names) if len(names) > 1 else (None, None)
    kinds, found = records.categories(records.find(node_type, usual), known_names)
    if kinds is None:
        return records, [0, len(records.places)], names
    offsets = [0, *np.cumsum(np.bincount(kinds, minlength=len(found))).tolist()]
    return records.take(np.argsort(kinds, kind="stable").tolist()), offsets, found


def _edge_records(graph: Any, nodes: list[Any]) -> tuple[Array, Attributes]:
    """(2, E) sources and targets, and the attributes, of every directed edge."""
    number = {node: place for place, node in enumerate(nodes)}
    edges = [(number[source], number[target], record) for source, target, record in graph.edges(data=True)]
    if not graph.is_directed():
        edges += [(target, source, record) for source, target, record in edges if source != target]
    places = [(nodes[source], nodes[target]) for source, target, _ in edges]
    attributes = Attributes("edge", places, [record for _, _, record in edges])
    ends = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2)
    return ends.T, attributes


def _own_fields(records: Attributes, edges: Attributes) -> dict[str, Any]:
    """What only graphs that `to_networkx` made have."""
    masks = [records.find_column(None, split) for split in SPLITS]
    times = records.find_column(None, "time")
    return {
        "splits": splits_from_masks(*masks, num_nodes=len(records.places)),
        "node_times": None if times is None else torch.from_numpy(times),
        "edge_times": edges.find_column(None, "time"),
    }


@dataclass(frozen=True)
class Attributes:
    """Attributes of nodes or edges, one dictionary each, as arrays; messages name the node or edge.

    `records[i]` holds the attributes of `places[i]`: a node's name, or an edge's two ends.
    """

    what: str  # "node" or "edge"
    places: list[Any]
    records: list[dict[str, Any]]

    def take(self, chosen: Sequence[int]) -> Attributes:
        return Attributes(self.what, [self.places[i] for i in chosen], [self.records[i] for i in chosen])

    def find(self, name: str | None, usual: str | None) -> str | None:
        """The attribute asked for, which must be there; or the usual one, where it is there."""
        wanted = usual if name is None else name
        if wanted is None or any(wanted in record for record in self.records):
            return wanted
        if name is None:
            return None
        present = sorted({str(key) for record in self.records for key in record})
        raise InputError(f"no {self.what} has the attribute {name!r}: choose from {', '.join(present) or 'none'}")

    def find_features(self, *, apart: Set[str | None]) -> str | tuple[str, ...] | None:
        """x where it holds vectors, else all that is a number in every record."""
        names = sorted({key for record in self.records for key in record if isinstance(key, str)} - apart)
        if "x" in names and any(np.ndim(record.get("x", 0)) for record in self.records):
            chosen: str | tuple[str, ...] | None = "x"
        else:
            is_number = {name: all(isinstance(r.get(name), Number) for r in self.records) for name in names}
            chosen = tuple(name for name in names if is_number[name]) or None
        left_out = [name for name in names if name not in (chosen if isinstance(chosen, tuple) else (chosen,))]
        if left_out:
            logger.warning("attributes of nodes that are no features: %s; name what is to be one", ", ".join(left_out))
        return chosen

    def find_column(self, name: str | None, usual: str, *, default: float | None = None) -> Array | None:
        found = self.find(name, usual)
        return None if found is None else self.column(found, default=default)

    def column(self, name: str, *, default: float | None = None) -> Array:
        """An attribute as one array of numbers or true/false values; without a default every record must have it."""
        given = self._values(name, default)
        try:
            values = np.array(given)
        except ValueError as error:
            raise InputError(f"the attribute {name!r} has different lengths in different {self.what}s") from error
        if values.dtype.kind not in "buif":
            raise InputError(f"the attribute {name!r} of {self.what}s must be numbers: got {values.dtype}")
        return values

    def vectors(self, name: str | tuple[str, ...] | None) -> torch.Tensor | None:
        """(N, F) features from a vector attribute or from several numbers; None where no record has any."""
        if isinstance(name, tuple):
            stacked = np.stack([self.column(one) for one in name], axis=1)
        elif name is None or not any(name in record for record in self.records):
            return None
        else:
            stacked = self.column(name).reshape(len(self.records), -1)
        return torch.from_numpy(stacked.astype(np.float32))

    def categories(self, name: str | None, known: Sequence[str] | None) -> tuple[Array | None, tuple[str, ...]]:
        """Numbers for text values, and the names: the known ones first, others in the order of the alphabet."""
        if name is None:
            return None, ()
        return _numbered([str(value) for value in self._values(name)], known)

    def labels(self, name: str | None, known: Sequence[str] | None) -> tuple[Array | None, tuple[str, ...] | None]:
        """Labels and class names. Whole numbers stay; text is numbered; lists of 0 and 1 are several labels a node."""
        names = None if known is None else tuple(known)
        if name is None:
            return None, names
        given = [record.get(name) for record in self.records]
        present = [label for label in given if label is not None]
        if all(isinstance(label, Integral) for label in present):
            return np.array([-1 if label is None else int(label) for label in given], dtype=np.int64), names
        if all(isinstance(label, list | tuple | np.ndarray) for label in present):
            empty = [0] * len(present[0])
            return np.array([empty if label is None else label for label in given], dtype=np.uint8), names
        if not all(isinstance(label, str) for label in present):
            raise InputError(
                f"the label {name!r} must be whole numbers, text or lists of 0 and 1, and the same everywhere"
            )
        return _numbered(given, known)

    def _values(self, name: str, default: Any = None) -> list[Any]:
        for place, record in zip(self.places, self.records, strict=True):
            if default is None and name not in record:
                raise InputError(f"{self.what} {place!r} lacks the attribute {name!r} that others have: set it for all")
        return [record.get(name, default) for record in self.records]


def _numbered(values: list[str | None], known: Sequence[str] | None) -> tuple[Array, tuple[str, ...]]:
    """Numbers for text, -1 for None, and the names: the known ones first, others in the order of the alphabet."""
    names = tuple(dict.fromkeys([*(known or ()), *sorted({value for value in values if value is not None})]))
    number = {text: place for place, text in enumerate(names)}
    return np.array([-1 if value is None else number[value] for value in values], dtype=np.int64), names


def _as_ids(names: list[Any]) -> Array | None:
    """External ids from node names: None for 0, 1, 2, ...; integers; or text, which must tell the nodes apart."""
    if all(isinstance(name, Integral) for name in names):
        ids = np.array(names, dtype=np.int64)
        return None if np.array_equal(ids, np.arange(len(ids))) else ids
    texts = [str(name) for name in names]
    if len(set(texts)) < len(texts):
        raise InputError("two node names look the same as text: relabel the nodes with integers or distinct strings")
    return np.array(texts)


def _with_names(graph: Graph) -> Graph:
    """The graph with a name for every edge type and edge column: attributes and their values need one."""
    types = () if graph.edge_types is None else numbers_as_names(graph.edge_types)
    num_columns = 0 if graph.edge_columns is None else graph.edge_columns.shape[1]
    return replace(
        graph,
        edge_type_names=graph.edge_type_names or types,
        edge_column_names=graph.edge_column_names or tuple(f"column_{number}" for number in range(num_columns)),
    )


def _kind_of(graph: Graph) -> str:
    """The class of NetworkX that holds a graph."""
    pairs = torch.stack([graph.targets, graph.indices.long()])
    is_parallel = bool((pairs[:, 1:] == pairs[:, :-1]).all(0).any())
    if graph.edge_types is not None or is_parallel:
        return "MultiDiGraph"
    back = graph.transpose.edge_positions
    values = [graph.edge_weights, graph.edge_times, graph.edge_columns]
    is_mirrored = graph.is_symmetric and all(value is None or torch.equal(value[back], value) for value in values)
    return "Graph" if is_mirrored else "DiGraph"


def _records(columns: dict[str, list[Any]], number: int) -> Iterator[dict[str, Any]]:
    """A dictionary for each node or edge, without what is None."""
    for place in range(number):
        yield {name: values[place] for name, values in columns.items() if values[place] is not None}


def _node_columns(graph: Graph) -> dict[str, list[Any]]:
    sizes = np.diff(graph.type_offsets).tolist()
    columns: dict[str, list[Any]] = {"x": []}
    for block, size in zip(graph.features, sizes, strict=True):
        columns["x"] += [None] * size if block is None else list(dense(block).numpy())
    if len(graph.node_types) > 1:
        columns["type"] = np.repeat(graph.node_types, sizes).tolist()
    if graph.labels is not None:
        names = graph.class_names if graph.labels.dim() == 1 else None
        known: list[Any] = [None if label == -1 else label for label in graph.labels.tolist()]
        columns["label"] = [label if names is None or label is None else names[label] for label in known]
    if graph.splits is not None:
        columns |= {split: mask.tolist() for split, mask in vars(graph.splits).items()}
    if graph.node_times is not None:
        columns["time"] = graph.node_times.tolist()
    return columns


def _edge_columns(graph: Graph) -> dict[str, list[Any]]:
    given = graph.columns(("edge_weights", "edge_times"), Tensor.tolist)
    columns: dict[str, list[Any]] = {name.removeprefix("edge_")[:-1]: values for name, values in given.items()}
    if graph.edge_types is not None:
        columns["type"] = [graph.edge_type_names[kind] for kind in graph.edge_types.tolist()]
    if graph.edge_columns is not None:
        columns |= dict(zip(graph.edge_column_names, graph.edge_columns.T.tolist(), strict=True))
    return columns
