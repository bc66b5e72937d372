"""Graphs never seen in training: Twitch, leave one country out, in a table by encoder.

    python benchmarks/twitch.py --device cuda --encoders gcn mean-pooling gat         # GRAPHSTRAP_DATA has the graphs
    python benchmarks/twitch.py --device cpu --seeds 1 --tested ptbr --set train.steps=20           # a small check

Six graphs of streamers, one for each country, with one set of feature columns; the label says whether a streamer uses
explicit language. In each of six rotations one country is tested, the next chooses C, and the encoder and the probe are
trained on the other four: the two left out are embedded by the frozen encoder. The figure is the ROC AUC (protocol
`auc`), because the balance of classes differs between countries. Raw features and an untrained encoder stand beside it.
Writes results/twitch.json after every rotation.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphstrap as gs
from graphstrap.bench.record import write_record
from graphstrap.estimator import random_init
from graphstrap.evaluate import evaluate_many
from graphstrap.ops import resolve_device
from graphstrap.recipe import parse_settings
from graphstrap.seeds import embed_on_device

RESULTS = Path(__file__).parent / "results" / "twitch.json"
COUNTRIES = ("de", "engb", "es", "fr", "ptbr", "ru")


def rotated(graph: gs.Graph, tested: str) -> gs.Graph:
    """The six graphs, split so that one country is tested, the next validates and the others train."""
    number = COUNTRIES.index(tested)
    test, val = graph.graph_ids == number, graph.graph_ids == (number + 1) % len(COUNTRIES)
    return replace(graph, splits=gs.Splits(*(mask[:, None] for mask in (~(test | val), val, test))))


def measure(
    graph: gs.Graph, encoder: str, *, seeds: Sequence[int], settings: dict[str, Any], device: str
) -> dict[str, Any]:
    """AUC of trained and of untrained encoders in one rotation, for all seeds."""
    chosen = {**settings, "encoder.name": encoder, "data.training_graphs": "train"}
    estimator = gs.BGRL(settings=chosen, device=device)
    recipe = estimator.resolve(graph)
    started = time.perf_counter()
    models = gs.fit_seeds(estimator, graph, seeds=seeds)
    seconds = time.perf_counter() - started
    where = resolve_device(device)
    untrained = [torch.from_numpy(random_init(graph, recipe, seed=seed, device=device)).to(where) for seed in seeds]
    trained = [embed_on_device(model, graph) for model in models]
    found = evaluate_many([*untrained, *trained], graph, protocol="auc", seeds=[0] * (2 * len(seeds)))
    aucs = [outcome.mean for outcome in found]
    return {
        "encoder": encoder,
        "steps": recipe.train.steps,
        "own_features": recipe.encoder.own_features,
        "random_init": aucs[: len(seeds)],
        "bgrl": aucs[len(seeds) :],
        "train_seconds": round(seconds / len(seeds), 2),
    }


def summarize(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for every encoder: means over rotations and seeds, then BGRL's by the country tested."""
    tested = dict.fromkeys(row["tested"] for row in rows)
    lines = [f"{'encoder':14s} {'raw':>6s} {'random':>7s} {'bgrl':>6s}   " + " ".join(f"{c:>6s}" for c in tested)]
    for encoder in dict.fromkeys(row["encoder"] for row in rows):
        own = [row for row in rows if row["encoder"] == encoder]
        raw, random, bgrl = (np.mean([np.mean(row[key]) for row in own]) for key in ("raw", "random_init", "bgrl"))
        by_country = " ".join(f"{np.mean(row['bgrl']):6.2f}" for row in own)
        lines.append(f"{encoder:14s} {raw:6.2f} {random:7.2f} {bgrl:6.2f}   {by_country}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", default=["gcn"])
    parser.add_argument("--tested", nargs="+", choices=COUNTRIES, default=COUNTRIES, help="countries to leave out")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="settings of the recipe `default`")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    settings = parse_settings(arguments.settings)
    rows: list[dict[str, Any]] = []
    joined = gs.join_graphs([gs.load(f"twitch-{country}") for country in COUNTRIES], name="twitch")
    assert joined.x is not None
    raw: dict[str, float] = {}
    for encoder in arguments.encoders:
        for tested in arguments.tested:
            graph, seeds = rotated(joined, tested), range(arguments.seeds)
            if tested not in raw:
                raw[tested] = gs.evaluate(joined.x, graph, protocol="auc").mean
            row = measure(graph, encoder, seeds=seeds, settings=settings, device=arguments.device)
            rows.append({"tested": tested, "raw": raw[tested], **row})
            print(rows[-1], flush=True)
            command = shlex.join(["python", *sys.argv])
            write_record(arguments.to, bench="twitch", command=command, rows=rows, protocol="auc", num_seeds=len(seeds))
    print("\n".join(summarize(rows)))


if __name__ == "__main__":
    main()
