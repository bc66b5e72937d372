"""Folders as the Open Graph Benchmark publishes them, to a store. Nothing in them is unpickled.

    MAG240M          processed/paper/node_feat.npy, node_label.npy, node_year.npy;
                     processed/<source>___<relation>___<target>/edge_index.npy
    ogbn-papers100M  raw/data.npz (edge_index, node_feat, node_year, num_nodes_list), raw/node-label.npz,
                     split/time/{train,valid,test}.csv.gz
    ogbn-mag         raw/num-node-dict.csv.gz, triplet-type-list.csv.gz, relations/<triplet>/edge.csv.gz,
                     node-feat/<type>/node-feat.csv.gz and node_year.csv.gz, node-label/<type>/node-label.csv.gz,
                     split/time/<type>/{train,valid,test}.csv.gz

MAG240M keeps its splits in a pickled file, which is not read: labelled papers up to 2018 are for training, those of
2019 for validation, later ones for testing. To name them all (the labels of test papers are hidden), save them beside
it: `np.savez("split_dict.npz", train=..., valid=..., test=...)`. Nodes without a year get the least integer.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.arrays import Archive, Array, file_as_map, member_as_map, open_array
from graphstrap.io.database import Table, TableCopy, open_table, quote_name
from graphstrap.io.files import check_readable
from graphstrap.io.prepare import Parts, PrepareOptions, make_store
from graphstrap.io.store_builder import StoreBuilder
from graphstrap.io.values import check_gaps, find_feature_kinds, read_columns
from graphstrap.io.write_edges import NUMBERED, EdgeJob, Report, write_edges
from graphstrap.io.write_nodes import NodePart

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


# A folder of arrays by node type and relation to the arrays of a store, a piece at a time.


NO_TIME = np.iinfo(np.int64).min
_ROWS_AT_ONCE = 1 << 20
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
    for begin, end in pairwise([*range(0, size, _ROWS_AT_ONCE), size] if size else []):
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
    for begin in range(0, count, _ROWS_AT_ONCE):
        part = slice(begin, min(count, begin + _ROWS_AT_ONCE))
        ends = np.asarray(pairs[:, part] if by_rows else pairs[part].T).astype(np.int64)
        for end, size in zip(ends, sizes, strict=True):
            if len(end) and (end.min() < 0 or end.max() >= size):
                raise InputError(f"an edge of {name} names node {end.min() if end.min() < 0 else end.max()} of {size}")
        yield ends[0], ends[1]


__all__ = ["NO_TIME", "prepare_ogb"]


_STEP = 1 << 20
_MAX_LIST = 1 << 16
_MAG240M = (("paper", "cites", "paper"), ("author", "writes", "paper"), ("author", "affiliated_with", "institution"))


def prepare_ogb(
    folder: str,
    to: str,
    *,
    directed: bool = False,
    job: PrepareOptions | None = None,
    report: Report = lambda stage, fraction: None,
) -> None:
    """Make a store of an unpacked folder; reverses of all edges are added unless `directed`."""
    job = job or PrepareOptions()

    def read(builder: StoreBuilder, connection: DuckDBPyConnection, job: PrepareOptions) -> Parts:
        report("reading folder", 0.0)
        found = _open(Path(folder), builder, connection, job)
        return write_folder(found, builder, connection, directed=directed, job=job, report=report)

    make_store(to, read, job=job, report=report)


def _open(folder: Path, builder: StoreBuilder, connection: DuckDBPyConnection, job: PrepareOptions) -> Folder:
    if (folder / "processed" / "paper" / "node_feat.npy").is_file():
        return _open_mag240m(folder)
    if (folder / "raw" / "data.npz").is_file():
        return _open_papers(folder, builder, connection)
    if (folder / "raw" / "triplet-type-list.csv.gz").is_file():
        return _Csv(folder, builder, connection, job).open()
    raise InputError(
        f"{folder} has the layout of neither MAG240M, ogbn-mag nor ogbn-papers100M: name the unpacked folder"
    )


def _open_mag240m(folder: Path) -> Folder:
    processed = folder / "processed"
    edges = [(triplet, file_as_map(processed / "___".join(triplet) / "edge_index.npy", rows=2)) for triplet in _MAG240M]
    x = file_as_map(processed / "paper" / "node_feat.npy")
    sizes = {"paper": len(x), "author": 0, "institution": 0}  # the numbers of the others stand in a pickled file
    for (source, _, target), pairs in edges:
        for kind, ends in ((source, pairs[0]), (target, pairs[1])):
            if kind != "paper":
                sizes[kind] = max(sizes[kind], _largest(ends) + 1)
    found = Folder("mag240m", sizes, edges, {"paper": x})
    found.labels["paper"] = file_as_map(processed / "paper" / "node_label.npy")
    found.years["paper"] = file_as_map(processed / "paper" / "node_year.npy")
    if (folder / "split_dict.npz").is_file():
        with Archive(folder / "split_dict.npz") as archive:
            found.splits["paper"] = {part: archive.indices(part, below=len(x)) for part in ("train", "valid", "test")}
    else:
        found.splits_by_year = True
    return found


def _open_papers(folder: Path, builder: StoreBuilder, connection: DuckDBPyConnection) -> Folder:
    data, scratch = folder / "raw" / "data.npz", builder.scratch
    pairs, x = member_as_map(data, "edge_index", scratch, rows=2), member_as_map(data, "node_feat", scratch)
    found = Folder("papers100m", {"node": len(x)}, [(("node", "edge", "node"), pairs)], {"node": x})
    found.years["node"] = member_as_map(data, "node_year", scratch)
    found.labels["node"] = member_as_map(folder / "raw" / "node-label.npz", "node_label", scratch)
    found.splits["node"] = _read_splits(folder / "split" / "time", connection, len(x))
    return found


@dataclass
class _Csv:
    """ogbn-mag: everything is a compressed CSV file without a header."""

    folder: Path
    builder: StoreBuilder
    connection: DuckDBPyConnection
    job: PrepareOptions
    num_copies: int = 0

    def open(self) -> Folder:
        raw, split = self.folder / "raw", self.folder / "split" / "time"
        table = open_table(self.connection, str(raw / "num-node-dict.csv.gz"))
        sizes = {}
        for name in table.columns:
            (numbers,) = _whole_numbers(table, [name])
            if len(numbers) != 1 or numbers[0] < 0:
                raise InputError(f"{table.name} has to say once how many nodes of type {name} there are")
            sizes[name] = int(numbers[0])
        found = Folder("mag", sizes, [])
        for triplet in _read_triplets(raw / "triplet-type-list.csv.gz", sizes):
            found.edges.append((triplet, self.matrix(raw / "relations" / "___".join(triplet) / "edge.csv.gz", "<i8")))
        for kind in sizes:
            for place, arrays, dtype in (
                (raw / "node-feat" / kind / "node-feat.csv.gz", found.features, "<f4"),
                (raw / "node-feat" / kind / "node_year.csv.gz", found.years, "<i8"),
                (raw / "node-label" / kind / "node-label.csv.gz", found.labels, "<i8"),
            ):
                if place.is_file():
                    arrays[kind] = self.matrix(place, dtype)
            if (split / kind).is_dir():
                found.splits[kind] = _read_splits(split / kind, self.connection, sizes[kind])
        return found

    def matrix(self, path: Path, dtype: str) -> Array:
        """A table of numbers as a scratch array, (rows, columns)."""
        self.num_copies += 1
        name = f"csv_{self.num_copies}"
        table = open_table(self.connection, str(path))
        copy = TableCopy.of(table, name, tuple(table.columns))
        width = len(table.columns)
        writer = self.builder.scratch_array(name, dtype=dtype, columns=(width,))
        kinds = find_feature_kinds(copy.whole, tuple(table.columns)) if dtype == "<f4" else {}
        for rows in copy.slices(max(1, self.job.free_bytes // 16 // (64 + 48 * width))):
            if kinds:
                columns, numbers = read_columns(rows, kinds), np.arange(rows.end - rows.begin)
                check_gaps(rows, [(column, numbers) for column in columns])
                parts = [column.take(rows, numbers) for column in columns]
                writer.append(np.concatenate(parts, axis=1))
            else:
                writer.append(np.stack(_whole_numbers(rows, table.columns), axis=1))
        self.connection.execute(f"DROP TABLE {name}")
        return open_array(self.builder.scratch, name, writer.close())


def _whole_numbers(table: Table, columns: Iterable[str]) -> list[Array]:
    """These columns as int64; a cell without a number is an error."""
    cells = table.fetch({name: f"CAST({quote_name(name)} AS BIGINT)" for name in columns})
    if any(np.ma.is_masked(column) for column in cells.values()):
        raise InputError(f"{table.name} has a cell without a number: copy it again")
    return [np.asarray(column) for column in cells.values()]


def _read_triplets(path: Path, sizes: dict[str, int]) -> list[tuple[str, str, str]]:
    """The relations, sorted: a short file without a header."""
    check_readable(path)
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [line.split(",") for line in file.read(_MAX_LIST).split()]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    for row in rows:
        if len(row) != 3 or row[0] not in sizes or row[2] not in sizes or not row[1].isidentifier():
            raise InputError(f"{path} names {','.join(row)!r}, which is no relation between {', '.join(sizes)}")
    return sorted((source, relation, target) for source, relation, target in rows)


def _read_splits(folder: Path, connection: DuckDBPyConnection, size: int) -> dict[str, Array]:
    parts = {}
    for name in ("train", "valid", "test"):
        table = open_table(connection, str(folder / f"{name}.csv.gz"))
        (numbers,) = _whole_numbers(table, list(table.columns)[:1])
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= size):
            raise InputError(f"{table.name} names a node beyond the {size} there are")
        parts[name] = numbers
    return parts


def _largest(values: Array) -> int:
    return max((int(values[begin : begin + _STEP].max()) for begin in range(0, len(values), _STEP)), default=-1)
