"""Does BGRL help a message-passing network with few labels on a real heterogeneous graph? Paired over draws of them.

    python benchmarks/acm.py --device cuda --workers 6         # choose on validation papers, then 20 paired draws
    python benchmarks/acm.py --draws 1 --steps 20 --choose 0   # whether it runs

`hetero_acm_hgb`: papers, authors, subjects and terms, 3 classes of papers. A draw takes 20 training papers a class from
the training part; its other papers are for validation, the test part is scored once. The same MPNN and seed learn from
the labels alone and from labels and BGRL, which sees ten papers without a label for each one with. As for MAG240M,
features are principal components, as large as they are: 32 of the papers' words, of which all 1,902 let 60 labels be
learned by heart. Samples go along citations, authors and subjects; terms are the same words once more. What BGRL counts
and how many steps are made is chosen on validation papers of draws that are not reported, for each of the two by
itself.
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
import torch.nn.functional as F
from torch import Tensor

from graphstrap.bench.record import write_record
from graphstrap.datasets import load
from graphstrap.estimator import BGRL
from graphstrap.graph import Graph, Splits
from graphstrap.recipe import Recipe

RESULTS = Path(__file__).parent / "results" / "acm.json"
PER_CLASS, UNLABELLED_RATIO, NUM_COMPONENTS, FIRST_CHOOSING_DRAW = 20, 10, 32, 1000
RELATIONS = [
    direction + relation
    for relation in ("paper|cites|paper", "author|writes|paper", "paper|has_subject|subject")
    for direction in ("", "reverse_")
]
RECIPE = Recipe().with_settings(
    {
        "data.feature_scaling": "none",
        "views.edge_drop_probs": [0.5, 0.5],
        "views.feature_mask_probs": [0.4, 0.4],
        "encoder.name": "mpnn",
        "encoder.hidden_sizes": [64],
        "encoder.embedding_size": 64,
        "encoder.num_steps": 2,
        "encoder.norm": "layer",
        "encoder.aggregation": "mean",
        "encoder.own_features": 0,
        "method.name": "semi-supervised",
        "method.predictor_hidden_size": 128,
        "sampling.fan_outs": [0, 0],
        "sampling.relation_fan_outs": [f"{relation}=10,10" for relation in RELATIONS],
        "sampling.unbiased": False,
        "train.warmup_steps": 20,
        "train.weight_decay": 1e-5,
        "train.log_every": 100,
    }
)
ARMS = {"supervised": [0.0], "with BGRL": [1.0, 3.0]}  # what the auxiliary loss may count


def load_components() -> Graph:
    """The graph with the first principal components of the papers' words, of all nodes that have words."""
    graph = load("hetero-acm-hgb")
    words = [
        None
        if block is None
        else F.normalize((block if isinstance(block, Tensor) else block.to_dense()).float(), dim=1)
        for block in graph.features
    ]
    papers = words[0]
    assert papers is not None
    mean = papers.mean(0)
    directions = torch.linalg.eigh((papers - mean).T @ (papers - mean)).eigenvectors[:, -NUM_COMPONENTS:]
    return replace(graph, features=tuple(None if x is None else (x - mean) @ directions for x in words))


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
    ratio = UNLABELLED_RATIO if settings["method.auxiliary_weight"] else 0
    roots = {"method.unlabelled_ratio": ratio, "sampling.batch_size": PER_CLASS * graph.num_classes * (1 + ratio)}
    settings = {**roots, **settings}
    model = BGRL(recipe=RECIPE.with_settings(settings), seed=number, device=device).fit(drawn)
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
        for arm, weights in ARMS.items()
        for weight, steps, rate in product(weights, given.steps, given.rates)
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
    return score(load_components(), settings, number=number, part=part, device=device)


def p_values(first: list[float], second: list[float]) -> dict[str, float]:
    from scipy.stats import ttest_rel, wilcoxon

    return {"t": float(ttest_rel(second, first).pvalue), "wilcoxon": float(wilcoxon(second, first).pvalue)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--choose", type=int, default=3, help="draws to choose on")
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3])
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
    cases = [(chosen[arm], number) for number in range(given.draws) for arm in ARMS]
    found = scores(cases, part="test", **where)
    rows: list[dict[str, Any]] = [
        {"draw": number, **{arm: next(found) for arm in ARMS}} for number in range(given.draws)
    ]
    columns = {arm: [row[arm] for row in rows] for arm in ARMS}
    summary = {
        arm: {"mean": mean(values), "stdev": stdev(values) if len(values) > 1 else 0.0}
        for arm, values in columns.items()
    }
    tests = p_values(*columns.values()) if given.draws > 1 else {}
    print(summary, tests)
    command = f"python benchmarks/acm.py --device {given.device} --draws {given.draws} --choose {given.choose}"
    command += f" --steps {' '.join(map(str, given.steps))} --rates {' '.join(map(str, given.rates))}"
    write_record(
        given.to, bench="acm", command=command, rows=rows, chosen=chosen, tried=tried, summary=summary, p_values=tests
    )


if __name__ == "__main__":
    main()
