"""prepare_tables: tables larger than memory to a store, with a cap on memory.

The same graph as `read_tables`, by the same rules. DuckDB copies the columns that are needed into a file beside the
store, maps ids to numbers by joins and sorts the edges, spilling to the disk; everything else is a pass over parts of a
table. What is in memory at once is divided: half for DuckDB, the rest for the parts and for the program itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.graph.edge_table import Cleaning
from graphstrap.io.arrays import Array, open_array
from graphstrap.io.columns import EdgeColumns, NodeColumns, TableOptions, open_tables
from graphstrap.io.database import Table, TableCopy, TableSlice, connect, execute_long, fetch_one, one_line_errors
from graphstrap.io.ids import are_integers, count_doubtful_ids, load_ids, no_known_edges, unknown_nodes
from graphstrap.io.store import check_feature_dtype
from graphstrap.io.store_builder import StoreBuilder, build_store
from graphstrap.io.tables import read_weights
from graphstrap.io.values import bad_cell, check_kinds, code_names, read_matrix, read_times, time_expression
from graphstrap.io.write_edges import EdgeJob, Report, write_edges, write_transpose
from graphstrap.io.write_features import FeatureJob, derive_blocks, write_block
from graphstrap.io.write_nodes import ByType, NodePart, write_nodes

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


# How a store is made under a cap on memory, whatever it is made from.
#
# A layout writes in-edges and what nodes have; the transpose, the features as asked for and the description follow.


LEAST_MEMORY = 512 * 10**6


@dataclass(frozen=True)
class PrepareOptions:
    """How to make a store.

    Args:
        memory_bytes: the cap, for the whole process.
        threads: of DuckDB; None for as many as there are cores.
        feature_dtype: fp32, fp16, bf16 or uint8.
        pca: project blocks with more columns on so many directions.
        derive_features: give node types without features the mean of their neighbours.
        overwrite: replace a store that is there.
    """

    memory_bytes: int = 4 * 10**9
    threads: int | None = None
    feature_dtype: str = "fp32"
    pca: int | None = None
    derive_features: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_feature_dtype(self.feature_dtype)
        if self.memory_bytes < LEAST_MEMORY:
            raise InputError(f"--memory must be at least {LEAST_MEMORY // 10**6}MB, got {self.memory_bytes:,} bytes")
        if self.pca is not None and self.pca < 1:
            raise InputError(f"--pca must be at least 1, got {self.pca}")

    @property
    def free_bytes(self) -> int:
        """What is left beside the program with its libraries, about 300 MB."""
        return self.memory_bytes - 300 * 10**6

    @property
    def duckdb_bytes(self) -> int:
        return self.free_bytes // 2

    @property
    def feature_job(self) -> FeatureJob:
        return FeatureJob(self.feature_dtype, self.pca, self.free_bytes // 16)

    @property
    def max_edges(self) -> int:
        """Of a part of the sorted edges: with what is made of them, 200 bytes each."""
        return self.free_bytes // 8 // 200


@dataclass
class Parts:
    """What a layout gives: nodes as `NodePart` says, edges in the store, and their names."""

    nodes: NodePart
    cleaning: Cleaning
    edge_type_names: tuple[str, ...] = ()
    edge_column_names: tuple[str, ...] = ()
    name: str = "graph"


def make_store(
    to: str,
    read: Callable[[StoreBuilder, DuckDBPyConnection, PrepareOptions], Parts],
    *,
    job: PrepareOptions,
    report: Report,
) -> None:
    """What all layouts share: `read` writes the in-edges and what nodes have; the rest follows from that."""
    with build_store(to, overwrite=job.overwrite) as builder:
        path = str(builder.scratch / "tables.duckdb")
        limits = {"memory_bytes": job.duckdb_bytes, "threads": job.threads}
        with connect(path, **limits) as connection, one_line_errors(to, action="prepare"):
            parts = read(builder, connection, job)
        nodes = parts.nodes
        max_edges = job.free_bytes // 4 // 96
        write_transpose(builder, num_nodes=nodes.type_offsets[-1], max_edges=max_edges, report=report)
        blocks: list[dict[str, Any] | None] = [
            None if raw is None else write_block(builder, f"features.{t}", raw, job.feature_job, report)
            for t, raw in enumerate(nodes.raw_blocks)
        ]
        if job.derive_features:
            blocks = derive_blocks(builder, blocks, nodes.type_offsets, job.feature_job, report)
        is_projected = any(name.endswith(".pca_mean") for name in builder.arrays)
        names = None if is_projected else nodes.feature_names
        builder.finish(
            {
                "name": parts.name,
                "type_offsets": list(nodes.type_offsets),
                "node_types": list(nodes.node_types),
                "features": blocks,
                "class_names": None if nodes.class_names is None else list(nodes.class_names),
                "feature_names": None if names is None else list(names),
                "edge_type_names": list(parts.edge_type_names),
                "edge_column_names": list(parts.edge_column_names),
                "cleaning": asdict(parts.cleaning),
            }
        )


__all__ = ["PrepareOptions", "prepare_tables"]


_DEFAULT_OPTIONS = TableOptions()


def prepare_tables(
    edges: str,
    nodes: str | None,
    to: str,
    *,
    options: TableOptions = _DEFAULT_OPTIONS,
    job: PrepareOptions | None = None,
    report: Report = lambda stage, fraction: None,
) -> None:
    """Make a store of a table of edges and, where there is one, a table of nodes."""

    def read(builder: StoreBuilder, connection: DuckDBPyConnection, job: PrepareOptions) -> Parts:
        return _read_tables(builder, connection, edges, nodes, options, job, report)

    make_store(to, read, job=job or PrepareOptions(), report=report)


def _read_tables(
    builder: StoreBuilder,
    connection: DuckDBPyConnection,
    edges: str,
    nodes: str | None,
    options: TableOptions,
    job: PrepareOptions,
    report: Report,
) -> Parts:
    edge_columns, node_columns = open_tables(connection, edges, nodes, options)
    report("copying tables", 0.0)
    edge_copy = TableCopy.of(edge_columns.table, "edge_rows", _used_of_edges(edge_columns))
    edge_columns = replace(edge_columns, table=edge_copy.whole)
    node_copy = None
    if node_columns is not None:
        node_copy = TableCopy.of(node_columns.table, "node_rows", _used_of_nodes(node_columns))
        node_columns = replace(node_columns, table=node_copy.whole)
    report("mapping ids", 0.0)
    load_ids(edge_columns, node_columns)
    num_in_both = count_doubtful_ids(edge_columns, node_columns)
    num_nodes = int(fetch_one(connection, "SELECT count(*) FROM node_ids")[0])
    part = NodePart(type_offsets=(0, num_nodes), raw_blocks=[None])
    if node_copy is not None and node_columns is not None:
        part = write_nodes(builder, node_copy, node_columns, chunk_bytes=job.free_bytes // 16, report=report)
    _write_ids(builder, connection, node_copy, part, num_nodes=num_nodes, step=job.free_bytes // 16 // 512)
    type_names: tuple[str, ...] = ()
    type_code = "0"
    if edge_columns.type is not None:
        type_names, type_code = code_names(edge_copy.whole, edge_columns.type)
    _match(connection, part, type_code, report)
    node_table = None if node_columns is None else node_columns.table
    num_unknown = _drop_unknown(edge_columns.table, node_table, ignore_unknown=options.ignore_unknown_nodes)
    if type_names:
        row = fetch_one(connection, "SELECT min(row) FROM numbered WHERE type < 0")[0]
        if row is not None:
            raise bad_cell(edge_copy.whole, str(edge_columns.type), row=row, wanted="an edge type: fix the cell")
    edge_job = EdgeJob(
        num_nodes=num_nodes,
        type_names=type_names,
        directed=options.directed,
        max_edges=job.max_edges,
        columns=_read_edge_columns(builder, edge_copy, edge_columns, step=job.max_edges, report=report),
    )
    cleaning, names = write_edges(connection, builder, edge_job, report)
    if builder.arrays["indices"].shape[0] == 0:
        raise InputError(f"{edges} has no edges left: all {cleaning.num_edges_given} go from a node to itself")
    cleaning = replace(cleaning.with_unknown(num_unknown), num_ids_in_both=num_in_both)
    return Parts(part, cleaning, names, edge_columns.numbers)


def _used_of_edges(columns: EdgeColumns) -> tuple[str, ...]:
    named = (columns.source, columns.target, columns.type, columns.weight, columns.time, *columns.numbers)
    return tuple(dict.fromkeys(name for name in named if name is not None))


def _used_of_nodes(columns: NodeColumns) -> tuple[str, ...]:
    named = (columns.id, columns.label, columns.split, columns.type, columns.time, *columns.features)
    return tuple(dict.fromkeys(name for name in named if name is not None))


def _write_ids(
    builder: StoreBuilder,
    connection: DuckDBPyConnection,
    copy: TableCopy | None,
    part: NodePart,
    *,
    num_nodes: int,
    step: int,
) -> None:
    """External ids, type by type, as int64 where each is written as an integer is, otherwise as text."""
    cell, dtype = "CAST(id AS BIGINT)", "<i8"
    if not are_integers(connection, "node_ids"):
        longest = fetch_one(connection, "SELECT max(length(id)) FROM node_ids")[0]
        cell, dtype = "id", f"<U{max(1, int(longest))}"
    ids = ByType(builder, "ids", dtype=dtype, num_types=len(part.node_types))
    for begin in range(0, num_nodes, step):
        end = min(num_nodes, begin + step)
        query = f"SELECT {cell} AS id FROM node_ids WHERE rowid >= {begin} AND rowid < {end}"
        values = np.asarray(connection.execute(query).fetchnumpy()["id"]).astype(dtype)
        types = None
        if copy is not None and part.type_code is not None:
            types = np.asarray(copy.slice(begin, end).fetch({"code": part.type_code})["code"])
        ids.append(values, types)
    ids.finish()


def _match(connection: DuckDBPyConnection, part: NodePart, type_code: str, report: Report) -> None:
    """The table `numbered`: both ends of each edge as node numbers, NULL where a node is unknown."""
    known = "node_ids"
    if part.type_code is not None:
        known = "ids_by_type"
        ordered = f"""
            CREATE TABLE {known} AS SELECT node_ids.id FROM node_ids
            JOIN (SELECT rowid AS place, {part.type_code} AS code FROM node_rows) AS typed
            ON node_ids.rowid = typed.place
            ORDER BY typed.code, node_ids.rowid
        """
        execute_long(connection, ordered, "numbering nodes", report)
    first = f"""
        CREATE TABLE half AS SELECT edge_ids.rowid AS row, known.rowid AS source, edge_ids.target AS other
        FROM edge_ids LEFT JOIN {known} AS known ON edge_ids.source = known.id
    """
    execute_long(connection, first, "matching sources", report)
    code, typed = "0", ""
    if type_code != "0":
        code = "typed.code"
        typed = f"JOIN (SELECT rowid AS place, {type_code} AS code FROM edge_rows) AS typed ON typed.place = half.row"
    second = f"""
        CREATE TABLE numbered AS SELECT half.row AS row, half.source AS source, known.rowid AS target,
            CAST({code} AS INTEGER) AS type
        FROM half LEFT JOIN {known} AS known ON half.other = known.id {typed}
    """
    execute_long(connection, second, "matching targets", report)
    connection.execute("DROP TABLE half")


def _drop_unknown(edges: Table, nodes: Table | None, *, ignore_unknown: bool) -> int:
    """Drop the edges that name an unknown node, where that is asked for, and the tables of ids. How many they were."""
    connection = edges.connection
    unknown = "source IS NULL OR target IS NULL"
    count, num_unknown = fetch_one(connection, f"SELECT count(*), count(*) FILTER ({unknown}) FROM numbered")
    if nodes is not None and num_unknown and not ignore_unknown:
        raise unknown_nodes(edges, nodes, num_edges=num_unknown)
    if num_unknown == count:
        raise no_known_edges(edges, nodes)
    if num_unknown:
        connection.execute(f"DELETE FROM numbered WHERE {unknown}")
    for name in ("edge_ids", "node_ids", "ids_by_type"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    return int(num_unknown)


def _read_edge_columns(
    builder: StoreBuilder, copy: TableCopy, columns: EdgeColumns, *, step: int, report: Report
) -> dict[str, Array]:
    """Weights, times and numeric columns of all rows, in scratch files."""
    readers: dict[str, Callable[[TableSlice], Array | None]] = {}
    if columns.weight is not None:
        weight, kinds = columns.weight, check_kinds(copy.whole, (columns.weight,))
        readers["edge_weights"] = lambda rows: read_weights(rows, weight, kinds=kinds)
    if columns.time is not None:
        time, sql = columns.time, time_expression(copy.whole, columns.time)
        readers["edge_times"] = lambda rows: read_times(rows, time, expression=sql)
    if columns.numbers:
        kinds_of_numbers = check_kinds(copy.whole, columns.numbers)
        readers["edge_columns"] = lambda rows: read_matrix(rows, columns.numbers, kinds=kinds_of_numbers)
    arrays: dict[str, Array] = {}
    for name, reader in readers.items():
        writer = None
        for rows in copy.slices(max(1, step // (1 + len(columns.numbers)))):
            values = reader(rows)
            assert values is not None
            if writer is None:
                writer = builder.scratch_array(name, dtype=values.dtype.str, columns=tuple(values.shape[1:]))
            writer.append(values)
            report(f"reading {name.replace('_', ' ')}", rows.end / copy.num_rows)
        assert writer is not None
        arrays[name] = open_array(builder.scratch, name, writer.close())
    return arrays
