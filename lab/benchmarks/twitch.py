"""Graphs never seen in training: Twitch, leave one country out, in a table by encoder.

    python lab/benchmarks/twitch.py --device cuda --minutes 9         # GRAPHSTRAP_DATA has the graphs
    python lab/benchmarks/twitch.py --device cpu --seeds 1 --tested ptbr --set train.steps=20           # a small check

Six graphs of streamers, one for each country, with one set of feature columns; the label says whether a streamer uses
explicit language. In each of six rotations one country is tested, the next chooses C, and the encoder and the probe are
trained on the other four: the two left out are embedded by the frozen encoder. The figure is the ROC AUC (protocol
`auc`), because the balance of classes differs between countries. Raw features and an untrained encoder stand beside it.
Writes results/twitch.json after every rotation; the same command goes on with those that it lacks. `pages.py` makes
the table.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import graphstrap as gs
from graphstrap.ops import resolve_device
from graphstrap.run.settings import parse_settings
from harness import RESULTS, Record, Row, beside_random_init, run, within

RAW = "raw features"
COUNTRIES = ("de", "engb", "es", "fr", "ptbr", "ru")


def rotated(graph: gs.Graph, tested: str) -> gs.Graph:
    """The six graphs, split so that one country is tested, the next validates and the others train."""
    number = COUNTRIES.index(tested)
    test, val = graph.graph_ids == number, graph.graph_ids == (number + 1) % len(COUNTRIES)
    return replace(graph, splits=gs.Splits(*(mask[:, None] for mask in (~(test | val), val, test))))


def measure(graph: gs.Graph, encoder: str, *, seeds: Sequence[int], settings: dict[str, Any], device: str) -> Row:
    """AUC of trained and of untrained encoders in one rotation, for all seeds."""
    chosen = {**settings, "encoder.name": encoder, "data.training_graphs": "train"}
    estimator = gs.Embedder(settings=chosen, device=device)
    recipe = estimator.resolve(graph)
    found = beside_random_init(estimator, graph, seeds=seeds, split_seeds=[0] * len(seeds), protocol="auc")
    return {"steps": recipe.train.steps, "own_features": recipe.encoder.own_features, **found}


def main(
    *,
    encoders: Sequence[str] = ("gcn", "mean-pooling", "gat"),
    tested: Annotated[Sequence[str], COUNTRIES] = COUNTRIES,
    seeds: int = 5,
    set_: Sequence[str] = (),
    minutes: float | None = None,
    device: str = "auto",
    to: Path = RESULTS / "twitch.json",
) -> None:
    """`set_` are settings of the recipe `default`."""
    settings = parse_settings([*set_])
    options = {"settings": settings, "num_seeds": seeds, "device": resolve_device(device).type}
    record = Record(to, "twitch", options=options, protocol="auc")
    joined = gs.join_graphs([gs.load(f"twitch-{country}") for country in COUNTRIES], name="twitch")
    with within(minutes):
        for encoder, country in product([*encoders, RAW], tested):
            if record.has(encoder=encoder, tested=country):
                continue
            graph, started = rotated(joined, country), time.perf_counter()
            if encoder == RAW:
                assert graph.x is not None
                row = {"auc": gs.evaluate(graph.x, graph, protocol="auc").mean}
            else:
                row = measure(graph, encoder, seeds=range(seeds), settings=settings, device=device)
            seconds = round(time.perf_counter() - started, 1)
            record.add({"tested": country, "encoder": encoder, **row, "seconds": seconds})


if __name__ == "__main__":
    run(main)
