"""The data of the embedding map: where every node is, what is known of it, who is near it and who is linked to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import default_rng

from graphstrap.graph import Graph
from graphstrap.report.columns import Column, Traits
from graphstrap.report.nearest import Nearest
from graphstrap.report.packing import Packer, quantise, shorten_floats

Array = np.ndarray[Any, Any]

NUM_SHOWN = 10  # nearest nodes of each
MAX_EDGES = 1_000_000
MAX_NODES = 200_000


def choose_nodes(num_nodes: int, *, seed: int = 0, limit: int = MAX_NODES) -> Array:
    """All nodes, or a random choice of `limit`, ascending."""
    if num_nodes <= limit:
        return np.arange(num_nodes)
    return np.sort(default_rng(seed).permutation(num_nodes)[:limit])


def pack_map(
    graph: Graph,
    nodes: Array,
    *,
    layouts: dict[str, Array],
    columns: Sequence[Column],
    nearest: Nearest,
    traits: Traits | None = None,
) -> tuple[dict[str, Any], str]:
    """The header of the map, for JSON, and its block of arrays. `layouts` and `nearest` are of the chosen `nodes`;
    `columns` and `traits` of all."""
    packer = Packer()
    packer.add_json("ids", [str(one) for one in graph.external_ids[nodes].tolist()])
    for name, positions in layouts.items():
        packer.add(f"layout:{name}", quantise(positions))
    packer.add("nearest", nearest.nodes[:, :NUM_SHOWN].astype(np.int32))
    packer.add("similarities", _as_bytes(nearest.similarities[:, :NUM_SHOWN]))
    sources, targets, num_all = map_edges(graph, nodes)
    packer.add("edge_counts", np.bincount(sources, minlength=len(nodes)).astype(np.int32))
    packer.add("edge_targets", targets.astype(np.int32))
    described = [_pack_column(packer, index, column, nodes) for index, column in enumerate(columns)]
    if traits is not None:
        packer.add("traits", traits.columns[nodes].astype(np.int32))
        packer.add_json("trait_names", list(traits.names))
    header = {
        "num_nodes": len(nodes),
        "num_nearest": int(min(NUM_SHOWN, nearest.nodes.shape[1])),
        "directed": not graph.is_symmetric,
        "layouts": list(layouts),
        "columns": described,
        "traits": traits is not None,
        "notes": _notes(graph, nodes, len(targets), num_all, nearest),
        "arrays": packer.entries,
    }
    return header, packer.block()


def map_edges(graph: Graph, nodes: Array, *, limit: int = MAX_EDGES, seed: int = 0) -> tuple[Array, Array, int]:
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
    if num_all > limit:
        chosen = default_rng(seed).permutation(num_all)[:limit]
        sources, targets = sources[chosen], targets[chosen]
    order = np.lexsort((targets, sources))
    return sources[order], targets[order], num_all


def _pack_column(packer: Packer, index: int, column: Column, nodes: Array) -> dict[str, Any]:
    name = f"column:{index}"
    values = column.values[nodes]
    if column.names is None:
        packer.add(name, shorten_floats(values))
        return {"title": column.title, "kind": "number", "array": name}
    packer.add(name, values.astype(np.int32))
    packer.add_json(f"{name}:names", list(column.names))
    return {"title": column.title, "kind": "category", "array": name}


def _as_bytes(similarities: Array) -> Array:
    """[-1, 1] in 255 steps."""
    return np.clip(np.rint((similarities + 1) * 127.5), 0, 255).astype(np.uint8)


def _notes(graph: Graph, nodes: Array, num_edges: int, num_all: int, nearest: Nearest) -> list[str]:
    notes = []
    if len(nodes) < graph.num_nodes:
        notes.append(f"A random {len(nodes):,} of the {graph.num_nodes:,} nodes are on the map.")
    if num_edges < num_all:
        notes.append(f"A random {num_edges:,} of the {num_all:,} edges are kept in this file.")
    if not nearest.is_exact:
        notes.append(
            f"Nearest nodes were searched in the cells around a node, which finds {100 * nearest.recall:.1f} % of them."
        )
    return notes
