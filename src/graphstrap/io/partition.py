"""Cutting a graph into parts of about the same size, so that few edges join different parts; and writing them.

    metis       METIS by way of pymetis (extra `partition`): the fewest cut edges, in memory, about 80 bytes an edge
    streaming   LDG (Stanton and Kliot, KDD 2012), a chunk of nodes at a time, several times over all of them: 16 bytes
                a node, and a chunk of edges
    random      a hash of the node: what the other two are compared with

The size of a node is the bytes that its rows and features take, so parts are equal in what a host must hold. In LDG, a
node goes to the part where most of its neighbours are, as long as there is room:

    part(v)  =  argmax over p of   neighbours(v, p) * (1 - size(p) / room)      size < room = (1 + slack) * total / P

Nodes of a chunk choose at the same time, by the sizes of the chunk before; those that find no room go where there is
most. From the second time through, all neighbours have a part.

Every part is written by one look through what it takes from the graph, which may be a store that is larger than memory.
Where a part's nodes are spread over the whole store (at random, at worst), each look touches most of its pages:
sixty-four parts read it up to sixty-four times, from the page cache where it fits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import (
    Block,
    QuantisedMatrix,
    ScaledMatrix,
    SparseMatrix,
    block_tensors,
    row_positions,
    row_starts,
    sample_rows,
)
from graphstrap.graph.graph import ALWAYS, EDGE_FIELDS
from graphstrap.graph.views import hash32
from graphstrap.io.arrays import dtype_name
from graphstrap.io.parts import MAX_PARTS, PART_FILE, PART_FORMAT, PARTS_FILE, PARTS_FORMAT, digest_of, part_name
from graphstrap.io.store_format import Report, StoreBuilder, build_store, describe, edge_columns

PARTITIONERS = ("auto", "metis", "streaming", "random")
MOST_METIS_EDGES = 1 << 28  # beyond, memory is the limit: the streaming partitioner takes over
_BYTES_A_ROW = 3 * 8  # indptr, first_edges, nodes
SLACK = 0.05  # how much larger than the mean a part may be
NUM_PASSES = 5
_EDGES_AT_ONCE = 1 << 22
NUM_HOT = 1 << 20  # how many of the busiest nodes are named
_BYTES_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class Cut:
    """How a graph was cut. Shares of all directed edges, and of the mean part."""

    partitioner: str
    num_parts: int
    edge_cut: float  # the share of edges that join different parts
    node_balance: float  # the largest part's nodes over the mean
    byte_balance: float  # likewise of the bytes that it holds

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.num_parts} parts ({self.partitioner}): {100 * self.edge_cut:.1f} % of the edges join different "
            f"parts; the largest part has {self.node_balance:.2f} times the mean's nodes and {self.byte_balance:.2f} "
            "times its bytes"
        )


def partition_graph(
    graph: Graph,
    to: str | os.PathLike[str],
    num_parts: int,
    *,
    how: str = "auto",
    overwrite: bool = False,
    report: Report = lambda stage, fraction: None,
) -> Cut:
    """Cut a graph, which may be a store larger than memory, and write its parts."""
    part_of, cut = partition(graph, num_parts, how=how, report=report)
    write_parts(graph, part_of, to, cut=cut.to_dict(), overwrite=overwrite, report=report)
    return cut


def partition(
    graph: Graph, num_parts: int, *, how: str = "auto", seed: int = 0, report: Report = lambda stage, fraction: None
) -> tuple[Tensor, Cut]:
    """(N,) the part of each node, as uint8 (int16 from 257 parts on), and how good it is."""
    most = min(MAX_PARTS, graph.num_nodes)
    if not 2 <= num_parts <= most:
        raise InputError(f"--partitions must be from 2 to {most}, for {graph.num_nodes:,} nodes: got {num_parts}")
    how = choose_partitioner(how, graph)
    weights = node_bytes(graph)
    if how == "metis":
        report("partitioning", 0.0)
        part_of = _metis(graph, weights, num_parts, seed=seed)
    elif how == "streaming":
        part_of = _streaming(graph, weights, num_parts, seed=seed, report=report)
    else:
        part_of = hash32(torch.arange(graph.num_nodes), seed) % num_parts
    part_of = _without_empty(part_of, num_parts)
    part_of = part_of.to(torch.uint8 if num_parts <= 256 else torch.int16)
    return part_of, measure_cut(graph, part_of, num_parts, weights=weights, how=how)


def choose_partitioner(how: str, graph: Graph) -> str:
    if how not in PARTITIONERS:
        raise InputError(f"--partitioner must be one of {', '.join(PARTITIONERS)}, got {how!r}")
    has_metis = find_spec("pymetis") is not None
    if how == "metis" and not has_metis:
        raise InputError("METIS is not installed: pip install 'graphstrap[partition]', or take --partitioner streaming")
    if how == "auto":
        return "metis" if has_metis and graph.num_edges <= MOST_METIS_EDGES else "streaming"
    return how


def node_bytes(graph: Graph) -> Tensor:
    """(N,) what each node takes in its part, its edges included."""
    columns = graph.columns(("indices", *EDGE_FIELDS)).values()
    bytes_an_edge = sum(column.nbytes for column in columns) // max(1, graph.num_edges)
    total: Tensor = _BYTES_A_ROW + graph.in_degrees * max(1, bytes_an_edge)
    for t, block in enumerate(graph.features):
        rows = slice(graph.type_offsets[t], graph.type_offsets[t + 1])
        if isinstance(block, SparseMatrix):
            total[rows] += 8 * block.indptr.diff()
        elif block is not None:
            tensors = [block.codes] if isinstance(block, QuantisedMatrix) else block_tensors(block)
            total[rows] += sum(tensor.shape[1] * tensor.element_size() for tensor in tensors)
    return total


def measure_cut(graph: Graph, part_of: Tensor, num_parts: int, *, weights: Tensor, how: str) -> Cut:
    owners, num_cut = part_of.to(torch.int32), 0
    for first, last in row_chunks(graph.indptr):
        sources = graph.indices[int(graph.indptr[first]) : int(graph.indptr[last])].long()
        targets = torch.repeat_interleave(owners[first:last], graph.indptr[first : last + 1].diff())
        num_cut += int((owners.index_select(0, sources) != targets).sum())
    nodes = torch.bincount(owners, minlength=num_parts).double()
    sizes = torch.zeros(num_parts, dtype=torch.int64).index_add_(0, owners, weights).double()
    return Cut(
        how,
        num_parts,
        edge_cut=num_cut / max(1, graph.num_edges),
        node_balance=float(nodes.max() / nodes.mean()),
        byte_balance=float(sizes.max() / sizes.mean()),
    )


def _metis(graph: Graph, weights: Tensor, num_parts: int, *, seed: int) -> Tensor:
    import pymetis

    indptr, indices = graph.indptr, graph.indices
    if not graph.is_symmetric:  # METIS cuts undirected graphs: add what comes from the other side
        both = Graph.from_edges(indices.long(), graph.targets, num_nodes=graph.num_nodes)
        indptr, indices = both.indptr, both.indices
    unit = max(1, min(1000, 2**30 // graph.num_nodes))  # of the mean; METIS adds them up in 32 bits
    scaled = (weights.double() * unit / weights.double().mean()).long().clamp(min=1)
    found = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(indptr.numpy(), indices.numpy()),
        vweights=scaled.numpy(),
        options=pymetis.Options(seed=seed, ufactor=int(1000 * SLACK)),
    )
    return torch.as_tensor(found.vertex_part, dtype=torch.int64)


def _without_empty(part_of: Tensor, num_parts: int) -> Tensor:
    """Every part gets a node: an empty one takes one of the largest's."""
    counts = torch.bincount(part_of, minlength=num_parts)
    for empty in (counts == 0).nonzero().squeeze(1).tolist():
        largest = int(counts.argmax())
        part_of[(part_of == largest).nonzero()[0]] = empty
        counts[largest] -= 1
        counts[empty] += 1
    return part_of


def _streaming(graph: Graph, weights: Tensor, num_parts: int, *, seed: int, report: Report) -> Tensor:
    """(N,) the part of each node; `weights` are the nodes' sizes."""
    part_of = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
    room = (1 + SLACK) * float(weights.double().sum()) / num_parts
    sizes = torch.zeros(num_parts, dtype=torch.float64)
    rows = max(64, -(-graph.num_nodes // 512))
    for number in range(NUM_PASSES):
        for first, last in row_chunks(graph.indptr, rows):
            report("partitioning", (number + first / graph.num_nodes) / NUM_PASSES)
            size = weights[first:last].double()
            if number:  # its nodes choose anew
                sizes.index_add_(0, part_of[first:last], -size)
            counts = _neighbours(graph, part_of, first, last, num_parts)
            chosen = _choose(counts, size, sizes, room, seed=seed, first=first)
            part_of[first:last] = chosen
            sizes.index_add_(0, chosen, size)
    return part_of


def _neighbours(graph: Graph, part_of: Tensor, first: int, last: int, num_parts: int) -> Tensor:
    """(rows, P) how many neighbours of each node, along edges of either direction, every part has."""
    counts = torch.zeros((last - first) * num_parts, dtype=torch.int64)
    directions = [(graph.indptr, graph.indices)]
    if graph.outgoing is not None and not graph.is_symmetric:
        directions.append((graph.outgoing.indptr, graph.outgoing.indices))
    for indptr, indices in directions:
        ends = part_of.index_select(0, indices[int(indptr[first]) : int(indptr[last])].long())
        rows = torch.repeat_interleave(torch.arange(last - first), indptr[first : last + 1].diff())
        known = ends >= 0
        counts += torch.bincount((rows * num_parts + ends)[known], minlength=len(counts))
    return counts.view(last - first, num_parts)


def _choose(counts: Tensor, size: Tensor, sizes: Tensor, room: float, *, seed: int, first: int) -> Tensor:
    """LDG's choice for nodes that choose at the same time, and another for those whose part overflows."""
    num_rows, num_parts = counts.shape
    free = (1 - sizes / room).clamp(min=0)
    ties = hash32(torch.arange(first * num_parts, (first + num_rows) * num_parts), seed).view(num_rows, num_parts)
    scores = counts * free + (1e-3 * free + 1e-9) * (1 + ties / 2.0**32)  # no neighbour: where there is room
    chosen: Tensor
    best, chosen = scores.max(1)
    order = torch.argsort(best, descending=True)
    order = order[torch.sort(chosen[order], stable=True).indices]  # by part, the surest first
    taken = size[order].cumsum(0)
    begins = torch.bincount(chosen, weights=size, minlength=num_parts).cumsum(0)
    before = torch.cat([begins.new_zeros(1), begins[:-1]])
    over = order[(taken - before[chosen[order]]) > (room - sizes).clamp(min=0)[chosen[order]]]
    if len(over):
        left = sizes + torch.bincount(chosen, weights=size, minlength=num_parts)
        left.index_add_(0, chosen[over], -size[over])
        chosen[over] = _fill(left, size[over], room)
    return chosen


def _fill(sizes: Tensor, size: Tensor, room: float) -> Tensor:
    """Parts for nodes that go wherever room is: each part in turn, in proportion to what it has left."""
    left = (room - sizes).clamp(min=0)
    ends = left.cumsum(0) / left.sum().clamp(min=1e-9)
    middle = (size.cumsum(0) - size / 2) / size.sum()
    return torch.searchsorted(ends, middle).clamp(max=len(sizes) - 1)


def row_chunks(indptr: Tensor, most_rows: int | None = None) -> Iterator[tuple[int, int]]:
    """First and last row of successive chunks with a bounded number of edges, and of rows; at least one row each."""
    first, num_rows = 0, len(indptr) - 1
    while first < num_rows:
        wanted = indptr[first] + _EDGES_AT_ONCE
        by_edges = max(first + 1, int(torch.searchsorted(indptr, wanted, right=True)) - 1)
        last = min(num_rows, first + (most_rows or num_rows), by_edges)
        yield first, last
        first = last


# ---- writing parts ---------------------------------------------------------------------------------------------------


def write_parts(
    graph: Graph,
    part_of: Tensor,
    path: str | os.PathLike[str],
    *,
    cut: dict[str, Any],
    overwrite: bool = False,
    report: Report = lambda stage, fraction: None,
) -> None:
    """Write a graph in parts, in one move.

    Args:
        part_of: (N,) the part of each node, uint8 or int16; every part has at least one.
        cut: how it was cut, for `parts.json`.
    """
    if any(block is None for block in graph.features):
        kind = graph.node_types[[block is None for block in graph.features].index(True)]
        raise InputError(
            f"a {kind} has no features, and making structural ones takes the whole graph: give the node table feature "
            "columns, or --derive-features, before it is partitioned"
        )
    if graph.num_graphs > 1:
        raise InputError(f"{graph.name!r} holds {graph.num_graphs} graphs: partition a store of one graph")
    codes = None if graph.node_times is None else time_codes(graph.times_in_order)
    num_parts = int(part_of.max()) + 1
    with build_store(path, overwrite=overwrite, file_name=PARTS_FILE, kind=PARTS_FORMAT) as builder:
        digests = []
        for number in range(num_parts):
            report("writing parts", number / num_parts)
            nodes = (part_of == number).nonzero().squeeze(1)
            assert len(nodes), "every part has nodes"
            folder = builder.folder / part_name(number)
            folder.mkdir()
            part = StoreBuilder(folder, file_name=PART_FILE, kind=PART_FORMAT)
            with part.open_files:
                _write_part(part, graph, nodes, codes)
            digests.append(digest_of(folder))
        report("writing parts", 1.0)
        builder.write("part_of", part_of)
        busiest = torch.sort(graph.transpose.indptr.diff(), descending=True, stable=True).indices
        builder.write("hot", busiest[:NUM_HOT])
        for t, block in enumerate(graph.features):
            assert block is not None
            assert not isinstance(block, ScaledMatrix)
            builder.write_block(f"sample.{t}", sample_rows(block))
        classes = None
        if graph.labels is not None and graph.labels.dim() == 1:
            labels = graph.training_labels
            classes = torch.unique(labels[labels >= 0]).tolist()
        builder.finish(
            describe(graph, graph.features)
            | {
                "num_edges": graph.num_edges,
                "num_classes": graph.num_classes,
                "num_relations": graph.num_relations,
                "training_classes": classes,
                "fingerprint": graph.fingerprint,
                "parts": digests,
                "cut": cut,
            }
        )


def time_codes(times: Tensor) -> Tensor:
    """(N,) the rank of each time among all, from 1 up; 0 for a node that has none."""
    ranks: Tensor
    values, ranks = torch.unique(times, return_inverse=True)
    if len(values) and int(values[0]) != ALWAYS:
        ranks += 1
    for dtype in (torch.uint8, torch.int16):
        if len(values) < torch.iinfo(dtype).max:
            return ranks.to(dtype)
    return ranks.int()


def _write_part(builder: StoreBuilder, graph: Graph, nodes: Tensor, codes: Tensor | None) -> None:
    offsets = torch.searchsorted(nodes, torch.tensor(graph.type_offsets)).tolist()
    first_edges = graph.indptr.index_select(0, nodes)
    indptr = row_starts(graph.indptr.index_select(0, nodes + 1) - first_edges)
    builder.write("nodes", nodes)
    builder.write("indptr", indptr)
    builder.write("first_edges", first_edges)
    for name, (column, dtype) in edge_columns(graph).items():
        _write_entries(builder, name, column, dtype, graph.indptr, nodes, indptr)
    builder.write_nodes(graph, nodes)
    if codes is not None:
        builder.write("time_codes", codes.index_select(0, nodes))
        sources = builder.read("indices")
        with builder.array("source_time_codes", dtype=dtype_name(codes)) as writer:
            for first, last in row_chunks(indptr):
                some = torch.from_numpy(sources[int(indptr[first]) : int(indptr[last])].astype(np.int64))
                writer.append(codes.index_select(0, some))
    for t, block in enumerate(graph.features):
        assert block is not None
        rows = nodes[offsets[t] : offsets[t + 1]] - graph.type_offsets[t]
        _write_block(builder, f"features.{t}", block, rows)
    builder.finish({**describe(graph, graph.features), "type_offsets": offsets})


def _write_entries(
    builder: StoreBuilder, name: str, column: Tensor, dtype: str, starts: Tensor, rows: Tensor, indptr: Tensor
) -> None:
    """What the entries of these rows of a CSR matrix have, row after row; `indptr` is that of the rows alone."""
    with builder.array(name, dtype=dtype, columns=tuple(column.shape[1:])) as writer:
        for first, last in row_chunks(indptr):
            writer.append(column.index_select(0, row_positions(starts, rows[first:last])))


def _write_block(builder: StoreBuilder, name: str, block: Block, rows: Tensor) -> None:
    if isinstance(block, SparseMatrix):
        indptr = row_starts(block.indptr.index_select(0, rows + 1) - block.indptr.index_select(0, rows))
        builder.write(f"{name}.indptr", indptr)
        for member, column in (("indices", block.indices), ("values", block.values)):
            _write_entries(builder, f"{name}.{member}", column, dtype_name(column), block.indptr, rows, indptr)
        return
    if isinstance(block, QuantisedMatrix):
        builder.write(f"{name}.scale", block.scale)
        builder.write(f"{name}.offset", block.offset)
        block = block.codes
    assert isinstance(block, Tensor)
    step = max(1, _BYTES_AT_ONCE // max(1, block.shape[1] * block.element_size()))
    with builder.array(name, dtype=dtype_name(block), columns=(block.shape[1],)) as writer:
        for some in torch.split(rows, step):
            writer.append(block.index_select(0, some))
