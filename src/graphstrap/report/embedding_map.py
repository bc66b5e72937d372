"""The data of the embedding map: where every node is, what is known of it, who is near it and who is linked to it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.random import default_rng

from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn.model import class_names
from graphstrap.ops.nearest import Nearest, nearest_nodes, unit_rows
from graphstrap.report.layout import NUM_NEIGHBOURS, neighbour_layout, neighbours_kept, principal_components

Array = np.ndarray[Any, Any]

MAX_FEATURE_COLUMNS, MAX_FEATURE_CELLS = 16, 1_000_000
MAX_CATEGORIES = 1000
NUM_TRAITS = 8
NUM_CLUSTERS = 12
_CLUSTER_SAMPLE = 5_000
_WHOLE_BELOW = 2**24  # float32 has every whole number; fractions are shown by a few digits anyway
_LEADING_ZERO = re.compile(r"\s*[+-]?0\d")
NUM_SHOWN = 10  # nearest nodes of each
MAX_EDGES = 1_000_000
MAX_NODES = 200_000


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the chosen `nodes` stand, by several layouts, and which are near each other. `kept`: see
    `neighbours_kept`."""

    nodes: Array
    nearest: Nearest
    positions: dict[str, Array]
    kept: dict[str, float]


def lay_out(h: Array) -> Layout:
    """The layouts of at most MAX_NODES nodes."""
    nodes = choose(len(h))
    nearest = nearest_nodes(h[nodes], k=NUM_NEIGHBOURS)
    components = principal_components(h[nodes])
    positions = {"neighbours": neighbour_layout(nearest.nodes, components), "pca": components}
    kept = {name: neighbours_kept(nearest.nodes, at) for name, at in positions.items()}
    return Layout(nodes, nearest, positions, kept)


def choose(number: int, *, limit: int = MAX_NODES) -> Array:
    """All of so many nodes or edges, or a random choice of `limit`, ascending."""
    return np.arange(number) if number <= limit else np.sort(default_rng(0).permutation(number)[:limit])


def pack_map(graph: Graph, layout: Layout, *, columns: Sequence[Column]) -> tuple[dict[str, Any], str]:
    """The header of the map, for JSON, and its block of arrays. `columns` are of all nodes."""
    nodes, nearest, shown_traits = layout.nodes, layout.nearest, traits(graph)
    packer = Packer()
    packer.add_json("ids", [str(one) for one in graph.external_ids[nodes].tolist()])
    for name, positions in layout.positions.items():
        packer.add(f"layout:{name}", quantise(positions))
    packer.add("nearest", nearest.nodes[:, :NUM_SHOWN].astype(np.int32))
    similarities = np.rint((nearest.similarities[:, :NUM_SHOWN] + 1) * 127.5)  # [-1, 1] in 255 steps
    packer.add("similarities", np.clip(similarities, 0, 255).astype(np.uint8))
    sources, targets, num_all = map_edges(graph, nodes)
    packer.add("edge_counts", np.bincount(sources, minlength=len(nodes)).astype(np.int32))
    packer.add("edge_targets", targets.astype(np.int32))
    described = []
    for index, column in enumerate(columns):
        name, values = f"column:{index}", column.values[nodes]
        if column.names is None:
            packer.add(name, shorten_floats(values))
        else:
            packer.add(name, values.astype(np.int32))
            packer.add_json(f"{name}:names", list(column.names))
        kind = "number" if column.names is None else "category"
        described.append({"title": column.title, "kind": kind, "array": name})
    if shown_traits is not None:
        packer.add("traits", shown_traits[nodes])
        packer.add_json("trait_names", list(graph.feature_names or ()))
    header = {
        "num_nodes": len(nodes),
        "num_nearest": int(min(NUM_SHOWN, nearest.nodes.shape[1])),
        "directed": not graph.is_symmetric,
        "layouts": list(layout.positions),
        "columns": described,
        "traits": shown_traits is not None,
        "notes": _notes(graph, nodes, len(targets), num_all, nearest),
        "arrays": packer.entries,
        "kept": layout.kept,
    }
    return header, packer.block()


def map_edges(graph: Graph, nodes: Array, *, limit: int = MAX_EDGES) -> tuple[Array, Array, int]:
    """Edges among the nodes of the map, sorted by source, each undirected one once; a random `limit` of them. The last
    is how many there are in all."""
    place = np.full(graph.num_nodes, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    sources, targets = place[graph.indices.numpy()], place[graph.targets.numpy()]
    kept = (sources >= 0) & (targets >= 0)
    if graph.is_symmetric:
        kept &= sources <= targets
    sources, targets = sources[kept], targets[kept]
    num_all = len(sources)
    chosen = choose(num_all, limit=limit)
    sources, targets = sources[chosen], targets[chosen]
    order = np.lexsort((targets, sources))
    return sources[order], targets[order], num_all


def _notes(graph: Graph, nodes: Array, num_edges: int, num_all: int, nearest: Nearest) -> list[str]:
    notes = []
    if len(nodes) < graph.num_nodes:
        notes.append(f"A random {len(nodes):,} of the {graph.num_nodes:,} nodes are on the map.")
    if num_edges < num_all:
        notes.append(f"A random {num_edges:,} of the {num_all:,} edges are kept in this file.")
    if not nearest.is_exact:
        found = f"{100 * nearest.recall:.1f} %"
        notes.append(f"Nearest nodes were searched in the cells around a node, which finds {found} of them.")
    return notes


@dataclass(frozen=True, eq=False)
class Column:
    """What the map can be coloured by, and shows of a node: numbers (NaN where there is none), or categories, a number
    for each node, -1 for none. `names` of the categories; None for a column of numbers."""

    title: str
    values: Array  # (N,) float32, or int32 codes
    names: tuple[str, ...] | None = None


def graph_columns(graph: Graph) -> list[Column]:
    """Labels, types, splits, degree, times and dense features, as far as the graph has them."""
    columns = []
    if graph.labels is not None and graph.labels.dim() == 1:
        columns.append(Column("label", graph.labels.numpy().astype(np.int32), class_names(graph)))
    if len(graph.node_types) > 1:
        sizes = np.diff(graph.type_offsets)
        columns.append(Column("type", np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), graph.node_types))
    if graph.splits is not None:
        codes = np.full(graph.num_nodes, -1, dtype=np.int32)
        for code, mask in enumerate((graph.splits.train, graph.splits.val, graph.splits.test)):
            if mask.shape[1]:
                codes[mask[:, 0].numpy().astype(bool)] = code
        columns.append(Column("split", codes, ("train", "val", "test")))
    columns.append(Column("degree", graph.in_degrees.numpy().astype(np.float32)))
    if graph.node_times is not None:
        columns.append(Column("time", graph.node_times.numpy().astype(np.float32)))
    block = graph.features[0]
    if len(graph.features) == 1 and isinstance(block, torch.Tensor):  # the first columns
        num_shown = max(4, min(MAX_FEATURE_COLUMNS, MAX_FEATURE_CELLS // max(1, graph.num_nodes)))
        names: Sequence[str] = graph.feature_names or [f"feature {number}" for number in range(block.shape[1])]
        values = block[:, :num_shown].float().numpy()
        columns += [Column(name, column) for name, column in zip(names, values.T, strict=False)]
    return columns


def cluster_column(h: Array, *, num_clusters: int) -> Column:
    """k-means of unit rows, fitted on a sample; clusters numbered from the largest."""
    from sklearn.cluster import KMeans

    unit = unit_rows(h).numpy()
    num_clusters = min(num_clusters, len(np.unique(unit[:1000], axis=0)))
    sample = default_rng(0).permutation(len(unit))[:_CLUSTER_SAMPLE]
    codes = KMeans(num_clusters, n_init=1, random_state=0).fit(unit[sample]).predict(unit)
    order = np.argsort(-np.bincount(codes, minlength=num_clusters), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(num_clusters)
    names = tuple(f"cluster {number + 1}" for number in range(num_clusters))
    return Column("cluster", place[codes].astype(np.int32), names)


def text_column(title: str, texts: Array) -> Column:
    """Numbers where all cells are numbers, else the `MAX_CATEGORIES` most frequent texts; others are none."""
    numbers = _as_numbers(texts)
    if numbers is not None:
        return Column(title, numbers)
    names, codes, counts = np.unique(texts, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    order = order[names[order] != ""][:MAX_CATEGORIES]
    place = np.full(len(names), -1, dtype=np.int32)
    place[order] = np.arange(len(order))
    return Column(title, place[codes.reshape(-1)], tuple(names[order].tolist()))


def _as_numbers(texts: Array) -> Array | None:
    """float32, NaN for an empty cell; None where cells are no numbers, or would not be shown as they are: telephone
    numbers, keys and times have leading zeros, or more digits than float32."""
    filled = texts[texts != ""]
    if not len(filled) or any(_LEADING_ZERO.match(text) for text in filled.tolist()):
        return None
    try:
        wanted = np.where(texts == "", "nan", texts).astype(np.float64)
    except ValueError:
        return None
    size = np.abs(wanted[texts != ""])
    if not bool((size <= np.finfo(np.float32).max).all()):  # nor is a cell that says nan
        return None
    numbers = wanted.astype(np.float32)
    is_kept = (numbers[texts != ""] == wanted[texts != ""]) | (size < _WHOLE_BELOW)
    return numbers if bool(is_kept.all()) else None


def traits(graph: Graph) -> Array | None:
    """(N, NUM_TRAITS) int32: the columns that a node has, the rarest first, -1 for no more; None where features are
    dense, or have no names."""
    block = graph.features[0]
    if len(graph.features) != 1 or not isinstance(block, SparseMatrix) or graph.feature_names is None:
        return None
    counts = torch.bincount(block.indices, minlength=block.num_columns)
    rarity = counts[block.indices.long()]
    order = np.lexsort((block.indices.numpy(), rarity.numpy(), block.rows.numpy()))
    indptr = block.indptr.numpy()
    found = np.full((graph.num_nodes, NUM_TRAITS), -1, dtype=np.int32)
    rank = np.arange(len(order)) - np.repeat(indptr[:-1], np.diff(indptr))
    kept = rank < NUM_TRAITS
    found[block.rows.numpy()[kept], rank[kept]] = block.indices.numpy()[order][kept]
    return found


class Packer:
    """Typed arrays in a page: one compressed block of bytes as base64, and a list that says where each array is.

        array  ->  its first bytes, its second bytes, ... (numbers of like size compress well so)  ->  zlib  ->  base64

    `data.js` does the reverse.
    """

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, name: str, array: Array) -> None:
        """An array of uint8, uint16, int32 or float32."""
        assert array.dtype.name in {"uint8", "uint16", "int32", "float32"}, array.dtype
        little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        planes = little.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T
        self._append(name, array.dtype.name, np.ascontiguousarray(planes).tobytes())

    def add_json(self, name: str, value: Any) -> None:
        self._append(name, "json", json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())

    def block(self) -> str:
        """Everything as text that may stand in HTML."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), 6)).decode()

    def _append(self, name: str, kind: str, data: bytes) -> None:
        assert name not in self.entries
        self.entries[name] = {"kind": kind, "start": self._size, "size": len(data)}
        self._parts.append(data)
        self._size += len(data)


def quantise(values: Array) -> Array:
    """(N, 2) positions as uint16, both axes by the same scale, centred in the square."""
    low, high = values.min(0), values.max(0)
    extent = max(float((high - low).max()), 1e-12)
    centred = (values - (low + high) / 2) / extent + 0.5
    whole: Array = np.clip(np.rint(centred * 65_535), 0, 65_535).astype(np.uint16)
    return whole


def shorten_floats(values: Array) -> Array:
    """float32 rounded to 16 bits of precision (about 5 digits), which saves a quarter; whole numbers stay exact."""
    values = values.astype(np.float32)
    if bool((np.isnan(values) | (values == np.rint(values))).all()):
        return values
    bits = values.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x80) & 0xFFFFFF00).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)
