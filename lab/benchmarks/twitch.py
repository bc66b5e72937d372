"""Graphs never seen in training: Twitch, leave one country out, in a table by encoder.

    python lab/benchmarks/twitch.py --device cuda --minutes 9         # GRAPHSTRAP_DATA has the graphs
    python lab/benchmarks/twitch.py --device cpu --seeds 1 --tested ptbr --set train.steps=20           # a small check

Six graphs of streamers, one for each country, with one set of feature columns; the label says whether a streamer uses
explicit language. In each of six rotations one country is tested, the next chooses C, and the encoder and the probe are
trained on the other four: the two left out are embedded by the frozen encoder. The figure is the ROC AUC (protocol
`auc`), because the balance of classes differs between countries. Raw features and an untrained encoder stand beside it.
Writes results/twitch.json after every rotation; the same command goes on with those that it lacks.
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
from graphstrap.api.ensemble import embed_on_device
from graphstrap.api.estimator import random_init
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.ops import resolve_device
from graphstrap.run.settings import parse_settings
from graphstrap_lab.bench.record import kept_rows, write_record
from graphstrap_lab.reproduce.deadline import Deadline, TimeUpError

RESULTS = Path(__file__).parent / "results" / "twitch.json"
RAW = "raw features"
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
    estimator = gs.Embedder(settings=chosen, device=device)
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


def measure_raw(graph: gs.Graph) -> dict[str, Any]:
    assert graph.x is not None
    return {"encoder": RAW, "auc": gs.evaluate(graph.x, graph, protocol="auc").mean}


def summarize(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for every encoder: means over rotations and seeds, then BGRL's by the country tested. BGRL less random
    init and less raw features: in how many rotations it wins."""
    raw = {row["tested"]: row["auc"] for row in rows if row["encoder"] == RAW}
    lines = [
        f"{'encoder':14s} {'raw':>6s} {'random':>7s} {'bgrl':>6s}  {'wins':>9s}   " + " ".join(f"{c:>6s}" for c in raw)
    ]
    for encoder in dict.fromkeys(row["encoder"] for row in rows if row["encoder"] != RAW):
        own = [row for row in rows if row["encoder"] == encoder and row["tested"] in raw]
        if not own:
            continue
        random, bgrl = (np.array([np.mean(row[key]) for row in own]) for key in ("random_init", "bgrl"))
        plain = np.array([raw[row["tested"]] for row in own])
        wins = f"{(bgrl > random).sum()} {(bgrl > plain).sum()} of {len(own)}"
        by_country = {row["tested"]: np.mean(row["bgrl"]) for row in own}
        cells = " ".join(f"{by_country[c]:6.2f}" if c in by_country else "      " for c in raw)
        lines.append(f"{encoder:14s} {plain.mean():6.2f} {random.mean():7.2f} {bgrl.mean():6.2f}  {wins:>9s}   {cells}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", default=["gcn", "mean-pooling", "gat"])
    parser.add_argument("--tested", nargs="+", choices=COUNTRIES, default=COUNTRIES, help="countries to leave out")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="settings of the recipe `default`")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many; finished rotations stay")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    settings, seeds = parse_settings(arguments.settings), range(arguments.seeds)
    options = {"settings": settings, "num_seeds": arguments.seeds, "device": resolve_device(arguments.device).type}
    rows = kept_rows(arguments.to, options=options)
    joined = gs.join_graphs([gs.load(f"twitch-{country}") for country in COUNTRIES], name="twitch")
    try:
        with Deadline(arguments.minutes).enforced():
            for encoder in [*arguments.encoders, RAW]:
                for tested in arguments.tested:
                    if any(row["encoder"] == encoder and row["tested"] == tested for row in rows):
                        continue
                    graph, started = rotated(joined, tested), time.perf_counter()
                    if encoder == RAW:
                        row = measure_raw(graph)
                    else:
                        row = measure(graph, encoder, seeds=seeds, settings=settings, device=arguments.device)
                    rows.append({"tested": tested, **row, "seconds": round(time.perf_counter() - started, 1)})
                    print(rows[-1], flush=True)
                    command = shlex.join(["python", *sys.argv])
                    write_record(
                        arguments.to, bench="twitch", command=command, rows=rows, protocol="auc", options=options
                    )
    except TimeUpError:
        print("stopped: the time is up; the same command goes on from here")
    print("\n".join(summarize(rows)))


if __name__ == "__main__":
    main()
