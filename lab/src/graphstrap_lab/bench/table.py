"""`graphstrap bench table`: a timed run of BGRL's cells in the tables of `graphstrap reproduce`, in the same ledger.

A cell that the ledger holds is not measured again, so that a run that was cut goes on where it stopped; one whose
recipe has changed since is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphstrap.api.estimator import Embedder
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.run.recipe import Recipe, shipped_recipes
from graphstrap_lab.grid import Grid, mean_text, size_text
from graphstrap_lab.reproduce.cells import Filling, compute_cells
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.run import ACCURACIES, Work, fill_ledger
from graphstrap_lab.reproduce.tables import find_table, printed
from graphstrap_lab.reproduce.variants import settings_id

PAPER_GRAPHS = ("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics")
_PRINTED_IN = ("table-3", "small-datasets")


def measure_table(
    names: Sequence[str],
    *,
    ledger: Ledger,
    how: Filling,
    num_seeds: int,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    command: str = "",
) -> Iterator[list[Row]]:
    """The rows of the ledger of each graph in turn, those that it lacked among them.

    `recipe` stands in the place of the graph's own, and `settings` change it; `how.together` seeds are trained in one
    program: by default all of them on CUDA, one after the other on a CPU.
    """
    together = how.together or (num_seeds if how.place.type == "cuda" else 1)
    for name in names:
        graph, chosen = load(name), recipe or (name if name in shipped_recipes() else "default")
        resolved = Embedder(recipe=chosen, device=how.device, settings=dict(settings or {})).resolve(graph)
        work = _work(graph, resolved, how, about={"recipe_name": chosen, "measured_by": command})
        filling = replace(how, recipe=resolved, together=together)
        cells: dict[str, Any] = {"variants": ["bgrl"], "datasets": [graph.name], "num_seeds": num_seeds}
        fill_ledger(find_table("table-3"), ledger, filling, work=work, **cells)
        found = [row for row in work.find(ledger, "bgrl", graph.name, quick=how.quick) if row["seed"] < num_seeds]
        if not found:
            raise InputError(f"{name}: no seed could be measured, for the reason above")
        yield sorted(found, key=lambda row: int(row["seed"]))


def _work(graph: Graph, recipe: Recipe, how: Filling, *, about: Mapping[str, str]) -> Work:
    """That of the tables, by this recipe, on a graph that is at hand; rows say besides how they were measured."""
    wanted = settings_id("bgrl", graph.name, quick=how.quick, recipe=recipe)

    def compute(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
        return [{**row, **about} for row in compute_cells(graph, variant, how, seeds)]

    return replace(ACCURACIES, settings=lambda *cell: wanted, load=lambda *dataset: graph, compute=compute)


def table_grid(rows: Sequence[Row]) -> Grid:
    """One line for each graph and its settings: mean and standard deviation over seeds, mean seconds of a seed, and the
    memory of the program that trained most of them at once."""
    measured = [row for row in rows if "accuracy" in row]
    protocols = list(dict.fromkeys(protocol for row in measured for protocol in row["accuracy"]))
    header = ["graph", "recipe", "seeds", "published", *protocols, "seconds a seed", "at once", "GPU memory"]
    lines = []
    for name, settings in dict.fromkeys((row["dataset"], row["settings"]) for row in measured):
        own = [row for row in measured if (row["dataset"], row["settings"]) == (name, settings)]
        published = next((cell.text for table in _PRINTED_IN if (cell := printed(table, "bgrl", name))), "")
        scores = [[row["accuracy"][protocol] for row in own if protocol in row["accuracy"]] for protocol in protocols]
        lines.append(
            [
                name,
                own[0].get("recipe_name", name),
                str(len(own)),
                published,
                *(mean_text(values) if values else "" for values in scores),
                f"{np.mean([row['train_seconds'] for row in own]):.1f}",
                str(max(row["seeds_together"] for row in own)),
                size_text(max(row["peak_bytes"] for row in own)) if own[0]["device"] == "cuda" else "",
            ]
        )
    note = (
        "Accuracy in % by the protocols `reference` and `paper`, mean ± standard deviation over seeds. Seconds are "
        "those of training, shared out over the seeds that were trained at once; memory is that of all of them."
    )
    return Grid(header, lines, note=note, num_texts=2)
