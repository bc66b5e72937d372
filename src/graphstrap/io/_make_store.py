"""How a store is made under a cap on memory, whatever it is made from.

A layout writes in-edges and what nodes have; the transpose, the features as asked for and the description follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from graphstrap.edge_table import Cleaning
from graphstrap.errors import InputError
from graphstrap.io._building import StoreBuilder, build_store
from graphstrap.io._database import connect, one_line_errors
from graphstrap.io._write_edges import Report, write_transpose
from graphstrap.io._write_features import FeatureJob, derive_blocks, write_block
from graphstrap.io._write_nodes import NodePart
from graphstrap.io.store import check_feature_dtype

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
