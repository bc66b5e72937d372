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
from pathlib import Path

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.arrays import Archive, Array, file_as_map, member_as_map
from graphstrap.io.database import Connection, Table, TableCopy, fetch_one, open_table, quote_name
from graphstrap.io.files import check_readable
from graphstrap.io.prepare import NUMBERED, Layout, PrepareOptions, make_store
from graphstrap.io.store_format import Report, StoreBuilder
from graphstrap.io.values import find_feature_kinds, read_matrix

NO_TIME = np.iinfo(np.int64).min
_ROWS_AT_ONCE = 1 << 20
_MOST_CLASSES = _MOST_NODES_WITHOUT_EDGES = 10**6
_LONGEST_LIST = 1 << 16  # bytes of a list of relations
_MAG240M = (("paper", "cites", "paper"), ("author", "writes", "paper"), ("author", "affiliated_with", "institution"))

Triplet = tuple[str, str, str]  # the node type of the sources, the relation, and the node type of the targets


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

    def read(builder: StoreBuilder, connection: Connection) -> Layout:
        report("reading folder", 0.0)
        found = _open(Path(folder), builder, connection, job)
        return _write(found, builder, connection, directed=directed, report=report)

    make_store(to, read, job=job, report=report)


@dataclass
class _Folder:
    """What a folder holds: node types with their sizes, relations, and arrays by node type."""

    name: str
    sizes: dict[str, int]
    edges: list[tuple[Triplet, Array]]  # (2, E) or (E, 2)
    features: dict[str, Array] = field(default_factory=dict)
    labels: dict[str, Array] = field(default_factory=dict)  # any number type; NaN or below 0 for none
    years: dict[str, Array] = field(default_factory=dict)
    splits: dict[str, dict[str, Array]] = field(default_factory=dict)  # node numbers of train, valid, test
    splits_by_year: bool = False

    @property
    def offsets(self) -> tuple[int, ...]:
        return (0, *np.cumsum(list(self.sizes.values())).tolist())

    @property
    def starts(self) -> dict[str, int]:
        """The first node of each type."""
        return dict(zip(self.sizes, self.offsets, strict=False))


# ---- reading the layouts ---------------------------------------------------------------------------------------------


def _open(folder: Path, builder: StoreBuilder, connection: Connection, job: PrepareOptions) -> _Folder:
    if (folder / "processed" / "paper" / "node_feat.npy").is_file():
        return _open_mag240m(folder)
    if (folder / "raw" / "data.npz").is_file():
        return _open_papers(folder, builder, connection)
    if (folder / "raw" / "triplet-type-list.csv.gz").is_file():
        return _open_mag(folder, builder, connection, job)
    raise InputError(
        f"{folder} has the layout of neither MAG240M, ogbn-mag nor ogbn-papers100M: name the unpacked folder"
    )


def _open_mag240m(folder: Path) -> _Folder:
    processed = folder / "processed"
    edges = [(triplet, file_as_map(processed / "___".join(triplet) / "edge_index.npy", rows=2)) for triplet in _MAG240M]
    x = file_as_map(processed / "paper" / "node_feat.npy")
    sizes = {"paper": len(x), "author": 0, "institution": 0}  # the numbers of the others stand in a pickled file
    for (source, _, target), pairs in edges:
        for kind, ends in ((source, pairs[0]), (target, pairs[1])):
            if kind != "paper" and len(ends):
                sizes[kind] = max(sizes[kind], int(ends.max()) + 1)
    found = _Folder("mag240m", sizes, edges, {"paper": x})
    found.labels["paper"] = file_as_map(processed / "paper" / "node_label.npy")
    found.years["paper"] = file_as_map(processed / "paper" / "node_year.npy")
    if (folder / "split_dict.npz").is_file():
        with Archive(folder / "split_dict.npz") as archive:
            found.splits["paper"] = {name: archive.indices(name, below=len(x)) for name in ("train", "valid", "test")}
    else:
        found.splits_by_year = True
    return found


def _open_papers(folder: Path, builder: StoreBuilder, connection: Connection) -> _Folder:
    data, scratch = folder / "raw" / "data.npz", builder.scratch
    pairs, x = member_as_map(data, "edge_index", scratch, rows=2), member_as_map(data, "node_feat", scratch)
    found = _Folder("papers100m", {"node": len(x)}, [(("node", "edge", "node"), pairs)], {"node": x})
    found.years["node"] = member_as_map(data, "node_year", scratch)
    found.labels["node"] = member_as_map(folder / "raw" / "node-label.npz", "node_label", scratch)
    found.splits["node"] = _read_splits(folder / "split" / "time", connection, len(x))
    return found


def _open_mag(folder: Path, builder: StoreBuilder, connection: Connection, job: PrepareOptions) -> _Folder:
    """ogbn-mag: everything is a compressed CSV file without a header."""
    raw, split = folder / "raw", folder / "split" / "time"
    table = open_table(connection, str(raw / "num-node-dict.csv.gz"))
    sizes = {}
    for name, numbers in zip(table.columns, _whole_numbers(table, table.columns), strict=True):
        if len(numbers) != 1 or numbers[0] < 0:
            raise InputError(f"{table.name} must hold one number of nodes for type {name}: copy it again")
        sizes[name] = int(numbers[0])
    found = _Folder("mag", sizes, [])
    for triplet in _read_triplets(raw / "triplet-type-list.csv.gz", sizes):
        path = raw / "relations" / "___".join(triplet) / "edge.csv.gz"
        found.edges.append((triplet, _read_matrix(path, "<i8", builder, connection, job)))
    for kind in sizes:
        for path, arrays, dtype in (
            (raw / "node-feat" / kind / "node-feat.csv.gz", found.features, "<f4"),
            (raw / "node-feat" / kind / "node_year.csv.gz", found.years, "<i8"),
            (raw / "node-label" / kind / "node-label.csv.gz", found.labels, "<i8"),
        ):
            if path.is_file():
                arrays[kind] = _read_matrix(path, dtype, builder, connection, job)
        if (split / kind).is_dir():
            found.splits[kind] = _read_splits(split / kind, connection, sizes[kind])
    return found


def _read_matrix(path: Path, dtype: str, builder: StoreBuilder, connection: Connection, job: PrepareOptions) -> Array:
    """A table of numbers as a scratch array, (rows, columns)."""
    table = open_table(connection, str(path))
    names = tuple(table.columns)
    copy = TableCopy.of(table, "matrix", names)
    (num_rows,) = fetch_one(connection, "SELECT count(*) FROM matrix")
    name = f"{path.parent.name}.{path.name}"
    kinds = find_feature_kinds(copy, names) if dtype == "<f4" else {}
    for rows, _, _ in copy.slices(max(1, job.chunk_bytes // (64 + 48 * len(names))), num_rows):
        numbers = (
            read_matrix(rows, kinds, are_features=True) if kinds else np.stack(_whole_numbers(rows, names), axis=1)
        )
        builder.append(name, numbers)
    connection.execute("DROP TABLE matrix")
    return builder.appended(name)


def _read_triplets(path: Path, sizes: dict[str, int]) -> list[Triplet]:
    """The relations, sorted: a short file without a header."""
    check_readable(path)
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [line.split(",") for line in file.read(_LONGEST_LIST).split()]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    for row in rows:
        if len(row) != 3 or row[0] not in sizes or row[2] not in sizes or not row[1].isidentifier():
            raise InputError(f"{path} names {','.join(row)!r}, which is no relation between {', '.join(sizes)}")
    return sorted((source, relation, target) for source, relation, target in rows)


def _read_splits(folder: Path, connection: Connection, size: int) -> dict[str, Array]:
    splits = {}
    for name in ("train", "valid", "test"):
        table = open_table(connection, str(folder / f"{name}.csv.gz"))
        (numbers,) = _whole_numbers(table, list(table.columns)[:1])
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= size):
            raise InputError(f"{table.name} names a node that is not from 0 to {size - 1}")
        splits[name] = numbers
    return splits


def _whole_numbers(table: Table, columns: Iterable[str]) -> list[Array]:
    """These columns as int64; a cell without a number is an error."""
    cells = table.fetch({name: f"CAST({quote_name(name)} AS BIGINT)" for name in columns})
    if any(np.ma.is_masked(column) for column in cells.values()):
        raise InputError(f"{table.name} has a cell without a number: copy it again")
    return [np.asarray(column) for column in cells.values()]


# ---- writing them ----------------------------------------------------------------------------------------------------


def _write(found: _Folder, builder: StoreBuilder, connection: Connection, *, directed: bool, report: Report) -> Layout:
    """Write labels, splits and years to the store and number the edges; features stay where they are."""
    for kind, size in found.sizes.items():
        x = found.features.get(kind)
        if x is not None and (len(x) != size or x.ndim != 2):
            raise InputError(f"{found.name}: features of {kind} have shape {x.shape} for {size} nodes")
        # A damaged id names a node far beyond the others: refuse it before a row is made for each node up to it.
        num_ends = sum(pairs.size for (source, _, target), pairs in found.edges if kind in (source, target))
        if x is None and size > _MOST_NODES_WITHOUT_EDGES + 100 * num_ends:
            raise InputError(
                f"{found.name}: {size:,} nodes of type {kind} for {num_ends:,} ends of edges: is an id wrong?"
            )
    layout = Layout(found.name, found.name, tuple(found.sizes), found.offsets, directed=directed)
    layout.raw_features = [found.features.get(kind) for kind in found.sizes]
    for what, name, missing in (("labels", "labels", -1), ("years", "node_times", NO_TIME)):
        if getattr(found, what):
            with builder.array(name, dtype="<i8") as writer:
                for kind in found.sizes:
                    for values in _whole_column(found, what, kind, missing=missing):
                        writer.append(values)
    if found.labels:
        largest = int(builder.read("labels").max(initial=-1))
        if largest >= _MOST_CLASSES:
            raise InputError(
                f"{found.name}: a label is {largest}, expected classes from 0 up to {_MOST_CLASSES:,} at most"
            )
        layout.class_names = tuple(map(str, range(largest + 1)))
        if found.splits or found.splits_by_year:
            _write_splits(found, builder)
    connection.execute(NUMBERED)
    starts, num_done = found.starts, 0
    for number, (triplet, pairs) in enumerate(found.edges):
        source, _, target = triplet
        for ends in _pairs(pairs, (found.sizes[source], found.sizes[target]), "___".join(triplet)):
            edges = {"source": ends[0] + starts[source], "target": ends[1] + starts[target]}
            numbered = f"SELECT {num_done} + row_number() OVER () - 1, source, target, {number}"
            connection.register("edges_of_relation", edges)
            connection.execute(f"INSERT INTO numbered {numbered} FROM edges_of_relation")
            connection.unregister("edges_of_relation")
            num_done += len(ends[0])
        report("reading edges", (number + 1) / len(found.edges))
    names = tuple(relation for (_, relation, _), _ in found.edges)
    if len(set(names)) < len(names):
        names = tuple("_".join(triplet) for triplet, _ in found.edges)
    layout.edge_type_names = names if len(names) > 1 else ()
    return layout


def _write_splits(found: _Folder, builder: StoreBuilder) -> None:
    labels, starts = builder.read("labels"), found.starts
    masks = {name: np.zeros((len(labels), 1), dtype=bool) for name in ("train", "valid", "test")}
    for kind, splits in found.splits.items():
        for name, numbers in splits.items():
            masks[name][starts[kind] + numbers] = True
    if found.splits_by_year:
        all_years = builder.read("node_times")
        for begin in range(0, len(labels), _ROWS_AT_ONCE):
            nodes = slice(begin, begin + _ROWS_AT_ONCE)
            years, has_label = all_years[nodes], labels[nodes] >= 0
            for name, is_in in (("train", years < 2019), ("valid", years == 2019), ("test", years > 2019)):
                masks[name][nodes, 0] = has_label & is_in
    for name, mask in masks.items():
        builder.write({"valid": "val"}.get(name, name), mask)


def _whole_column(found: _Folder, what: str, kind: str, *, missing: int) -> Iterator[Array]:
    """Labels or years as int64, one for each node of a type, in chunks; `missing` where there is none."""
    values: Array | None = getattr(found, what).get(kind)
    flat, size = None if values is None else values.reshape(-1), found.sizes[kind]
    if flat is not None and len(flat) != size:
        raise InputError(f"{found.name}: {kind} has {size} nodes but {len(flat)} {what}")
    for begin in range(0, size, _ROWS_AT_ONCE):
        if flat is None:
            yield np.full(min(_ROWS_AT_ONCE, size - begin), missing, dtype=np.int64)
            continue
        chunk = np.asarray(flat[begin : begin + _ROWS_AT_ONCE])
        chunk = chunk.astype(np.float64) if chunk.dtype.kind == "f" else chunk  # 2^53 is too large for float16
        if chunk.dtype.kind not in "iuf" or (chunk.dtype.kind == "f" and (np.abs(chunk) >= 2.0**53).any()):
            raise InputError(f"{found.name}: {what} of {kind} must be whole numbers")
        is_missing = np.isnan(chunk) if chunk.dtype.kind == "f" else chunk < 0
        yield np.where(is_missing, missing, np.where(is_missing, 0, chunk).astype(np.int64))


def _pairs(pairs: Array, sizes: tuple[int, int], name: str) -> Iterator[tuple[Array, Array]]:
    """Both ends of edges, in chunks, each within its type."""
    if pairs.ndim != 2 or 2 not in pairs.shape or pairs.dtype.kind not in "iu":
        raise InputError(f"edges of {name} have shape {pairs.shape}: expected two rows or two columns of integers")
    pairs = pairs if pairs.shape[0] == 2 else pairs.T
    for begin in range(0, pairs.shape[1], _ROWS_AT_ONCE):
        ends = np.asarray(pairs[:, begin : begin + _ROWS_AT_ONCE]).astype(np.int64)
        for end, size in zip(ends, sizes, strict=True):
            if len(end) and (end.min() < 0 or end.max() >= size):
                raise InputError(f"an edge of {name} names node {end.min() if end.min() < 0 else end.max()} of {size}")
        yield ends[0], ends[1]
