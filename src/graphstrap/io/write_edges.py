"""Numbered edges to the arrays of a store: sorted by DuckDB, cleaned piece by piece, turned range by range.

The rules are those of `Graph.from_edges`. One sort by (target, source, type) brings together an edge, its duplicates
and, where reverses are added, the reverses of the opposite ones; of those, edges that were given come first and win.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphstrap.graph.csr import turn
from graphstrap.graph.edge_table import Cleaning, EdgeTable
from graphstrap.io.arrays import Array, ArrayWriter, as_tensor, dtype_name
from graphstrap.io.database import execute_long, fetch_one
from graphstrap.io.store import edge_type_dtype
from graphstrap.io.store_builder import StoreBuilder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


Report = Callable[[str, float], None]

# What `write_edges` expects in the database: one row for each edge between known nodes.
NUMBERED = "CREATE TABLE numbered (row BIGINT, source BIGINT, target BIGINT, type INTEGER)"


@dataclass(frozen=True)
class EdgeJob:
    """What to make of the edges in the table `numbered`.

    Args:
        columns: arrays by name (edge_weights, edge_times, edge_columns) whose rows `numbered.row` counts.
        max_edges: how many to hold in memory at once.
    """

    num_nodes: int
    type_names: tuple[str, ...]
    directed: bool
    max_edges: int
    columns: dict[str, Array] = field(default_factory=dict)


def write_edges(
    connection: DuckDBPyConnection, builder: StoreBuilder, job: EdgeJob, report: Report
) -> tuple[Cleaning, tuple[str, ...]]:
    """Write the CSR of in-edges and what edges have; drops the table. What was cleaned, and all type names."""
    num_given = int(fetch_one(connection, "SELECT count(*) FROM numbered")[0])
    names = job.type_names
    if names and not job.directed:
        names = names + tuple(f"reverse_{name}" for name in names)
    _sort(connection, job, report)
    num_sorted = int(fetch_one(connection, "SELECT count(*) FROM sorted")[0])
    writer = _EdgeWriter(builder, job, len(names))
    with writer:
        for done, table, is_reverse in _pieces(connection, job, num_sorted):
            writer.add(table, is_reverse)
            report("merging edges", done / max(1, num_sorted))
        writer.finish()
    connection.execute("DROP TABLE sorted")
    num_loops = num_given - (num_sorted if job.directed else num_sorted // 2)
    cleaning = Cleaning(
        num_edges_given=num_given,
        num_self_loops_dropped=num_loops,
        num_duplicates_merged=num_given - num_loops - writer.num_distinct,
        num_reverse_edges_added=writer.num_edges - writer.num_distinct,
    )
    return cleaning, names


def write_transpose(builder: StoreBuilder, *, num_nodes: int, max_edges: int, report: Report) -> None:
    """Out-edges from the in-edges that are written already."""
    indptr, indices = (as_tensor(builder.read(name), "") for name in ("indptr", "indices"))
    with (
        builder.array("out_indptr", dtype="<i8") as starts,
        builder.array("out_indices", dtype=dtype_name(indices)) as ends,
        builder.array("out_positions", dtype="<i8") as positions,
    ):
        starts.append(np.zeros(1, dtype=np.int64))
        done = 0
        for part in turn(indptr, indices, num_columns=num_nodes, max_edges=max_edges):
            starts.append(done + part.counts.cumsum(0))
            ends.append(part.rows)
            positions.append(part.positions)
            done += len(part.rows)
            report("turning edges", done / max(1, len(indices)))


def _sort(connection: DuckDBPyConnection, job: EdgeJob, report: Report) -> None:
    num_types = len(job.type_names)
    given = "SELECT target, source, type, false AS is_reverse, row FROM numbered WHERE source <> target"
    if not job.directed:
        given += f"""
            UNION ALL SELECT source, target, type + {num_types}, true, row FROM numbered WHERE source <> target
        """
    order = "target, source, type, is_reverse, row"
    execute_long(connection, f"CREATE TABLE sorted AS {given} ORDER BY {order}", "sorting edges", report)
    connection.execute("DROP TABLE numbered")
    connection.execute("CHECKPOINT")


def _pieces(connection: DuckDBPyConnection, job: EdgeJob, num_sorted: int) -> Iterator[tuple[int, EdgeTable, Tensor]]:
    """Sorted edges, cut where (target, source, type) changes; beside them whether each is a reverse."""
    names = ("target", "source", "type", "is_reverse", "row")
    left = {name: np.empty(0, dtype=bool if name == "is_reverse" else np.int64) for name in names}
    for begin in range(0, num_sorted, job.max_edges):
        end = min(num_sorted, begin + job.max_edges)
        query = f"SELECT * FROM sorted WHERE rowid >= {begin} AND rowid < {end}"
        found = connection.execute(query).fetchnumpy()
        columns = {name: np.concatenate([left[name], np.asarray(found[name])]) for name in names}
        cut = len(columns["row"])
        if end < num_sorted:
            keys = [columns[name] for name in names[:3]]
            changes = np.flatnonzero(np.logical_or.reduce([key[1:] != key[:-1] for key in keys]))
            cut = int(changes[-1]) + 1 if len(changes) else 0
        left = {name: column[cut:] for name, column in columns.items()}
        yield (
            end,
            _edge_table(job, {name: column[:cut] for name, column in columns.items()}),
            torch.from_numpy(columns["is_reverse"][:cut]),
        )


def _edge_table(job: EdgeJob, columns: dict[str, Array]) -> EdgeTable:
    def extra(name: str) -> Tensor | None:
        return torch.from_numpy(job.columns[name][columns["row"]]) if name in job.columns else None

    return EdgeTable(
        source=torch.from_numpy(columns["source"]),
        target=torch.from_numpy(columns["target"]),
        types=torch.from_numpy(columns["type"].astype(np.int64)) if job.type_names else None,
        weights=extra("edge_weights"),
        times=extra("edge_times"),
        columns=extra("edge_columns"),
    )


class _EdgeWriter:
    """Appends cleaned edges to the arrays of a store, and to `indptr` all nodes that they have passed."""

    def __init__(self, builder: StoreBuilder, job: EdgeJob, num_types: int) -> None:
        self.job, self.builder = job, builder
        self.num_edges = self.num_distinct = self.num_starts = 0
        self.num_types = num_types

    def __enter__(self) -> _EdgeWriter:
        with ExitStack() as stack:

            def opened(name: str, dtype: str, columns: tuple[int, ...] = ()) -> ArrayWriter:
                return stack.enter_context(self.builder.array(name, dtype=dtype, columns=columns))

            self.indptr = opened("indptr", "<i8")
            self.writers = {"source": opened("indices", "<i4" if self.job.num_nodes < 2**31 else "<i8")}
            if self.job.type_names:
                self.writers["types"] = opened("edge_types", edge_type_dtype(self.num_types))
            for name, array in self.job.columns.items():
                writer = opened(name, dtype_name(array), tuple(array.shape[1:]))
                self.writers[name.removeprefix("edge_")] = writer
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.__exit__(*error)  # type: ignore[arg-type]

    def add(self, table: EdgeTable, is_reverse: Tensor) -> None:
        """Whole groups of sorted edges: those given, merged; else the reverses, merged."""
        if not len(table.source):
            return
        num_nodes = self.job.num_nodes
        group = table.groups(num_nodes)
        given = torch.zeros(int(group[-1]) + 1, dtype=torch.bool).index_fill(0, group[~is_reverse], True)
        table = table.select(~is_reverse | ~given[group]).merged(num_nodes)
        self.num_distinct += int(given.sum())
        self._pass_nodes(table.target, int(table.target[-1]))
        self.num_edges += len(table.source)
        for name, writer in self.writers.items():
            writer.append(getattr(table, name))

    def finish(self) -> None:
        """Nodes after the last edge."""
        self._pass_nodes(torch.empty(0, dtype=torch.int64), self.job.num_nodes)

    def _pass_nodes(self, targets: Tensor, last: int) -> None:
        """indptr[n] for all nodes n up to `last`: edges so far, and those of `targets` below n."""
        while self.num_starts <= last:
            nodes = torch.arange(self.num_starts, min(last + 1, self.num_starts + self.job.max_edges))
            self.indptr.append(self.num_edges + torch.searchsorted(targets, nodes))
            self.num_starts += len(nodes)
