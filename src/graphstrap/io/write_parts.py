"""Writing a graph in parts, chunk by chunk: the graph may be a store that is larger than memory.

Every part is one look through what it takes from the graph. Where a part's nodes are spread over the whole store (at
random, at worst), each look touches most of its pages: sixty-four parts read it up to sixty-four times, from the page
cache where it fits.
"""

from __future__ import annotations

import os
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
    row_positions,
    row_starts,
    sample_rows,
)
from graphstrap.io.arrays import dtype_name
from graphstrap.io.partition import row_chunks
from graphstrap.io.parts import PART_FILE, PART_FORMAT, PARTS_FILE, PARTS_FORMAT, digest_of, part_name
from graphstrap.io.store_format import Report, StoreBuilder, build_store, describe, edge_columns

NUM_HOT = 1 << 20  # how many of the busiest nodes are named
_BYTES_AT_ONCE = 1 << 26


def write_parts(
    graph: Graph,
    part_of: Tensor,
    path: str | os.PathLike[str],
    *,
    cut: dict[str, Any],
    num_relations: int,
    training_labels: Tensor | None,
    times: Tensor | None,
    overwrite: bool = False,
    report: Report = lambda stage, fraction: None,
) -> None:
    """Write a graph in parts, in one move.

    Args:
        part_of: (N,) the part of each node, uint8 or int16; every part has at least one.
        cut: how it was cut, for `parts.json`.
        training_labels: (N,) the labels that may be learned from, -1 for none.
        times: (N,) int64 in the order of the nodes' times, its least number for a node without one; None for no times.
    """
    if any(block is None for block in graph.features):
        kind = graph.node_types[[block is None for block in graph.features].index(True)]
        raise InputError(
            f"a {kind} has no features, and making structural ones takes the whole graph: give the node table feature "
            "columns, or --derive-features, before it is partitioned"
        )
    if graph.num_graphs > 1:
        raise InputError(f"{graph.name!r} holds {graph.num_graphs} graphs: partition a store of one graph")
    codes = None if times is None else time_codes(times)
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
        if training_labels is not None:
            classes = torch.unique(training_labels[training_labels >= 0]).tolist()
        builder.finish(
            describe(graph, graph.features)
            | {
                "num_edges": graph.num_edges,
                "num_classes": graph.num_classes,
                "num_relations": num_relations,
                "training_classes": classes,
                "fingerprint": graph.fingerprint,
                "parts": digests,
                "cut": cut,
            }
        )


def time_codes(times: Tensor) -> Tensor:
    """(N,) the rank of each time among all, from 1 up; 0 for a node that has none."""
    none = torch.iinfo(torch.int64).min
    ranks: Tensor
    values, ranks = torch.unique(times, return_inverse=True)
    if len(values) and int(values[0]) != none:
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
