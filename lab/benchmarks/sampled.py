"""Does training on sampled batches reach what training on the whole graph reaches? Coauthor Physics, over seeds.

    python lab/benchmarks/sampled.py                                       # GRAPHSTRAP_DATA has the graph
    python lab/benchmarks/sampled.py --dataset cora --seeds 0 --steps 20   # whether it runs

The dataset's shipped recipe, its steps and rates included, but every step sees a subgraph around so many roots. The
whole graph is embedded and scored by the protocols `reference` and `paper`. What it is compared with stands in the
ledger of the tables: the same recipe on the whole graph. Writes results/sampled.json after every seed; the same command
goes on with those that it lacks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import graphstrap as gs
from graphstrap.api.ensemble import embed_on_device
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import load_recipe
from graphstrap_lab.bench.record import kept_rows, write_record
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.variants import settings_id

RESULTS = Path(__file__).parent / "results"
PROTOCOLS = ("reference", "paper")


def measure(graph: gs.Graph, settings: dict[str, Any], *, seed: int, device: str) -> dict[str, Any]:
    recipe = load_recipe(graph.name).with_settings(settings)
    started = time.perf_counter()
    model = gs.Embedder(recipe=recipe, seed=seed, device=device).fit(graph)
    seconds = time.perf_counter() - started
    h = embed_on_device(model, graph)
    scores = {protocol: gs.evaluate(h, graph, protocol=protocol, seed=seed).mean for protocol in PROTOCOLS}
    return {**scores, "steps": recipe.train.steps, "train_seconds": round(seconds, 1)}


def on_the_whole_graph(dataset: str, ledger: Ledger) -> dict[str, list[float]]:
    """The accuracies that the ledger holds, one for each seed."""
    wanted = (dataset, "bgrl", settings_id("bgrl", dataset, quick=False))
    rows = [row for row in ledger.rows if (row["dataset"], row["variant"], row["settings"]) == wanted]
    by_seed = {row["seed"]: row["accuracy"] for row in rows if row.get("accuracy")}
    return {protocol: [accuracy[protocol] for accuracy in by_seed.values()] for protocol in PROTOCOLS}


def summarize(rows: list[dict[str, Any]], whole: dict[str, list[float]]) -> list[dict[str, Any]]:
    """For every protocol both means, their deviations over seeds, and the difference."""
    lines = []
    for protocol in PROTOCOLS:
        line: dict[str, Any] = {"protocol": protocol}
        for name, values in (("whole", whole[protocol]), ("sampled", [row[protocol] for row in rows])):
            line[name] = {"num_seeds": len(values), "mean": round(mean(values), 3) if values else None}
            line[name]["stdev"] = round(stdev(values), 3) if len(values) > 1 else None
        if rows and whole[protocol]:
            line["difference"] = round(line["sampled"]["mean"] - line["whole"]["mean"], 3)
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="coauthor-physics")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, help="[default: the recipe's]")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--fan-outs", type=int, nargs="+", default=[5, 5])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--ledger", type=Path, default=RESULTS / "ledger.jsonl")
    parser.add_argument("--to", type=Path, default=RESULTS / "sampled.json")
    given = parser.parse_args()
    graph = gs.load(given.dataset)
    settings: dict[str, Any] = {"sampling.fan_outs": given.fan_outs, "sampling.batch_size": given.batch_size}
    if given.steps:
        settings |= {"train.steps": given.steps, "train.warmup_steps": given.steps // 10}
    options = {"dataset": given.dataset, **settings, "device": resolve_device(given.device).type}
    command = f"python lab/benchmarks/sampled.py --dataset {given.dataset} --seeds {' '.join(map(str, given.seeds))}"
    command += f" --batch-size {given.batch_size} --fan-outs {' '.join(map(str, given.fan_outs))}"
    rows, whole = kept_rows(given.to, options=options), on_the_whole_graph(given.dataset, Ledger(given.ledger))
    for seed in given.seeds:
        if any(row["seed"] == seed for row in rows):
            continue
        rows.append({"seed": seed, **measure(graph, settings, seed=seed, device=given.device)})
        print(rows[-1], flush=True)
        found = summarize(rows, whole)
        write_record(given.to, bench="sampled", command=command, rows=rows, options=options, summary=found)
    for line in summarize(rows, whole):
        print(line)


if __name__ == "__main__":
    main()
