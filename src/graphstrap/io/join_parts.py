"""All parts of a graph together: whether they are whole, and the graph that they make, in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import Block, QuantisedMatrix, SparseMatrix, row_positions, row_starts
from graphstrap.io.arrays import checksum
from graphstrap.io.files import room_for_files
from graphstrap.io.parts import Part, PartsInfo, open_part, read_part_info, read_parts_info
from graphstrap.io.store import check_range, check_rows, check_sorted, check_values
from graphstrap.io.store_info import StoreInfo


def verify_parts(
    path: str | os.PathLike[str], *, progress: Callable[[int, int], None] = lambda done, total: None
) -> PartsInfo:
    """Read all parts through: every checksum must be right, every number in its range, every node in one part."""
    found = read_parts_info(path)
    infos = [found.info, *(read_part_info(found, number) for number in range(found.num_parts))]
    total, done = sum(array.num_bytes for info in infos for array in info.arrays.values()), 0
    for info in infos:
        done = _check_sums(info, done, lambda done: progress(done, total))
    try:
        with _room_for(found, infos):
            _check_structure([open_part(path, number) for number in range(found.num_parts)])
    except (ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the parts in {path} do not hold a graph: {error}: copy or prepare them again") from error
    return found


def join_parts(path: str | os.PathLike[str]) -> Graph:
    """The whole graph, put together in memory, after its parts were read through."""
    found = read_parts_info(path)
    infos = [read_part_info(found, number) for number in range(found.num_parts)]
    _check_memory(found, infos)
    verify_parts(path)
    with _room_for(found, infos):
        return _joined([open_part(path, number) for number in range(found.num_parts)])


def _joined(parts: list[Part]) -> Graph:
    rows = [part.own for part in parts]
    order = torch.argsort(torch.cat([_nodes(part) for part in parts]))
    degrees = torch.cat([own.in_degrees for own in rows])
    edges = row_positions(row_starts(degrees), order)

    def of_nodes(get: Callable[[Graph], Tensor | None]) -> Tensor | None:
        columns = [column for column in map(get, rows) if column is not None]
        return torch.cat(columns).index_select(0, order) if columns else None

    def of_edges(name: str) -> Tensor | None:
        columns = [getattr(own, name) for own in rows]
        return None if columns[0] is None else torch.cat(columns).index_select(0, edges)

    indices = of_edges("indices")
    assert indices is not None
    graph = Graph(
        indptr=row_starts(degrees.index_select(0, order)),
        indices=indices,
        features=tuple(_joined_block(rows, t) for t in range(len(rows[0].features))),
        type_offsets=parts[0].type_offsets,
        node_types=parts[0].node_types,
        labels=of_nodes(lambda own: own.labels),
        class_names=parts[0].class_names,
        splits=_joined_splits(rows, order),
        node_times=of_nodes(lambda own: own.node_times),
        edge_types=of_edges("edge_types"),
        edge_type_names=parts[0].edge_type_names,
        edge_weights=of_edges("edge_weights"),
        edge_times=of_edges("edge_times"),
        edge_columns=of_edges("edge_columns"),
        edge_column_names=parts[0].edge_column_names,
        ids=_joined_ids(rows, order),
        feature_names=parts[0].feature_names,
        cleaning=parts[0].cleaning,
        name=parts[0].name,
    )
    object.__setattr__(graph, "fingerprint", parts[0].fingerprint)
    return graph


def _room_for(found: PartsInfo, infos: list[StoreInfo]) -> AbstractContextManager[None]:
    """Every part maps its own arrays, and those of the whole."""
    number = sum(len(info.arrays) for info in infos) + found.num_parts * len(found.info.arrays)
    return room_for_files(number, what=f"a graph in {found.num_parts} parts, all of them together,")


def _check_memory(found: PartsInfo, infos: list[StoreInfo]) -> None:
    """Refuse what this machine could not hold: all arrays, and once more while they are put in order."""
    needed = 2 * sum(array.num_bytes for info in infos for array in info.arrays.values())
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not said on every system
        return
    if needed > memory:
        raise InputError(
            f"{found.info.folder} is put together in memory, and takes {needed / 1e9:.0f} GB of it: take the whole "
            f"store, or --workers {found.num_parts} where a verb has it"
        )


def _check_sums(info: StoreInfo, done: int, progress: Callable[[int], None]) -> int:
    for name, array in info.arrays.items():
        if checksum(info.folder, name, array) != array.sha256:
            info.refuse(f"is damaged: {name}.npy does not have its checksum: copy or prepare it again")
        done += array.num_bytes
        progress(done)
    return done


def _check_structure(parts: list[Part]) -> None:
    """Raise a ValueError that says what is wrong."""
    num_nodes, num_edges = parts[0].num_nodes, parts[0].num_edges
    degrees = torch.zeros(num_nodes, dtype=torch.int64)
    if sum(part.own.num_edges for part in parts) != num_edges:
        raise ValueError(f"parts do not have {num_edges} edges together")
    check_range("part_of", parts[0].part_of, len(parts))
    check_range("hot nodes", parts[0].hot, num_nodes)
    check_values(parts[0])
    for part in parts:
        own, nodes = part.own, _nodes(part)
        if not torch.equal(nodes, (part.part_of == part.number).nonzero().squeeze(1)):
            raise ValueError(f"part {part.number} does not have the nodes that part_of says")
        inner = torch.tensor(part.type_offsets)
        if torch.searchsorted(nodes, inner).tolist() != list(own.type_offsets):
            raise ValueError(f"part {part.number} does not have the node types of the whole")
        check_rows("indptr", own.indptr, own.num_edges)
        check_range("sources of edges", own.indices, num_nodes)
        check_sorted("sources of edges", own.indptr, own.indices)
        check_values(own)
        if own.edge_types is not None:
            check_range("edge types", own.edge_types, part.num_relations)
        degrees[nodes] = own.in_degrees
    indptr = row_starts(degrees)
    for part in parts:
        if not torch.equal(part.first_edges, indptr.index_select(0, _nodes(part))):
            raise ValueError(f"part {part.number} does not say where the edges of its nodes stand in the whole")
    if parts[0].time_codes is not None:
        _check_times(parts)


def _check_times(parts: list[Part]) -> None:
    codes = torch.zeros(parts[0].num_nodes, dtype=torch.int64)
    for part in parts:
        assert part.time_codes is not None
        codes[_nodes(part)] = part.time_codes.long()
    for part in parts:
        assert part.source_time_codes is not None
        if not torch.equal(part.source_time_codes.long(), codes.index_select(0, part.own.indices.long())):
            raise ValueError(f"part {part.number} has other times for the sources of its edges than their parts")


def _nodes(part: Part) -> Tensor:
    assert part.own.node_ids is not None
    return part.own.node_ids


def _joined_splits(rows: list[Graph], order: Tensor) -> Splits | None:
    found = [own.splits for own in rows if own.splits is not None]
    if not found:
        return None
    masks = [[getattr(one, name) for one in found] for name in ("train", "val", "test")]
    return Splits(*(torch.cat(parts).index_select(0, order) for parts in masks))


def _joined_ids(rows: list[Graph], order: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None:
    found = [own.ids for own in rows if own.ids is not None]
    return np.concatenate(found)[order.numpy()] if found else None


def _joined_block(rows: list[Graph], number: int) -> Block | None:
    """The features of one node type, from all parts, in the order of the nodes."""
    blocks = [own.features[number] for own in rows]
    spans = [list(pairwise(own.type_offsets))[number] for own in rows]
    nodes = torch.cat([own.node_ids[a:b] for own, (a, b) in zip(rows, spans, strict=True) if own.node_ids is not None])
    order = torch.argsort(nodes)
    first = blocks[0]
    if isinstance(first, SparseMatrix):
        sparse = [block for block in blocks if isinstance(block, SparseMatrix)]
        starts = list(accumulate((len(block.values) for block in sparse), initial=0))
        ends = [block.indptr[1:] + start for block, start in zip(sparse, starts, strict=False)]
        indices, values = torch.cat([b.indices for b in sparse]), torch.cat([b.values for b in sparse])
        stacked = SparseMatrix(torch.cat([first.indptr[:1], *ends]), indices, values, first.num_columns)
        return stacked.select_rows(order)
    if isinstance(first, QuantisedMatrix):
        codes = torch.cat([block.codes for block in blocks if isinstance(block, QuantisedMatrix)])
        return QuantisedMatrix(codes.index_select(0, order), first.scale, first.offset)
    return torch.cat([block for block in blocks if isinstance(block, Tensor)]).index_select(0, order)
