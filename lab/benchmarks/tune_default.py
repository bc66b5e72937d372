"""How `default` was chosen: by validation accuracy on every homogeneous graph at hand, each left out in its turn.

    python lab/benchmarks/tune_default.py train --device cuda --minutes 9   # GRAPHSTRAP_DATA names the folder of graphs
    python lab/benchmarks/tune_default.py train --device cuda --share 1/3   # every third graph: three such at once
    python lab/benchmarks/tune_default.py choose

The candidates below were written down before any of them was trained. Each is trained on each graph, 2 seeds; what may
be appended to its embedding is tried on the same embedding. A probe is fitted on 10 % of the labelled nodes and scored
on the next 10 %, 3 random splits of seed 0, whose test nodes are left alone. `choose` says, for each graph, which
candidate and which rule for appending is best on all the others, and what that rule scores on the graph that was left
out. What is best on all of them was taken, but for the columns averaged over two hops (worth 0.1 on average, they would
need a pass over the neighbours wherever nodes are embedded) and for more steps on small graphs, where they do nothing.
Beside it: how a graph fares that takes the candidate whose embeddings have the highest effective rank for their width,
a probe that needs no labels. Rows go to results/tune_default.jsonl as they come, and the same command goes on.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import graphstrap as gs
from graphstrap.api.embed import embed_seeds
from graphstrap.api.ensemble import fit_seeds
from graphstrap.evaluation.protocols import probe_runs
from graphstrap.evaluation.task import Task, tenths
from graphstrap.graph import CLEAN, Graph
from graphstrap.graph.blocks import is_bag, sample_rows, take_rows
from graphstrap.io.datasets import describe
from graphstrap.nn.features import FeatureTransform, OwnFeatures, _row_sums, _unit_rows
from graphstrap.ops import propagate, resolve_device
from graphstrap.run.defaults import Statistics, choose_recipe
from graphstrap.run.recipe import Recipe
from graphstrap.train.log import describe_moments, embedding_moments
from graphstrap_lab.reproduce.cells import where_from
from graphstrap_lab.reproduce.deadline import Deadline, TimeUpError
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.variants import changed_settings, settings_digest

RESULTS = Path(__file__).parent / "results" / "tune_default.jsonl"
NUM_SPLITS, SEEDS = 3, (0, 1)
FEW_COLUMNS, HARDLY_ALIKE = 30, 0.05
NUM_PAIRS = 10_000  # linked nodes that are compared

# The recipe that stood before, from which the candidates differ.
BEFORE = {"train.steps": 300, "train.warmup_steps": 30}

# What differs from it on a graph; masking, dropping and widths are scaled, not replaced. `structure`: structural
# columns beside features that are few, or hardly alike in linked nodes.
CANDIDATES: dict[str, dict[str, Any]] = {
    "as it was": {},
    "mask x 0.5": {"mask": 0.5},
    "mask x 1.5": {"mask": 1.5},
    "drop x 0.5": {"drop": 0.5},
    "drop x 1.5": {"drop": 1.5},
    "mask and drop x 0.5": {"mask": 0.5, "drop": 0.5},
    "mask and drop x 1.5": {"mask": 1.5, "drop": 1.5},
    "1000 steps": {"settings": {"train.steps": 1000, "train.warmup_steps": 100}},
    "rate 0.003": {"settings": {"train.learning_rate": 3e-3}},
    "twice as wide": {"width": 2},
    "one layer": {"settings": {"encoder.hidden_sizes": []}},
    "layer norm": {"settings": {"encoder.norm": "layer"}},
    "structure": {"structure": True},
    "neighbours": {"settings": {"method.target_hops": 1}},
}
# Columns of a node's own features, and of features averaged over two hops, appended to the embedding.
APPENDED = {
    "nothing": (0, 0),
    "own 64": (64, 0),
    "own 256": (256, 0),
    "own 512": (512, 0),
    "own 64, hops 64": (64, 64),
}
THRESHOLDS = (0.02, 0.05, 0.1, 2.0)  # append where linked nodes are less alike than this
SMALL_WIDTH = 256  # of embeddings below 5,000 nodes
BY_SIZE = "1000 steps from 5,000 nodes on"
SHIPPED = (BY_SIZE, "own 64", 2.0)


def homogeneous_graphs() -> list[str]:
    names = [info.name for info in describe() if info.on_disk]
    return [name for name in names if not name.startswith("hetero") and name != "arxiv-like"]


def recipe_for(graph: Graph, candidate: dict[str, Any], *, likeness: float, steps: int | None) -> Recipe:
    base, num_columns = choose_recipe(graph)[0], Statistics.of(graph).num_columns
    views, encoder, width = base.views, base.encoder, candidate.get("width", 1)
    settings = {
        "views.feature_mask_probs": [candidate.get("mask", 1.0) * p for p in views.feature_mask_probs],
        "views.edge_drop_probs": [candidate.get("drop", 1.0) * p for p in views.edge_drop_probs],
        "encoder.own_features": 0,
        "encoder.hidden_sizes": [width * size for size in encoder.hidden_sizes],
        "encoder.embedding_size": width * encoder.embedding_size,
        **BEFORE,
        **candidate.get("settings", {}),
    }
    is_vague = num_columns < FEW_COLUMNS or likeness < HARDLY_ALIKE
    if candidate.get("structure") and num_columns and is_vague:
        settings["data.structural_columns"] = "always"
    if steps is not None:
        settings |= {"train.steps": steps, "train.warmup_steps": steps // 10}
    return base.with_settings({**settings, "train.log_every": 10_000})


def likeness_of_neighbours(graph: Graph) -> float:
    """How much more alike linked nodes are than random ones: the difference of their mean cosines, features centred.

    About 0.1 to 0.3 on citation and co-author graphs, below 0.03 where links say nothing about features.
    """
    if graph.x is None:
        return 1.0
    scaling = "row" if is_bag(graph.x) else "column"
    block = FeatureTransform.fit(graph, scaling=scaling, structural_size=1)(graph).features[0]
    assert block is not None
    random = np.random.default_rng(0)
    chosen = random.choice(graph.num_edges, min(NUM_PAIRS, graph.num_edges), replace=False)
    edges = torch.from_numpy(chosen).to(graph.device)
    source, target = (
        graph.indices.index_select(0, edges).long(),
        torch.searchsorted(graph.indptr, edges, right=True) - 1,
    )
    others = torch.from_numpy(random.permutation(target.cpu().numpy())).to(graph.device)
    from_rows, into_rows, other_rows = (_unit_rows(take_rows(block, rows)) for rows in (source, target, others))
    mean = np.asarray(_unit_rows(sample_rows(block)).mean(axis=0)).ravel()
    linked, apart = centred_cosine(from_rows, into_rows, mean), centred_cosine(from_rows, other_rows, mean)
    return float(linked.mean() - apart.mean())


def centred_cosine(one: Any, other: Any, mean: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """cos(a - mean, b - mean) of each pair of rows, without making sparse rows dense."""
    square = mean @ mean
    one_mean, other_mean = one @ mean, other @ mean
    product = _row_sums(one, other) - one_mean - other_mean + square
    lengths = (_row_sums(one, one) - 2 * one_mean + square) * (_row_sums(other, other) - 2 * other_mean + square)
    result: np.ndarray[Any, Any] = product / np.sqrt(np.maximum(lengths, 1e-12))
    return result


def columns_to_append(graph: Graph, device: torch.device) -> dict[str, list[Tensor]]:
    """For each kind, tables whose rows have length 1; none for a graph without features."""
    if graph.x is None:
        return {name: [] for name in APPENDED}
    data = choose_recipe(graph)[0].data
    transform = FeatureTransform.fit(graph, scaling=data.feature_scaling, structural_size=data.structural_size)
    prepared = transform(graph)
    widest = max(size for sizes in APPENDED.values() for size in sizes)
    own = OwnFeatures.fit(prepared, num_columns=widest).append_to(torch.zeros(graph.num_nodes, 0), prepared)
    hops = propagate(prepared, CLEAN, propagate(prepared, CLEAN, own))
    kinds = {
        name: [F.normalize(table[:, :size], dim=1).to(device) for table, size in zip((own, hops), sizes, strict=True)]
        for name, sizes in APPENDED.items()
    }
    return {name: [table for table in tables if table.shape[1]] for name, tables in kinds.items()}


def validation_scores(embeddings: Sequence[Tensor], graph: Graph) -> list[float]:
    tasks = [Task.of(h, graph, num_runs=NUM_SPLITS) for h in embeddings]
    splits = [task.random_splits(tenths) for task in tasks]
    blind = [[split._replace(test=split.val) for split in own] for own in splits]
    return [round(100.0 * float(np.mean(runs)), 4) for runs in probe_runs(tasks, blind)]


def measure(
    graph: Graph, recipe: Recipe, appended: dict[str, list[Tensor]], *, device: torch.device
) -> list[dict[str, Any]]:
    started = time.perf_counter()
    models = fit_seeds(gs.Embedder(recipe=recipe, device=device.type), graph, seeds=SEEDS)
    seconds = round((time.perf_counter() - started) / len(SEEDS), 2)
    embeddings = embed_seeds([model.model_ for model in models], graph, device=device)
    tables = [torch.cat([F.normalize(h, dim=1), *columns], dim=1) for h in embeddings for columns in appended.values()]
    scores = np.split(np.array(validation_scores(tables, graph)), len(SEEDS))
    return [
        {
            "seed": seed,
            "train_seconds": seconds,
            "loss": model.metrics_[-1]["loss"],
            "rank_of_width": round(describe_moments(*embedding_moments(h))["effective_rank"] / h.shape[1], 4),
            "validation": dict(zip(appended, own.tolist(), strict=True)),
        }
        for seed, model, h, own in zip(SEEDS, models, embeddings, scores, strict=True)
    ]


def train(arguments: argparse.Namespace) -> None:
    ledger, device = Ledger(arguments.to), resolve_device(arguments.device)
    number, shares = (int(part) for part in arguments.share.split("/"))
    try:
        with Deadline(arguments.minutes).enforced():
            for name in (arguments.graphs or homogeneous_graphs())[number - 1 :: shares]:
                for row in missing_rows(name, ledger, device=device, steps=arguments.steps):
                    ledger.add(row)
                    print(name, *[row[0][key] for key in ("variant", "train_seconds", "validation")], flush=True)
    except TimeUpError:
        print("stopped: the time is up; the same command goes on from here")


def missing_rows(name: str, ledger: Ledger, *, device: torch.device, steps: int | None) -> Iterator[list[Row]]:
    """For each candidate that the ledger lacks, a row for each seed."""
    graph = gs.load(name)
    likeness = likeness_of_neighbours(graph)
    appended: dict[str, list[Tensor]] = {}
    for label, candidate in CANDIDATES.items():
        recipe = recipe_for(graph, candidate, likeness=likeness, steps=steps)
        key = {"dataset": name, "variant": label, "settings": settings_digest(recipe, "tune-default")}
        if len(ledger.find(**key)) == len(SEEDS):
            continue
        appended = appended or columns_to_append(graph, device)
        shared = {**key, "recipe": changed_settings(recipe), "likeness": likeness, **where_from(device)}
        yield [{**shared, **row} for row in measure(graph, recipe, appended, device=device)]


def choose(arguments: argparse.Namespace) -> None:
    by_cell: dict[tuple[str, str], list[Row]] = {}
    for row in Ledger(arguments.to).find():
        by_cell.setdefault((row["dataset"], row["variant"]), []).append(row)
    names = list(dict.fromkeys(name for name, _ in by_cell))
    whole = [name for name in names if all((name, label) in by_cell for label in CANDIDATES)]
    print(f"{len(whole)} graphs; left out, since candidates are missing: {sorted(set(names) - set(whole)) or 'none'}")
    for name in whole:  # added after the trials were seen: more steps on larger graphs alone
        is_small = by_cell[name, "as it was"][0]["recipe"].get("encoder.embedding_size") == SMALL_WIDTH
        by_cell[name, BY_SIZE] = by_cell[name, "as it was" if is_small else "1000 steps"]
    ways = [("nothing", 0.0), *itertools.product([kind for kind in APPENDED if kind != "nothing"], THRESHOLDS)]
    rules = [(label, *way) for label in (*CANDIDATES, BY_SIZE) for way in ways]
    table = np.array([[score(by_cell[graph, rule[0]], *rule[1:]) for rule in rules] for graph in whole])
    before = table[:, rules.index(("as it was", "own 64", 0.05))]  # the recipe that stands
    table -= before[:, None]  # graphs differ in difficulty, which no rule can change
    left_out = [int(np.delete(table, k, axis=0).mean(axis=0).argmax()) for k in range(len(whole))]
    for k, graph in enumerate(whole):
        shipped = table[k, rules.index(SHIPPED)]
        print(f"{graph:22s} {table[k, left_out[k]]:+.2f} by {rules[left_out[k]]}; {shipped:+.2f} by what ships")
    gains = [table[k, rule] for k, rule in enumerate(left_out)]
    print(f"{np.mean(gains):+.3f} on average over the recipe that stands, each graph by the choice of all others")
    print("best on all graphs:")
    for place in np.argsort(-table.mean(axis=0))[:12]:
        print(f"{table.mean(axis=0)[place]:+.3f} (worst {table[:, place].min():+.2f})  {rules[place]}")
    print("each candidate over the one that stands, own 64 below 0.05:")
    for label in CANDIDATES:
        gain = table[:, rules.index((label, "own 64", 0.05))]
        low, high = int(gain.argmin()), int(gain.argmax())
        ends = f"{whole[low]} {gain[low]:+.2f}, {whole[high]} {gain[high]:+.2f}"
        print(f"{gain.mean():+.3f}  {label:22s} from {ends}")
    by_rank = [max(CANDIDATES, key=ranks_of(by_cell, graph).__getitem__) for graph in whole]
    gains = [table[k, rules.index((label, "own 64", 0.05))] for k, label in enumerate(by_rank)]
    print(f"{np.mean(gains):+.3f} (worst {min(gains):+.2f})  the candidate whose embedding fills most of its columns")


def ranks_of(by_cell: dict[tuple[str, str], list[Row]], graph: str) -> dict[str, float]:
    """Effective rank as a part of the width, by candidate."""
    return {label: float(np.mean([row["rank_of_width"] for row in by_cell[graph, label]])) for label in CANDIDATES}


def score(rows: Sequence[Row], kind: str, threshold: float) -> float:
    return float(np.mean([row["validation"][kind if row["likeness"] < threshold else "nothing"] for row in rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "choose"])
    parser.add_argument("--graphs", nargs="*", default=None)
    parser.add_argument("--share", default="1/1", help="2/3 for the second of every three graphs")
    parser.add_argument("--steps", type=int, default=None, help="fewer for all, to try the script")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many; finished rows stay")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    {"train": train, "choose": choose}[arguments.what](arguments)


if __name__ == "__main__":
    main()
