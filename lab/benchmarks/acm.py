"""Does BGRL help a message-passing network with few labels on a real heterogeneous graph? Paired over draws of them.

    python lab/benchmarks/acm.py --workers 2                       # choose on validation papers, then 20 paired draws
    python lab/benchmarks/acm.py --draws 1 --steps 20 --choose 0   # whether it runs

`hetero_acm_hgb`: papers, authors and subjects, each with its words; 3 classes of papers. Terms are left out: they are
the same words once more. A draw takes 20 training papers a class from the training part; its other papers are for
validation, the test part is scored once. The same MPNN and seed learn on the whole graph from the labels alone, and
from labels and BGRL on all nodes. Steps and rate are chosen for each of the two from one grid, on validation papers of
draws that are not reported. The draws are 100 and up: those below were scored with earlier settings (docs/LOG.md).
Reported: test accuracy of both, the mean of the differences, and the p-value of a paired t test and of Wilcoxon's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from graphstrap.api.estimator import Embedder
from graphstrap.graph import Graph, Splits
from graphstrap.io.datasets import load
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.record import write_record

RESULTS = Path(__file__).parent / "results" / "acm.json"
PER_CLASS, FIRST_DRAW, FIRST_CHOOSING_DRAW = 20, 100, 1000
LEFT_OUT = "term"
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
    assert graph.node_types[-1] == LEFT_OUT
    num_nodes = graph.type_offsets[-2]
    sources, targets = graph.indices.long(), graph.targets.long()
    is_kept = (sources < num_nodes) & (targets < num_nodes)
    numbers = torch.bincount(targets[is_kept], minlength=num_nodes)
    assert graph.edge_types is not None
    assert graph.labels is not None
    assert graph.splits is not None
    return replace(
        graph,
        indptr=torch.cat([numbers.new_zeros(1), numbers.cumsum(0)]).to(graph.indptr.dtype),
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


def score(graph: Graph, settings: dict[str, Any], *, number: int, part: str, device: str) -> float:
    """Accuracy on a part of a draw's papers, in per cent."""
    drawn = draw_labels(graph, number)
    model = Embedder(recipe=RECIPE.with_settings(settings), seed=number, device=device).fit(drawn)
    papers = np.flatnonzero(getattr(drawn.splits, part)[:, 0].numpy())
    assert drawn.labels is not None
    return 100.0 * float((model.classify(drawn, papers).argmax(1) == drawn.labels.numpy()[papers]).mean())


def candidates(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The settings that are tried for each arm."""
    return [
        {
            "arm": arm,
            "settings": {"method.auxiliary_weight": weight, "train.steps": steps, "train.learning_rate": rate},
        }
        for arm, weight in ARMS.items()
        for steps, rate in product(given.steps, given.rates)
    ]


def best_of(tried: list[dict[str, Any]], arm: str) -> dict[str, Any]:
    """An arm's settings that are best on validation papers of the draws that are not reported."""
    best = max((one for one in tried if one["arm"] == arm), key=lambda one: mean(one["validation"] or [0.0]))
    settings: dict[str, Any] = best["settings"]
    return settings


def scores(cases: list[tuple[dict[str, Any], int]], *, part: str, device: str, workers: int) -> Iterator[float]:
    """For each pair of settings and a draw's number, several at once, each in a process."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(_score, *case, part=part, device=device) for case in cases]
        for (settings, number), one in zip(cases, running, strict=True):
            print(f"{part} of draw {number}: {settings} {one.result():.2f}", flush=True)
            yield one.result()


def _score(settings: dict[str, Any], number: int, *, part: str, device: str) -> float:
    return score(load_without_terms(), settings, number=number, part=part, device=device)


def p_values(first: list[float], second: list[float]) -> dict[str, float]:
    from scipy.stats import ttest_rel, wilcoxon

    return {"t": float(ttest_rel(second, first).pvalue), "wilcoxon": float(wilcoxon(second, first).pvalue)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--choose", type=int, default=3, help="draws to choose on")
    parser.add_argument("--steps", type=int, nargs="+", default=[300, 1000])
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 5e-3])
    parser.add_argument("--workers", type=int, default=1, help="processes that share the draws")
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    where: dict[str, Any] = {"device": given.device, "workers": given.workers}
    tried = candidates(given)
    numbers = range(FIRST_CHOOSING_DRAW, FIRST_CHOOSING_DRAW + given.choose)
    found = scores([(one["settings"], number) for one in tried for number in numbers], part="val", **where)
    for one in tried:
        one["validation"] = [next(found) for _ in numbers]
    chosen = {arm: best_of(tried, arm) for arm in ARMS}
    draws = range(FIRST_DRAW, FIRST_DRAW + given.draws)
    cases = [(chosen[arm], number) for number in draws for arm in ARMS]
    found = scores(cases, part="test", **where)
    rows: list[dict[str, Any]] = [{"draw": number, **{arm: next(found) for arm in ARMS}} for number in draws]
    columns = {arm: [row[arm] for row in rows] for arm in ARMS}
    summary = {
        arm: {"mean": mean(values), "stdev": stdev(values) if len(values) > 1 else 0.0}
        for arm, values in columns.items()
    }
    tests = p_values(*columns.values()) if given.draws > 1 else {}
    print(summary, tests)
    command = f"python lab/benchmarks/acm.py --device {given.device} --draws {given.draws} --choose {given.choose}"
    command += f" --steps {' '.join(map(str, given.steps))} --rates {' '.join(map(str, given.rates))}"
    write_record(
        given.to, bench="acm", command=command, rows=rows, chosen=chosen, tried=tried, summary=summary, p_values=tests
    )


if __name__ == "__main__":
    main()
