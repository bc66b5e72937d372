"""graphstrap prepare: tables larger than memory, or a folder of OGB's, to a store; and whether a store is whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from graphstrap.cli import _options as o
from graphstrap.errors import InputError

if TYPE_CHECKING:
    from graphstrap.graph import Graph
    from graphstrap.io.store_format import Report


@o.with_table_options
def prepare(
    edges: o.Edges = None,
    nodes: o.Nodes = None,
    ogb: Annotated[
        Path | None, Option(help="A folder of MAG240M, ogbn-mag or ogbn-papers100M, as it is unpacked.")
    ] = None,
    store: Annotated[Path | None, Option(help="A store that is there, to be partitioned.")] = None,
    to: Annotated[Path | None, Option(help="The store to make.")] = None,
    check: Annotated[
        Path | None, Option(help="A store, whole or in parts, to read through: checksums, and all numbers.")
    ] = None,
    partitions: Annotated[
        int, Option(help="Make so many parts, one for each worker (see docs/partitions.md).", min=0)
    ] = 0,
    partitioner: Annotated[str, Option(help="auto, metis, streaming, random.")] = "auto",
    memory: Annotated[str, Option(help="The cap on memory, such as 4GB.")] = "4GB",
    threads: Annotated[int | None, Option(help="Of the sorting [default: as many as cores].", min=1)] = None,
    pca: Annotated[int | None, Option(help="Project wider features on so many directions.", min=1)] = None,
    feature_dtype: Annotated[str, Option(help="fp32, fp16, bf16 or uint8.")] = "fp32",
    derive_features: Annotated[
        bool, Option("--derive-features", help="Node types without features get the mean of their neighbours.")
    ] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace a store that is there.")] = False,
    quiet: o.Quiet = False,
    **columns: Any,
) -> None:
    """Make a store of a graph that may be larger than memory; it is a SOURCE for the other verbs."""
    from graphstrap.io.columns import TableOptions
    from graphstrap.io.ogb import prepare_ogb
    from graphstrap.io.partition import partition_graph
    from graphstrap.io.prepare import PrepareOptions
    from graphstrap.io.store import open_store
    from graphstrap.io.tables import prepare_tables
    from graphstrap.ops.memory import parse_bytes

    tables = o.table_options(columns)
    if check is not None:
        _check(check, quiet=quiet)
        return
    if to is None or [edges, ogb, store].count(None) != 2:
        raise InputError("give --edges (and --nodes), --ogb or --store, and --to STORE; or --check STORE")
    if store is not None and not partitions:
        raise InputError("--store is there already: give --partitions to cut it into parts")
    is_passing = bool(partitions) and store is None  # the whole store is there for the parts alone
    job = PrepareOptions(
        parse_bytes(memory), threads, feature_dtype, pca, derive_features, overwrite=overwrite or is_passing
    )
    if edges is None and (tables != TableOptions(directed=tables.directed) or nodes is not None):
        raise InputError("column options go with --edges, not with --ogb or --store")
    whole = to if not partitions else (store or to.with_name(f".{to.name}.whole"))
    if partitions and to.exists() and not overwrite:
        raise InputError(f"{to} exists: choose another name, or replace it with --overwrite")
    try:
        with _bars(quiet=quiet) as report:
            if edges is not None:
                prepare_tables(edges, nodes, str(whole), options=tables, job=job, report=report)
            elif ogb is not None:
                prepare_ogb(str(ogb), str(whole), directed=tables.directed, job=job, report=report)
            graph = open_store(whole)
            if partitions:
                cut = partition_graph(graph, to, partitions, how=partitioner, overwrite=overwrite, report=report)
    finally:
        if is_passing:
            shutil.rmtree(whole, ignore_errors=True)
    o.note(str(graph.cleaning), quiet=quiet or store is not None)
    print(f"{to}: {graph}" + (f"\n{cut}" if partitions else ""))


def _check(path: Path, *, quiet: bool) -> None:
    """Read a store through, and say that it is whole."""
    from graphstrap.io.parts import PartsInfo, is_parts, verify_parts
    from graphstrap.io.store import verify_store

    verify: Callable[..., PartsInfo | Graph] = verify_parts if is_parts(path) else verify_store
    with _bars(quiet=quiet) as report:
        found = verify(path, progress=lambda done, total: report("reading", done / max(1, total)))
    shown = f"{found.num_parts} parts of {found.info.name!r}" if isinstance(found, PartsInfo) else str(found)
    print(f"{path}: whole: {shown}")


@contextmanager
def _bars(*, quiet: bool) -> Iterator[Report]:
    """One bar for each stage, on stderr."""
    from rich import progress as rich
    from rich.console import Console

    columns = (rich.TextColumn("{task.description:<22}"), rich.BarColumn(), rich.TaskProgressColumn())
    times = (rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, *times, console=Console(stderr=True), disable=quiet) as progress:
        tasks: dict[str, int] = {}

        def report(stage: str, fraction: float) -> None:
            if stage not in tasks:
                for task in tasks.values():  # a stage ends when the next begins
                    progress.update(task, completed=1.0)  # type: ignore[arg-type]
                tasks[stage] = progress.add_task(stage, total=1.0)
            progress.update(tasks[stage], completed=fraction)  # type: ignore[arg-type]

        yield report
        for task in tasks.values():
            progress.update(task, completed=1.0)  # type: ignore[arg-type]
