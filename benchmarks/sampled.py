"""Does training on sampled batches reach what training on the whole graph reaches? Coauthor Physics, over seeds.

    python benchmarks/sampled.py --device cuda                         # GRAPHSTRAP_DATA has the graph
    python benchmarks/sampled.py --dataset cora --seeds 1 --steps 20   # whether it runs

Both arms have the dataset's shipped recipe, its steps and rates included; one sees the whole graph in every step, the
other subgraphs around so many roots. Both embed the whole graph and are scored by the protocols `reference` and
`paper`. Writes results/sampled.json after every seed; the same command goes on with those that it lacks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import mean
from typing import Any

import graphstrap as gs
from graphstrap.bench.record import kept_rows, write_record
from graphstrap.ops import resolve_device
from graphstrap.recipe_files import load_recipe
from graphstrap.seeds import embed_on_device

RESULTS = Path(__file__).parent / "results" / "sampled.json"
PROTOCOLS = ("reference", "paper")


def measure(graph: gs.Graph, settings: dict[str, Any], *, seed: int, device: str) -> dict[str, Any]:
    recipe = load_recipe(graph.name).with_settings(settings)
    started = time.perf_counter()
    model = gs.BGRL(recipe=recipe, seed=seed, device=device).fit(graph)
    seconds = time.perf_counter() - started
    h = embed_on_device(model, graph)
    scores = {protocol: gs.evaluate(h, graph, protocol=protocol, seed=seed).mean for protocol in PROTOCOLS}
    return {**scores, "train_seconds": round(seconds, 1)}


def summarize(rows: list[dict[str, Any]]) -> list[str]:
    """For every protocol the means of both arms over the seeds that both have, and their difference."""
    lines = []
    for protocol in PROTOCOLS:
        arms = {arm: {row["seed"]: row[protocol] for row in rows if row["arm"] == arm} for arm in ("whole", "sampled")}
        common = sorted(arms["whole"].keys() & arms["sampled"].keys())
        if common:
            whole, sampled = (mean(arms[arm][seed] for seed in common) for arm in ("whole", "sampled"))
            lines.append(
                f"{protocol}: whole graph {whole:.2f}, sampled {sampled:.2f}, difference {sampled - whole:+.2f} "
                f"over {len(common)} seeds"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="coauthor-physics")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="for both arms [default: the recipe's]")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fan-outs", type=int, nargs="+", default=[10, 10])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    graph = gs.load(given.dataset)
    shared = {"train.steps": given.steps, "train.warmup_steps": given.steps // 10} if given.steps else {}
    sampling = {"sampling.fan_outs": given.fan_outs, "sampling.batch_size": given.batch_size}
    arms = {"sampled": {**shared, **sampling}, "whole": shared}
    options = {"dataset": given.dataset, **arms["sampled"], "device": resolve_device(given.device).type}
    command = f"python benchmarks/sampled.py --dataset {given.dataset} --seeds {given.seeds}"
    command += f" --batch-size {given.batch_size} --fan-outs {' '.join(map(str, given.fan_outs))}"
    rows = kept_rows(given.to, options=options)
    for seed in range(given.seeds):
        for arm, settings in arms.items():
            if any(row["arm"] == arm and row["seed"] == seed for row in rows):
                continue
            rows.append({"arm": arm, "seed": seed, **measure(graph, settings, seed=seed, device=given.device)})
            print(rows[-1], flush=True)
            write_record(given.to, bench="sampled", command=command, rows=rows, options=options)
    print("\n".join(summarize(rows)))


if __name__ == "__main__":
    main()
