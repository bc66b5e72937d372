"""Does BGRL help a message-passing network with few labels on a real heterogeneous graph? Paired over draws of them.

    python lab/benchmarks/acm.py --workers 2                       # choose on validation papers, then 20 paired draws
    python lab/benchmarks/acm.py --draws 2 --steps 20 --choose 0   # whether it runs

`hetero_acm_hgb`: papers, authors and subjects, each with its words; 3 classes of papers. Terms are left out: they are
the same words once more. A draw takes 20 training papers a class from the training part; its other papers are for
validation, the test part is scored once. The same MPNN and seed learn on the whole graph from the labels alone, and
from labels and BGRL on all nodes. Steps and rate are chosen for each of the two from one grid, on validation papers of
draws that are not reported. The draws are 100 and up: those below were scored with earlier settings (docs/LOG.md).
Reported: test accuracy of both, the mean of the differences, and the p-value of a paired t test and of Wilcoxon's.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from scipy.stats import ttest_rel, wilcoxon

from graphstrap.api.estimator import Embedder
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import row_starts
from graphstrap.io.datasets import load
from graphstrap.run.recipe import Recipe
from harness import RESULTS, Record, Row, run

PER_CLASS, FIRST_DRAW, FIRST_CHOOSING_DRAW = 20, 100, 1000
RECIPE = Recipe().with_settings(
    {
        "data.feature_scaling": "none",
        "views.edge_drop_probs": [0.5, 0.5],
        "views.feature_mask_probs": [0.4, 0.4],
        "encoder.name": "mpnn",
        "encoder.hidden_sizes": [64],
        "encoder.embedding_size": 64,
        "encoder.num_steps": 2,
        "encoder.norm": "batch",
        "encoder.batch_norm_statistics": "recalibrated",
        "encoder.aggregation": "mean",
        "encoder.own_features": 0,
        "method.name": "semi-supervised",
        "method.predictor_hidden_size": 128,
        "train.warmup_steps": 20,
        "train.weight_decay": 1e-5,
        "train.log_every": 100,
    }
)
ARMS = {"supervised": 0.0, "with BGRL": 1.0}  # what the auxiliary loss counts


def load_without_terms() -> Graph:
    """Papers, authors and subjects, and the edges between them. Terms come last, so all others keep their numbers."""
    graph = load("hetero-acm-hgb")
    assert graph.node_types[-1] == "term"
    num_nodes = graph.type_offsets[-2]
    sources, targets = graph.indices.long(), graph.targets.long()
    is_kept = (sources < num_nodes) & (targets < num_nodes)
    numbers = torch.bincount(targets[is_kept], minlength=num_nodes)
    assert graph.edge_types is not None
    assert graph.labels is not None
    assert graph.splits is not None
    return replace(
        graph,
        indptr=row_starts(numbers).to(graph.indptr.dtype),
        indices=graph.indices[is_kept],
        edge_types=graph.edge_types[is_kept],
        node_types=graph.node_types[:-1],
        type_offsets=graph.type_offsets[:-1],
        graph_offsets=(0, num_nodes),
        features=graph.features[:-1],
        labels=graph.labels[:num_nodes],
        splits=graph.splits.map(lambda mask: mask[:num_nodes]),
    )


def draw_labels(graph: Graph, number: int) -> Graph:
    """The graph with 20 training papers a class; the rest of the training part is for validation."""
    assert graph.labels is not None
    assert graph.splits is not None
    random = np.random.default_rng(number)
    labels, pool = graph.labels.numpy(), graph.splits.train[:, 0].numpy()
    train = np.zeros_like(pool)
    for label in range(graph.num_classes):
        train[random.choice(np.flatnonzero(pool & (labels == label)), PER_CLASS, replace=False)] = True
    columns = [torch.from_numpy(mask)[:, None] for mask in (train, pool & ~train)]
    return replace(graph, splits=Splits(columns[0], columns[1], graph.splits.test[:, :1]))


def score(settings: dict[str, Any], *, number: int, part: str, device: str) -> float:
    """Accuracy on a part of a draw's papers, in per cent."""
    drawn = draw_labels(load_without_terms(), number)
    model = Embedder(recipe=RECIPE.with_settings(settings), seed=number, device=device).fit(drawn)
    papers = np.flatnonzero(getattr(drawn.splits, part)[:, 0].numpy())
    assert drawn.labels is not None
    accuracy = 100.0 * float((model.classify(drawn, papers).argmax(1) == drawn.labels.numpy()[papers]).mean())
    print(f"{part} of draw {number}: {settings} {accuracy:.2f}", flush=True)
    return accuracy


def main(
    *,
    device: str = "cpu",
    draws: int = 20,
    choose: int = 3,
    steps: Sequence[int] = (300, 1000),
    rates: Sequence[float] = (1e-3, 5e-3),
    workers: int = 1,
    to: Path = RESULTS / "acm.json",
) -> None:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:

        def scores(candidates: Sequence[Row], numbers: range, part: str) -> list[list[float]]:
            """For each candidate, by draw; several at once, each in a process."""
            running = [
                [pool.submit(score, one["settings"], number=number, part=part, device=device) for number in numbers]
                for one in candidates
            ]
            return [[one.result() for one in row] for row in running]

        tried: list[Row] = []
        for (arm, weight), num_steps, rate in product(ARMS.items(), steps, rates):
            settings = {"method.auxiliary_weight": weight, "train.steps": num_steps, "train.learning_rate": rate}
            tried.append({"arm": arm, "settings": settings})
        choosing = range(FIRST_CHOOSING_DRAW, FIRST_CHOOSING_DRAW + choose)
        for one, values in zip(tried, scores(tried, choosing, "val"), strict=True):
            one["validation"] = values
        chosen = [
            max((one for one in tried if one["arm"] == arm), key=lambda one: sum(one["validation"])) for arm in ARMS
        ]
        tested = range(FIRST_DRAW, FIRST_DRAW + draws)
        columns = dict(zip(ARMS, scores(chosen, tested, "test"), strict=True))
    summary = {arm: {"mean": mean(values), "stdev": stdev(values)} for arm, values in columns.items()}
    tests = {"t": ttest_rel, "wilcoxon": wilcoxon}
    p_values = {name: float(test(*reversed(columns.values())).pvalue) for name, test in tests.items()}
    print(summary, p_values)
    settings_of = {one["arm"]: one["settings"] for one in chosen}
    record = Record(to, "acm", chosen=settings_of, tried=tried, summary=summary, p_values=p_values)
    record.rows = [
        {"draw": draw, **{arm: values[place] for arm, values in columns.items()}} for place, draw in enumerate(tested)
    ]
    record.write()


if __name__ == "__main__":
    run(main)
