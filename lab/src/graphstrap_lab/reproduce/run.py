"""Filling a ledger: compute the cells that it lacks, a group of seeds of one row of one graph at a time.

The seeds of a group are trained in one program and evaluated together, which is what fills a GPU; the ledger has them
as soon as they are done, so that a command that is killed loses one group at most.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from graphstrap.api.ensemble import fit_seeds
from graphstrap.api.estimator import Embedder
from graphstrap.errors import DivergedError, InputError
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.ops.memory import free_memory
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.measure import PeakMemory
from graphstrap_lab.reproduce.cells import (
    NUM_CURVE_SEEDS,
    Filling,
    compute_cells,
    describe_cell,
    identity_of,
    refusal_of,
)
from graphstrap_lab.reproduce.deadline import TimeUpError, expected_seconds
from graphstrap_lab.reproduce.ledger import Ledger, Row, of_one_graph
from graphstrap_lab.reproduce.memory import estimate_bytes, refusal, still_stands
from graphstrap_lab.reproduce.tables import Table, seeds_for
from graphstrap_lab.reproduce.variants import VARIANTS, name_in_ledger, settings_id, why_not

MOST_TOGETHER = 20
_SHARE_OF_MEMORY = 0.4  # for the steps of a group: their captures, and the embeddings and probes that follow


@dataclass(frozen=True)
class Work:
    """What the cells of a kind of table are made by.

    Args:
        settings: tells one set of settings of a row on a graph from another: (row, graph, quick).
        compute: a row for each seed: (graph, row, how, seeds).
        load: a graph by name.
        together: how many seeds are computed in one program: (graph, row, how).
        is_refused: whether a row does not fit the memory limit that was asked for: (graph, row, how).
    """

    settings: Callable[[str, str, bool], str]
    compute: Callable[[Graph, str, Filling, Sequence[int]], list[Row]]
    load: Callable[[str, Filling], Graph] = lambda name, how: load(name)
    together: Callable[[Graph, str, Filling], int] = lambda graph, variant, how: 1
    is_refused: Callable[[Graph, str, Filling], bool] = lambda graph, variant, how: False

    def find(self, ledger: Ledger, variant: str, dataset: str, *, quick: bool) -> list[Row]:
        """The seeds of a row on a graph, as its settings are now."""
        settings = self.settings(variant, dataset, quick)
        return of_one_graph(ledger.find(dataset=dataset, variant=name_in_ledger(variant), settings=settings))


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
    num_left, device = 0, how.place.type
    size = how.together or work.together(graph, variant, how)
    groups = deque(list(todo[first : first + size]) for first in range(0, len(todo), size))
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


def _has(table: Table, how: Filling, found: Sequence[Row], *, seed: int, is_refused: bool) -> bool:
    """Whether a cell is among the rows found of it. One that ran out of memory stands for the same limit alone or,
    without one, until more is free; one that was computed for no limit that refuses it."""
    free = free_memory(how.place)
    if any(row.get("oom") and still_stands(row, limit=how.memory_limit, free=free) for row in found):
        return True
    computed = [row for row in found if not row.get("oom") and not is_refused]
    if table.kind == "curves" and seed < NUM_CURVE_SEEDS:
        return any(row.get("curve") for row in computed)
    return bool(computed)


def train_row(
    graph: Graph,
    variant: str,
    recipe: Recipe,
    how: Filling,
    seeds: Sequence[int],
    *,
    settings: str,
    score: Callable[[list[Embedder]], Iterable[Row]],
) -> list[Row]:
    """The models of a figure's row, trained together: a row of the ledger for each seed with what `score` makes of them
    or, where one would not fit, why not."""
    device, shared = how.place, describe_cell(graph, variant, recipe, how, settings=settings)
    refused = refusal(graph, recipe, limit=how.limit, on_cpu=device.type == "cpu")
    if refused is not None:
        return [{**shared, "oom": refused, "free_bytes": free_memory(device), "seed": seed} for seed in seeds]
    started = time.perf_counter()
    with PeakMemory(device) as memory:
        fitted = fit_seeds(Embedder(recipe=recipe, device=str(device)), graph, seeds=seeds, progress=how.progress)
    shared["train_seconds"] = round((time.perf_counter() - started) / len(seeds), 3)
    shared["peak_bytes"] = memory.peak_bytes
    return [{**shared, "seed": seed, **found} for seed, found in zip(seeds, score(fitted), strict=True)]


def seeds_together(graph: Graph, variant: str, how: Filling) -> int:
    """How many seeds are trained in one program: as many as the memory holds on CUDA, one on a CPU. A memory limit is
    for each model, not for all of them together."""
    device, kind = how.place, VARIANTS[variant].kind
    if device.type != "cuda" or kind not in ("trained", "random-init", "raw"):
        return 1
    if kind != "trained":
        return MOST_TOGETHER
    needed = estimate_bytes(graph, how.recipe_of(variant, graph.name))
    return max(1, min(MOST_TOGETHER, int(_SHARE_OF_MEMORY * free_memory(device) / needed)))


ACCURACIES = Work(
    settings=lambda variant, dataset, quick: settings_id(variant, dataset, quick=quick),
    compute=compute_cells,
    together=seeds_together,
    is_refused=lambda graph, variant, how: how.memory_limit is not None and bool(refusal_of(graph, variant, how)),
)
