"""A store under a cap on memory, whatever it is made from: tables (`tables.py`) or OGB's folders (`ogb.py`).

A reader writes what nodes have, and numbers the edges in DuckDB, which sorts them and spills to the disk. They are
cleaned chunk by chunk, by the rules of `Graph.from_edges`, and transposed range by range; the features, as asked for,
and the description follow. Half of the memory is DuckDB's; the chunks and the program itself share the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph.blocks import QuantisedMatrix, encode, find_steps
from graphstrap.graph.csr import neighbour_means, transposed_ranges
from graphstrap.graph.edge_list import Cleaning, EdgeList, with_reverse_names
from graphstrap.io.arrays import BFLOAT16, Array, ArrayWriter, dtype_name
from graphstrap.io.database import Connection, connect, execute_long, fetch_one, one_line_errors
from graphstrap.io.store import check_feature_dtype
from graphstrap.io.store_format import FACTS, Report, StoreBuilder, build_store, edge_type_dtype

LEAST_MEMORY = 512 * 10**6
_PROGRAM_BYTES = 300 * 10**6  # with its libraries

# The table of the database that a reader fills: one row for each edge between known nodes.
NUMBERED = "CREATE TABLE numbered (row BIGINT, source BIGINT, target BIGINT, type INTEGER)"


@dataclass(frozen=True)
class PrepareOptions:
    """How to make a store."""

    memory_bytes: int = 4 * 10**9  # the cap, for the whole process
    threads: int | None = None  # of DuckDB; None for as many as there are cores
    feature_dtype: str = "fp32"  # fp32, fp16, bf16 or uint8
    pca: int | None = None  # project blocks with more columns on so many directions
    derive_features: bool = False  # give node types without features the mean of their neighbours
    overwrite: bool = False  # replace a store that is there

    def __post_init__(self) -> None:
        check_feature_dtype(self.feature_dtype)
        if self.memory_bytes < LEAST_MEMORY:
            raise InputError(f"--memory must be at least {LEAST_MEMORY // 10**6}MB, got {self.memory_bytes:,} bytes")
        if self.pca is not None and self.pca < 1:
            raise InputError(f"--pca must be at least 1, got {self.pca}")

    @property
    def free_bytes(self) -> int:
        return self.memory_bytes - _PROGRAM_BYTES

    @property
    def chunk_bytes(self) -> int:
        """What a chunk of a table, with what is made of it, may take."""
        return self.free_bytes // 16

    @property
    def max_edges(self) -> int:
        """How many sorted edges to hold at once: with what is made of them, 200 bytes each."""
        return self.free_bytes // 8 // 200


@dataclass
class Layout:
    """What a reader has found."""

    source: str  # where the edges come from, for messages
    name: str = "graph"
    node_types: tuple[str, ...] = ("node",)
    type_offsets: tuple[int, ...] = ()
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    node_arrays: dict[str, list[Array]] = field(default_factory=dict)  # labels, ids, ...: each one array or several
    raw_features: list[Array | None] = field(default_factory=list)  # of each node type, perhaps memory-mapped
    directed: bool = False
    edge_type_names: tuple[str, ...] = ()
    edge_column_names: tuple[str, ...] = ()
    edge_arrays: dict[str, Array] = field(default_factory=dict)  # weights, ...: `numbered.row` counts their rows
    num_unknown: int = 0
    num_ids_in_both: int = 0

    @property
    def num_nodes(self) -> int:
        return self.type_offsets[-1]


def make_store(
    to: str, read: Callable[[StoreBuilder, Connection], Layout], *, job: PrepareOptions, report: Report
) -> None:
    """Make a store of what `read` writes and tells."""
    with build_store(to, overwrite=job.overwrite) as builder:
        path = str(builder.scratch / "tables.duckdb")
        limits = {"memory_bytes": job.free_bytes // 2, "threads": job.threads}
        with connect(path, **limits) as connection, one_line_errors(to, action="prepare"):
            layout = read(builder, connection)
            cleaning = _write_edges(connection, builder, layout, job, report)
        _write_transpose(builder, layout.num_nodes, max_edges=job.free_bytes // 4 // 96, report=report)
        features = BlockWriter(builder, report, job.feature_dtype, job.pca, job.chunk_bytes)
        blocks = [
            None if raw is None else features.write(f"features.{t}", raw) for t, raw in enumerate(layout.raw_features)
        ]
        if job.derive_features:
            blocks = features.derive(blocks, layout.type_offsets)
        if any(name.endswith(".pca_mean") for name in builder.arrays):
            layout.feature_names = None
        found = {"features": blocks, "cleaning": asdict(cleaning)}
        builder.finish({name: getattr(layout, name, None) for name in FACTS} | found)


def _write_edges(
    connection: Connection, builder: StoreBuilder, layout: Layout, job: PrepareOptions, report: Report
) -> Cleaning:
    """Write the CSR of in-edges and what edges have, drop their table, and name the types of reverses. What was
    cleaned."""
    (num_given,) = fetch_one(connection, "SELECT count(*) FROM numbered")
    _sort_edges(connection, layout, report)
    if not layout.directed:
        layout.edge_type_names = with_reverse_names(layout.edge_type_names)
    (num_sorted,) = fetch_one(connection, "SELECT count(*) FROM sorted")
    num_distinct = 0
    with ExitStack() as stack:

        def opened(name: str, dtype: str, columns: tuple[int, ...] = ()) -> ArrayWriter:
            return stack.enter_context(builder.array(name, dtype=dtype, columns=columns))

        starts = _StartWriter(opened("indptr", "<i8"), job.max_edges)
        writers = {"source": opened("indices", "<i4" if layout.num_nodes < 2**31 else "<i8")}
        if layout.edge_type_names:
            writers["types"] = opened("edge_types", edge_type_dtype(len(layout.edge_type_names)))
        for name, array in layout.edge_arrays.items():
            writers[name.removeprefix("edge_")] = opened(name, dtype_name(array), tuple(array.shape[1:]))
        for num_done, edges in _sorted_chunks(connection, layout, num_sorted, job.max_edges):
            edges = edges.merged()
            num_distinct += int((~edges.is_reverse).sum())
            if len(edges.target):
                starts.add(edges.target, int(edges.target[-1]))
            for name, writer in writers.items():
                writer.append(getattr(edges, name))
            report("merging edges", num_done / max(1, num_sorted))
        starts.add(torch.empty(0, dtype=torch.int64), layout.num_nodes)
    connection.execute("DROP TABLE sorted")
    if not starts.num_edges:
        raise InputError(f"{layout.source} has no edges left: all {num_given} go from a node to itself")
    num_loops = num_given - (num_sorted if layout.directed else num_sorted // 2)
    cleaning = Cleaning.of(
        num_given=num_given, num_loops=num_loops, num_distinct=num_distinct, num_edges=starts.num_edges
    )
    return cleaning.with_ids(num_unknown=layout.num_unknown, num_in_both=layout.num_ids_in_both)


def _sort_edges(connection: Connection, layout: Layout, report: Report) -> None:
    given = "SELECT target, source, type, false AS is_reverse, row FROM numbered WHERE source <> target"
    if not layout.directed:
        given += f"""
            UNION ALL SELECT source, target, type + {len(layout.edge_type_names)}, true, row
            FROM numbered WHERE source <> target
        """
    order = "target, source, type, is_reverse, row"
    execute_long(connection, f"CREATE TABLE sorted AS {given} ORDER BY {order}", "sorting edges", report)
    connection.execute("DROP TABLE numbered")
    connection.execute("CHECKPOINT")


def _sorted_chunks(
    connection: Connection, layout: Layout, num_sorted: int, max_edges: int
) -> Iterator[tuple[int, EdgeList]]:
    """Sorted edges, cut where (target, source, type) changes, after how many have been read."""
    keys = ("target", "source", "type")
    columns: dict[str, Array] = {}
    for begin in range(0, num_sorted, max_edges):
        end = min(num_sorted, begin + max_edges)
        query = f"SELECT * FROM sorted WHERE rowid >= {begin} AND rowid < {end}"
        read = connection.execute(query).fetchnumpy()
        left = columns or {name: column[:0] for name, column in read.items()}
        columns = {name: np.concatenate([left[name], np.asarray(column)]) for name, column in read.items()}
        cut = len(columns["row"])
        if end < num_sorted:
            changes = np.logical_or.reduce([columns[key][1:] != columns[key][:-1] for key in keys])
            cut = int(changes.nonzero()[0][-1]) + 1 if changes.any() else 0
        yield end, _edge_list(layout, {name: column[:cut] for name, column in columns.items()})
        columns = {name: column[cut:] for name, column in columns.items()}


def _edge_list(layout: Layout, columns: dict[str, Array]) -> EdgeList:
    arrays = {name.removeprefix("edge_"): array[columns["row"]] for name, array in layout.edge_arrays.items()}
    if layout.edge_type_names:
        arrays["types"] = columns["type"].astype(np.int64)
    arrays |= {name: columns[name] for name in ("source", "target", "is_reverse")}
    return EdgeList(**{name: torch.from_numpy(array) for name, array in arrays.items()})


class _StartWriter:
    """Appends to `indptr` where the edges of each node start, as sorted edges pass."""

    def __init__(self, writer: ArrayWriter, step: int) -> None:
        self.writer, self.step = writer, step
        self.num_nodes = self.num_edges = 0

    def add(self, targets: Tensor, last: int) -> None:
        """More edges by their targets; all nodes up to `last` are passed."""
        while self.num_nodes <= last:
            nodes = torch.arange(self.num_nodes, min(last + 1, self.num_nodes + self.step))
            self.writer.append(self.num_edges + torch.searchsorted(targets, nodes))
            self.num_nodes += len(nodes)
        self.num_edges += len(targets)


def _write_transpose(builder: StoreBuilder, num_nodes: int, *, max_edges: int, report: Report) -> None:
    """Write out-edges from the in-edges that are written already."""
    indptr, indices = builder.read_tensor("indptr"), builder.read_tensor("indices")
    with (
        builder.array("out_indptr", dtype="<i8") as starts,
        builder.array("out_indices", dtype=dtype_name(indices)) as ends,
        builder.array("out_positions", dtype="<i8") as positions,
    ):
        starts.append(np.zeros(1, dtype=np.int64))
        done = 0
        for found in transposed_ranges(indptr, indices, num_columns=num_nodes, max_edges=max_edges):
            starts.append(done + found.counts.cumsum(0))
            ends.append(found.rows)
            positions.append(found.positions)
            done += len(found.rows)
            report("transposing edges", done / max(1, len(indices)))


# ---- dense features: fewer columns, fewer bits, and none that are missing, chunk by chunk ----------------------------
#
# PCA         mean and covariance add up over the chunks in float64; then every chunk is projected
# uint8       the least and the largest value of each column are found first; then every chunk is rounded
# derived     a node type without features gets the mean of its neighbours that have them

_STORED = {"fp32": "<f4", "fp16": "<f2", "bf16": BFLOAT16, "uint8": "|u1"}
_LARGEST_HALF = 65504.0


@dataclass(frozen=True)
class BlockWriter:
    """How to keep features: `dtype` is fp32, fp16, bf16 or uint8; blocks with more than `pca` columns are projected."""

    builder: StoreBuilder
    report: Report
    dtype: str = "fp32"
    pca: int | None = None
    chunk_bytes: int = 1 << 26

    def write(self, name: str, raw: Array) -> dict[str, Any]:
        """One block from (N, F) numbers of any type, perhaps memory-mapped; what `store.json` says of it."""
        width = int(raw.shape[1])
        project: Callable[[Tensor], Tensor] = Tensor.float  # as it is
        if self.pca is not None and width > self.pca:
            width, project = self.pca, self._fit_pca(name, raw, self.pca)
        steps: dict[str, Tensor] = {}
        if self.dtype == "uint8":
            steps = self._find_steps(raw, project, width)
            for member, values in steps.items():
                self.builder.write(f"{name}.{member}", values)
        with self.builder.array(name, dtype=_STORED[self.dtype], columns=(width,)) as writer:
            for chunk in self._chunks(raw, "writing features"):
                x = project(chunk)
                if steps:
                    x = encode(x, **steps)
                elif self.dtype == "fp16" and bool((x.abs() > _LARGEST_HALF).any()):
                    raise InputError(
                        f"a feature is beyond fp16's {_LARGEST_HALF:,.0f}: scale it, or use --feature-dtype bf16"
                    )
                writer.append(x)
        return {"kind": "quantised" if steps else "dense", "columns": width}

    def derive(self, blocks: list[dict[str, Any] | None], type_offsets: tuple[int, ...]) -> list[dict[str, Any] | None]:
        """Give every type without features the mean of its neighbours of one type that has them, as long as there are
        any.

        Of several such types the one with the most edges to it is taken; types that got theirs earlier serve the next.
        """
        blocks, links = list(blocks), _count_links(self.builder, type_offsets)
        while True:
            known = [t for t, block in enumerate(blocks) if block is not None]
            reached = {t: max(known, key=lambda k: links[k, t]) for t, b in enumerate(blocks) if b is None and known}
            reached = {t: k for t, k in reached.items() if links[k, t] > 0}
            if not reached:
                return blocks
            for t, k in reached.items():
                blocks[t] = self._derive(t, k, blocks[k] or {}, type_offsets)

    def _derive(
        self, kind: int, origin: int, described: dict[str, Any], type_offsets: tuple[int, ...]
    ) -> dict[str, Any]:
        """Features of one node type from those of another that are written already, by way of a float32 file."""
        read = self.builder.read_tensor
        directions = [(read(f"{way}indptr"), read(f"{way}indices")) for way in ("", "out_")]
        block: Tensor | QuantisedMatrix = read(f"features.{origin}")
        if described["kind"] == "quantised":
            block = QuantisedMatrix(*(read(f"features.{origin}{one}") for one in ("", ".scale", ".offset")))
        rows, width = (type_offsets[kind], type_offsets[kind + 1]), int(described["columns"])
        name, done = f"derived.{kind}", 0
        self.builder.append(name, np.empty((0, width), dtype=np.float32))
        max_edges = max(1, self.chunk_bytes // (16 * max(1, width)))
        for means in neighbour_means(directions, block, rows=rows, first=type_offsets[origin], max_edges=max_edges):
            self.builder.append(name, means.numpy())
            done += len(means)
            self.report("deriving features", done / (rows[1] - rows[0]))
        result = replace(self, pca=None).write(f"features.{kind}", self.builder.appended(name))
        (self.builder.scratch / f"{name}.npy").unlink()
        return result

    def _fit_pca(self, name: str, raw: Array, num_directions: int) -> Callable[[Tensor], Tensor]:
        """The projection on the directions of largest variance, each with its largest entry positive."""
        width, count = int(raw.shape[1]), 0
        total, products = torch.zeros(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64)
        shift = None  # about the mean: keeps the sums small
        for chunk in self._chunks(raw, "measuring features"):
            shift = chunk.double().mean(0) if shift is None else shift
            centred = chunk.double() - shift
            total += centred.sum(0)
            products.addmm_(centred.T, centred)
            count += len(chunk)
        if shift is None or count < num_directions:
            raise InputError(f"--pca {num_directions} needs at least as many nodes as directions: {name} has {count}")
        mean = total / count
        covariance = products / count - mean[:, None] * mean[None, :]
        directions = torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, :num_directions]  # (F, K)
        largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
        directions = (directions * largest.sign()).float()
        centre = (shift + mean).float()
        self.builder.write(f"{name}.pca_mean", centre)
        self.builder.write(f"{name}.pca_components", directions)
        return lambda x: (x - centre) @ directions

    def _find_steps(self, raw: Array, project: Callable[[Tensor], Tensor], width: int) -> dict[str, Tensor]:
        """The scale and the offset of every column."""
        low, high = torch.full((width,), torch.inf), torch.full((width,), -torch.inf)
        for chunk in self._chunks(raw, "finding ranges"):
            x = project(chunk)
            low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
        if not len(raw):
            low = high = torch.zeros(width)
        return dict(zip(("scale", "offset"), find_steps(low, high), strict=True))

    def _chunks(self, raw: Array, stage: str) -> Iterator[Tensor]:
        """Rows as float32, all of them finite."""
        step = max(1, self.chunk_bytes // (32 * max(1, int(raw.shape[1]))))
        for begin in range(0, len(raw), step):
            with np.errstate(over="ignore"):  # too large a number becomes infinite
                chunk = torch.from_numpy(np.array(raw[begin : begin + step], dtype=np.float32))
            if not bool(chunk.isfinite().all()):
                row = begin + int((~chunk.isfinite()).any(1).nonzero()[0])
                raise InputError(f"a feature of node {row} is NaN or infinite: replace it by a number")
            yield chunk
            self.report(stage, min(1.0, (begin + step) / len(raw)))


def _count_links(builder: StoreBuilder, type_offsets: tuple[int, ...]) -> Array:
    """(T, T) edges between types, in either direction."""
    indptr, indices = builder.read("indptr"), builder.read("indices")
    num_types, step = len(type_offsets) - 1, 1 << 22
    links = np.zeros((num_types, num_types), dtype=np.int64)
    for target in range(num_types):
        first, last = int(indptr[type_offsets[target]]), int(indptr[type_offsets[target + 1]])
        for begin in range(first, last, step):
            kinds = np.searchsorted(type_offsets, indices[begin : min(last, begin + step)], side="right") - 1
            links[:, target] += np.bincount(kinds, minlength=num_types)
    return np.asarray(links + links.T)
