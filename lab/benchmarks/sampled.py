"""Does training on sampled batches reach what training on the whole graph reaches? Coauthor Physics, over seeds.

    python lab/benchmarks/sampled.py                                       # GRAPHSTRAP_DATA has the graph
    python lab/benchmarks/sampled.py --dataset cora --seeds 0 --steps 20   # whether it runs

The dataset's shipped recipe, its steps and rates included, but every step sees a subgraph around so many roots. The
whole graph is embedded and scored by the protocols `reference` and `paper`. What it is compared with stands in the
ledger of the tables: the same recipe on the whole graph. Writes results/sampled.json after every seed; the same command
goes on with those that it lacks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import graphstrap as gs
from graphstrap.api.ensemble import embed_on_device
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import load_recipe
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.variants import settings_id
from harness import RESULTS, Record, Row, run

PROTOCOLS = ("reference", "paper")


def measure(graph: gs.Graph, settings: dict[str, Any], *, seed: int, device: str) -> Row:
    recipe = load_recipe(graph.name).with_settings(settings)
    started = time.perf_counter()
    model = gs.Embedder(recipe=recipe, seed=seed, device=device).fit(graph)
    seconds = time.perf_counter() - started
    h = embed_on_device(model, graph)
    scores = {protocol: gs.evaluate(h, graph, protocol=protocol, seed=seed).mean for protocol in PROTOCOLS}
    return {"seed": seed, **scores, "steps": recipe.train.steps, "train_seconds": round(seconds, 1)}


def over_seeds(rows: Sequence[Row], protocol: str) -> Row:
    values = [row[protocol] for row in rows]
    spread = round(stdev(values), 3) if len(values) > 1 else None
    return {"num_seeds": len(values), "mean": round(mean(values), 3) if values else None, "stdev": spread}


def main(
    *,
    dataset: str = "coauthor-physics",
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    steps: int | None = None,
    batch_size: int = 256,
    fan_outs: Sequence[int] = (5, 5),
    device: str = "auto",
    ledger: Path = RESULTS / "ledger.jsonl",
    to: Path = RESULTS / "sampled.json",
) -> None:
    """`steps`, where they are not the recipe's."""
    graph, known = gs.load(dataset), settings_id("bgrl", dataset, quick=False)
    rows = Ledger(ledger).find(dataset=dataset, variant="bgrl", settings=known)
    whole = [row["accuracy"] for row in rows if row.get("accuracy")]
    settings: dict[str, Any] = {"sampling.fan_outs": fan_outs, "sampling.batch_size": batch_size}
    if steps:
        settings |= {"train.steps": steps, "train.warmup_steps": steps // 10}
    record = Record(to, "sampled", options={"dataset": dataset, **settings, "device": resolve_device(device).type})
    for seed in seeds:
        if not record.has(seed=seed):
            record.add(measure(graph, settings, seed=seed, device=device))
    sides = {"whole": whole, "sampled": record.rows}
    summary = {one: {name: over_seeds(side, one) for name, side in sides.items()} for one in PROTOCOLS}
    record.write(summary=summary)
    print(summary)


if __name__ == "__main__":
    run(main)
