"""How good the frozen embeddings are while they are learned: the paper's figure 2, on PPI.

A probe is fitted on what the encoder, as if training ended there, makes of the graph: at twenty points of the way, by
the quick protocol that `train.evaluate_every` has (micro-F1 by AdamW where nodes have several labels, accuracy on one
random split of `paper` elsewhere). Training is that of the tables: GATs have the settings of `entropies.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from graphstrap.graph import Graph
from graphstrap.run.recipe import Recipe
from graphstrap_lab.grid import Grid, mean_text, to_csv
from graphstrap_lab.reproduce.cells import Filling
from graphstrap_lab.reproduce.entropies import entropy_recipe
from graphstrap_lab.reproduce.ledger import Row
from graphstrap_lab.reproduce.render import Asked, Report, plot_courses
from graphstrap_lab.reproduce.run import Work, train_row
from graphstrap_lab.reproduce.variants import VARIANTS, recipe_of, settings_digest

NUM_POINTS = 20
METRICS = {"micro_f1": "micro-F1", "accuracy": "accuracy"}  # as training logs them, and as they are called
LEGEND = (
    "What a linear probe makes of the embeddings, in %, after so much of the training: mean over seeds, at the end "
    "± standard deviation (number of seeds). The paper draws its curves, of PPI over 20 seeds, as a picture alone: a "
    "GAT trained by BGRL ends highest, and subsampling the negatives of GRACE costs accuracy."
)
_PARTS = {"a tenth": 0.1, "a quarter": 0.25, "half": 0.5}


def learning_recipe(variant: str, dataset: str, *, quick: bool = False) -> Recipe:
    """The row's, evaluated on the way."""
    make = entropy_recipe if VARIANTS[variant].encoder == "gat" else recipe_of
    recipe = make(variant, dataset, quick=quick)
    every = max(1, recipe.train.steps // NUM_POINTS)
    return recipe.with_settings({"train.evaluate_every": every, "train.log_every": every})


def learning_settings(variant: str, dataset: str, quick: bool) -> str:
    digest = settings_digest(learning_recipe(variant, dataset, quick=quick), "learning")
    return f"{'quick-' if quick else ''}learning-{digest}"


def compute_learning(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
    """A row of the ledger for each seed; its seconds are those of training and of the probes."""
    return train_row(
        graph,
        variant,
        learning_recipe(variant, graph.name, quick=how.quick),
        how,
        seeds,
        settings=learning_settings(variant, graph.name, how.quick),
        score=lambda fitted: [_course(one.metrics_) for one in fitted],
    )


def _course(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was found at each point, and what it is called; nothing on a graph without labels."""
    for logged, name in METRICS.items():
        points = [record for record in records if logged in record]
        if points:
            values = [round(record[logged], 4) for record in points]
            return {"metric": name, "curve": {"step": [record["step"] for record in points], "accuracy": values}}
    return {}


LEARNING = Work(settings=learning_settings, compute=compute_learning)


def report_learning(asked: Asked) -> Report:
    """What the probe found on the way, a line for each row on each graph."""
    rows = asked.rows(LEARNING.find)
    columns = [*_PARTS, "all", "highest", "measure", "seconds a seed"]
    lines = asked.lines(rows, _texts, of="curve", num_columns=len(columns))
    points = [
        [dataset, variant, row["seed"], row["metric"], step, value]
        for (dataset, variant), own in rows.items()
        for row in (row for row in own if "curve" in row)
        for step, value in zip(row["curve"]["step"], row["curve"]["accuracy"], strict=True)
    ]
    csv = to_csv(["dataset", "method", "seed", "measure", "step", "value"], points)
    curves = {(d, VARIANTS[v].title): [row["curve"] for row in own if "curve" in row] for (d, v), own in rows.items()}
    courses = {key: own for key, own in curves.items() if own}
    draw = partial(plot_courses, courses, measure="linear probe, %") if courses else None
    found = [row for own in rows.values() for row in own]
    grid = Grid(["graph", "method", *columns], lines, "Linear probe during training")
    return asked.report([grid], notes=[LEGEND], rows=found, csv=csv, draw=draw)


def _texts(rows: Sequence[Row]) -> list[str]:
    """The columns of a line."""
    steps, values = rows[0]["curve"]["step"], np.array([row["curve"]["accuracy"] for row in rows])
    means = values.mean(axis=0)
    at = [int(np.argmin(np.abs(np.array(steps) / steps[-1] - part))) for part in _PARTS.values()]
    return [
        *(f"{means[place]:.2f}" for place in at),
        f"{mean_text(values[:, -1])} ({len(rows)})",
        f"{means.max():.2f}",
        rows[0]["metric"],
        f"{np.mean([row['train_seconds'] for row in rows]):.0f}",
    ]
