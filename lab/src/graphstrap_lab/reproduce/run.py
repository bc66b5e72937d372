"""Reproducing a table: compute the cells that the ledger lacks, a group of seeds of one row of one graph at a time.

The seeds of a group are trained in one program and evaluated together, which is what fills a GPU; the ledger has them
as soon as they are done, so that a command that is killed loses one group at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from graphstrap.errors import DivergedError, InputError
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.ops import resolve_device
from graphstrap.ops.memory import free_memory
from graphstrap.train.parallel.workers import ALONE, Workers
from graphstrap_lab.bench.scale import is_out_of_memory
from graphstrap_lab.reproduce.cells import compute_cells, identity_of, refusal_of
from graphstrap_lab.reproduce.curves import NUM_CURVE_SEEDS
from graphstrap_lab.reproduce.deadline import Deadline, TimeUpError, expected_seconds
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.memory import estimate_bytes, still_stands
from graphstrap_lab.reproduce.tables import Table, seeds_for
from graphstrap_lab.reproduce.variants import VARIANTS, name_in_ledger, recipe_of, settings_id, why_not

Note = Callable[[str], None]

MOST_TOGETHER = 20
_SHARE_OF_MEMORY = 0.4  # for the steps of a group: their captures, and the embeddings and probes that follow


@dataclass(frozen=True)
class Filling:
    """How cells are computed.

    Args:
        together: seeds in one program; None for as many as fit on CUDA, and 1 on a CPU.
        again: compute cells that the ledger holds already, too.
        note: is told what is being computed, `warn` what could not be.
        workers: each computes its share of every row's seeds.
        unfinished: a folder for long cells that are cut in the middle: the next command goes on with them.
    """

    quick: bool = False
    again: bool = False
    device: str = "auto"
    memory_limit: int | None = None
    together: int | None = None
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    note: Note = print
    warn: Note = print
    workers: Workers = ALONE
    progress: bool = False
    unfinished: Path | None = None


@dataclass(frozen=True)
class Work:
    """What the cells of a kind of table are made by.

    Args:
        load: a graph by name.
        settings: tells one set of settings of a row on a graph from another: (row, graph, quick).
        compute: a row for each seed: (graph, row, how, seeds).
        together: how many seeds are computed in one program: (graph, row, how).
        is_refused: whether a row does not fit the memory limit that was asked for: (graph, row, how).
    """

    load: Callable[[str, Filling], Graph]
    settings: Callable[[str, str, bool], str]
    compute: Callable[[Graph, str, Filling, Sequence[int]], list[Row]]
    together: Callable[[Graph, str, Filling], int] = lambda graph, variant, how: 1
    is_refused: Callable[[Graph, str, Filling], bool] = lambda graph, variant, how: False


def fill_ledger(
    table: Table,
    ledger: Ledger,
    how: Filling,
    *,
    variants: Sequence[str],
    datasets: Sequence[str],
    num_seeds: int | None = None,
    work: Work | None = None,
) -> dict[str, str]:
    """Compute what is missing, accuracies unless other `work` is given. Returns the graphs that are not at hand, and
    why."""
    work = work or ACCURACIES
    missing: dict[str, str] = {}
    try:
        with how.deadline.enforced():
            for dataset in datasets:
                try:
                    graph = work.load(dataset, how)
                except InputError as error:
                    missing[dataset] = str(error)
                    how.note(f"{dataset}: not at hand: {error}")
                    continue
                for variant in variants:
                    seeds = seeds_for(table, variant, num_seeds, quick=how.quick)
                    _fill_row(table, ledger, how, work, graph, variant, seeds)
    except TimeUpError:
        how.note("stopped: the time is up; the same command goes on from here")
    return missing


def _fill_row(
    table: Table, ledger: Ledger, how: Filling, work: Work, graph: Graph, variant: str, seeds: Sequence[int]
) -> None:
    """A row's cells on one graph. What fails is said and left out: the other rows go on, and after a seed that diverged
    the other seeds."""
    name = f"{graph.name}: {variant}"
    if why_not(variant, graph.name):
        how.note(f"{name}: {why_not(variant, graph.name)}")
        return
    settings = work.settings(variant, graph.name, how.quick)
    cell = {"dataset": graph.name, "variant": name_in_ledger(variant), "settings": settings}
    is_refused = work.is_refused(graph, variant, how)
    found = ledger.find(**cell)
    identity = identity_of(graph) if any(row.get("graph") for row in found) else None
    known = [row for row in found if row.get("graph") in (None, identity)]
    todo = [
        seed
        for seed in how.workers.share(seeds)
        if how.again
        or not _has(table, how, [row for row in known if row["seed"] == seed], seed=seed, is_refused=is_refused)
    ]
    num_left, device = 0, resolve_device(how.device).type
    groups = deque(_groups(todo, how.together or work.together(graph, variant, how)))
    while groups:
        group = groups.popleft()
        expected = expected_seconds(ledger, num_seeds=len(group), device=device, **cell)
        if expected > how.deadline.seconds_left:
            num_left += len(group)
            continue
        how.note(f"{name}, seeds {group[0]} to {group[-1]}" if len(group) > 1 else f"{name}, seed {group[0]}")
        try:
            rows = work.compute(graph, variant, how, group)
        except DivergedError as error:
            how.warn(f"{name}: failed: {' '.join(str(error).split())[:300]}")
            groups.extendleft([seed] for seed in reversed(group) if len(group) > 1)
            continue
        except (InputError, MemoryError, RuntimeError, ValueError) as error:
            how.warn(f"{name}: failed: {' '.join(str(error).split())[:300] or 'out of memory'}")
            return
        ledger.add(rows)  # a ledger that cannot be written ends it all
    if num_left:
        seconds = expected_seconds(ledger, num_seeds=num_left, device=device, **cell)
        how.note(f"{name}: {num_left} seed{'s' if num_left > 1 else ''} left for later, about {seconds:.0f} s in all")


def _compute(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
    """A group in one program or, where the memory is too small for that, in two halves."""
    try:
        return compute_cells(
            graph,
            variant,
            seeds=seeds,
            device=how.device,
            quick=how.quick,
            memory_limit=how.memory_limit,
            progress=how.progress,
        )
    except RuntimeError as error:
        if not is_out_of_memory(error) or len(seeds) == 1:
            raise
    how.note(f"{graph.name}: {variant}: {len(seeds)} seeds do not fit together, trying half as many")
    torch.cuda.empty_cache()
    half = len(seeds) // 2
    return _compute(graph, variant, how, seeds[:half]) + _compute(graph, variant, how, seeds[half:])


def seeds_together(graph: Graph, variant: str, how: Filling) -> int:
    """How many seeds are trained in one program: as many as the memory holds on CUDA, one on a CPU. A memory limit is
    for each model, not for all of them together."""
    device, kind = resolve_device(how.device), VARIANTS[variant].kind
    if device.type != "cuda" or kind not in ("trained", "random-init", "raw"):
        return 1
    if kind != "trained":
        return MOST_TOGETHER
    needed = estimate_bytes(graph, recipe_of(variant, graph.name, quick=how.quick))
    return max(1, min(MOST_TOGETHER, int(_SHARE_OF_MEMORY * free_memory(device) / needed)))


def _groups(seeds: Sequence[int], size: int) -> Iterator[list[int]]:
    for first in range(0, len(seeds), size):
        yield list(seeds[first : first + size])


def _has(table: Table, how: Filling, found: Sequence[Row], *, seed: int, is_refused: bool) -> bool:
    """Whether a cell is among the rows found of it. One that ran out of memory stands for the same limit alone or,
    without one, until more is free; one that was computed for no limit that refuses it."""
    free = free_memory(resolve_device(how.device))
    if any(row.get("oom") and still_stands(row, limit=how.memory_limit, free=free) for row in found):
        return True
    computed = [row for row in found if not row.get("oom") and not is_refused]
    if table.kind == "curves" and seed < NUM_CURVE_SEEDS:
        return any(row.get("curve") for row in computed)
    return bool(computed)


def _is_refused(graph: Graph, variant: str, how: Filling) -> bool:
    if how.memory_limit is None:
        return False
    device = resolve_device(how.device)
    refused = refusal_of(graph, variant, device=device, quick=how.quick, memory_limit=how.memory_limit)
    return refused is not None


ACCURACIES = Work(
    load=lambda name, how: load(name),
    settings=lambda variant, dataset, quick: settings_id(variant, dataset, quick=quick),
    compute=_compute,
    together=seeds_together,
    is_refused=_is_refused,
)
