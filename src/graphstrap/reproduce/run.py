"""Reproducing a table: compute the cells that the ledger lacks, one row of one graph at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphstrap.datasets import load
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.reproduce.cells import compute_cells
from graphstrap.reproduce.ledger import Ledger
from graphstrap.reproduce.tables import Table, seeds_for
from graphstrap.reproduce.variants import settings_id

Note = Callable[[str], None]


def fill_ledger(
    table: Table,
    ledger: Ledger,
    *,
    variants: Sequence[str],
    datasets: Sequence[str],
    num_seeds: int | None = None,
    quick: bool = False,
    again: bool = False,
    device: str = "auto",
    memory_limit: int | None = None,
    note: Note = print,
    progress: bool = False,
) -> dict[str, str]:
    """Compute what is missing. Returns the graphs that are not at hand, and why."""
    missing: dict[str, str] = {}
    for dataset in datasets:
        try:
            graph = load(dataset)
        except InputError as error:
            missing[dataset] = str(error)
            note(f"{dataset}: not at hand: {error}")
            continue
        for variant in variants:
            seeds = seeds_for(table, variant, num_seeds, quick=quick)
            todo = [s for s in seeds if again or not _has(ledger, graph, variant, s, quick, memory_limit)]
            if not todo:
                continue
            note(f"{dataset}: {variant}, {len(todo)} seeds")
            rows = compute_cells(
                graph,
                variant,
                seeds=todo,
                device=device,
                quick=quick,
                memory_limit=memory_limit,
                progress=progress,
            )
            ledger.add(rows)
    return missing


def _has(ledger: Ledger, graph: Graph, variant: str, seed: int, quick: bool, memory_limit: int | None) -> bool:
    """Whether a cell stands in the ledger; one that ran out of memory does so only for the same limit."""
    wanted = settings_id(variant, graph.name, quick=quick)
    found = ledger.find(dataset=graph.name, variant=variant, settings=wanted, seed=seed)
    return any(not row.get("oom") or row.get("memory_limit") == memory_limit for row in found)
