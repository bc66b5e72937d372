"""A folder of arrays by node type and relation to the arrays of a store, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io._arrays import Array
from graphstrap.io._building import StoreBuilder
from graphstrap.io._make_store import Parts, PrepareOptions
from graphstrap.io._write_edges import NUMBERED, EdgeJob, Report, write_edges
from graphstrap.io._write_nodes import NodePart

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NO_TIME = np.iinfo(np.int64).min
_STEP = 1 << 20
_MOST = 10**6  # classes, and nodes without an edge


@dataclass
class Folder:
    """What a layout holds: node types with their sizes, relations, and arrays by node type."""

    name: str
    sizes: dict[str, int]
    edges: list[tuple[tuple[str, str, str], Array]]  # ((source, relation, target), (2, E) or (E, 2))
    features: dict[str, Array] = field(default_factory=dict)
    labels: dict[str, Array] = field(default_factory=dict)  # any number type; NaN or below 0 for none
    years: dict[str, Array] = field(default_factory=dict)
    splits: dict[str, dict[str, Array]] = field(default_factory=dict)  # node numbers of train, valid, test
    splits_by_year: bool = False


def write_folder(
    found: Folder,
    builder: StoreBuilder,
    connection: DuckDBPyConnection,
    *,
    directed: bool,
    job: PrepareOptions,
    report: Report,
) -> Parts:
    """Labels, splits, years and in-edges to the store; features stay where they are until all is known of them."""
    offsets = (0, *np.cumsum(list(found.sizes.values())).tolist())
    starts = dict(zip(found.sizes, offsets, strict=False))
    for kind, x in found.features.items():
        if len(x) != found.sizes[kind] or x.ndim != 2:
            raise InputError(f"{found.name}: features of {kind} have shape {x.shape} for {found.sizes[kind]} nodes")
    _check_sizes(found)
    part = NodePart(node_types=tuple(found.sizes), type_offsets=offsets)
    part.raw_blocks = [found.features.get(kind) for kind in found.sizes]
    _write_labels(found, builder, part)
    if found.years:
        with builder.array("node_times", dtype="<i8") as writer:
            for kind, size in found.sizes.items():
                for values in _column(found.years.get(kind), size, kind, filling=NO_TIME):
                    writer.append(values)
    connection.execute(NUMBERED)
    names, done = [], 0
    for number, ((source, relation, target), pairs) in enumerate(found.edges):
        sizes = found.sizes[source], found.sizes[target]
        for ends in _pairs(pairs, sizes, f"{source}___{relation}___{target}"):
            edges = {"source": ends[0] + starts[source], "target": ends[1] + starts[target]}
            rows = f"SELECT {done} + row_number() OVER () - 1, source, target, {number}"
            connection.register("edges_of_relation", edges)
            connection.execute(f"INSERT INTO numbered {rows} FROM edges_of_relation")
            connection.unregister("edges_of_relation")
            done += len(ends[0])
        names.append(relation)
        report("reading edges", (number + 1) / len(found.edges))
    if len(set(names)) < len(names):
        names = [f"{source}_{relation}_{target}" for (source, relation, target), _ in found.edges]
    type_names = tuple(names) if len(names) > 1 else ()
    edge_job = EdgeJob(offsets[-1], type_names, directed, job.max_edges)
    cleaning, all_names = write_edges(connection, builder, edge_job, report)
    return Parts(part, cleaning, all_names, name=found.name)


def _check_sizes(found: Folder) -> None:
    """A damaged id names a node far beyond the others: refused, before a row is made for each node up to it."""
    for kind, size in found.sizes.items():
        ends = [pairs.size for (source, _, target), pairs in found.edges if kind in (source, target)]
        if kind not in found.features and size > _MOST + 100 * sum(ends):
            raise InputError(
                f"{found.name}: {size:,} nodes of type {kind} for {sum(ends):,} ends of edges: is an id wrong?"
            )


def _write_labels(found: Folder, builder: StoreBuilder, part: NodePart) -> None:
    if not found.labels:
        return
    largest = -1
    with builder.array("labels", dtype="<i8") as writer:
        for kind, size in found.sizes.items():
            for values in _column(found.labels.get(kind), size, kind, filling=-1):
                writer.append(values)
                largest = max(largest, int(values.max(initial=-1)))
    if largest >= _MOST:
        raise InputError(f"{found.name}: a label is {largest}, expected classes from 0 up to {_MOST:,} at most")
    part.class_names = tuple(map(str, range(largest + 1)))
    if not found.splits and not found.splits_by_year:
        return
    labels, years = builder.read("labels"), found.years
    starts = dict(zip(found.sizes, part.type_offsets, strict=False))
    masks = {name: np.zeros((len(labels), 1), dtype=bool) for name in ("train", "valid", "test")}
    for kind, parts in found.splits.items():
        for name, numbers in parts.items():
            masks[name][starts[kind] + numbers] = True
    if found.splits_by_year:
        kind = next(iter(years))
        begin = starts[kind]
        for when in _column(years[kind], found.sizes[kind], kind, filling=NO_TIME):
            part_of = slice(begin, begin + len(when))
            for name, chosen in (("train", when < 2019), ("valid", when == 2019), ("test", when > 2019)):
                masks[name][part_of, 0] = (labels[part_of] >= 0) & chosen
            begin += len(when)
    for name, stored in (("train", "train"), ("valid", "val"), ("test", "test")):
        builder.write(stored, masks[name])


def _column(values: Array | None, size: int, kind: str, *, filling: int) -> Iterator[Array]:
    """One int64 for each node of a type, in parts; the filling where there is none."""
    flat = None if values is None else values.reshape(-1)
    if flat is not None and len(flat) != size:
        raise InputError(f"{kind} has {size} nodes but {len(flat)} labels or years")
    for begin, end in pairwise([*range(0, size, _STEP), size] if size else []):
        if flat is None:
            yield np.full(end - begin, filling, dtype=np.int64)
            continue
        chunk = np.asarray(flat[begin:end])
        chunk = chunk.astype(np.float64) if chunk.dtype.kind == "f" else chunk  # 2^53 is too large for float16
        if chunk.dtype.kind not in "iuf" or (chunk.dtype.kind == "f" and (np.abs(chunk) >= 2.0**53).any()):
            raise InputError(f"labels or years of {kind} are no whole numbers")
        missing = np.isnan(chunk) if chunk.dtype.kind == "f" else chunk < 0
        yield np.where(missing, filling, np.where(missing, 0, chunk).astype(np.int64))


def _pairs(pairs: Array, sizes: tuple[int, int], name: str) -> Iterator[tuple[Array, Array]]:
    """Both ends of edges, in parts, each within its type."""
    if pairs.ndim != 2 or 2 not in pairs.shape or pairs.dtype.kind not in "iu":
        raise InputError(f"edges of {name} have shape {pairs.shape}: expected two rows or two columns of integers")
    by_rows = pairs.shape[0] == 2
    count = pairs.shape[1] if by_rows else pairs.shape[0]
    for begin in range(0, count, _STEP):
        part = slice(begin, min(count, begin + _STEP))
        ends = np.asarray(pairs[:, part] if by_rows else pairs[part].T).astype(np.int64)
        for end, size in zip(ends, sizes, strict=True):
            if len(end) and (end.min() < 0 or end.max() >= size):
                raise InputError(f"an edge of {name} names node {end.min() if end.min() < 0 else end.max()} of {size}")
        yield ends[0], ends[1]
