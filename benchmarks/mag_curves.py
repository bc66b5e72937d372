"""Does BGRL help where few nodes have labels? The paper's two figures on the generated MAG-like graph, at 1 % scale.

    python benchmarks/mag_curves.py --device cuda                                            # 5 seeds of 5 arms
    python benchmarks/mag_curves.py --scale 0.0005 --seeds 1 --steps 20 --labelled 16        # whether it runs

    supervised     labels alone                                  grace-256   GRACE with 256 negatives on labelled roots
    bgrl-0         BGRL on the labelled roots as well            bgrl-1, bgrl-10   and on 1 and 10 times as many without

Every arm has the same number of labelled roots a step; those without a label come on top. The curves are of accuracy
on validation papers (2019), which no loss and no input has seen. The graph is synthetic: it was fixed before any method
ran on it (docs/generated.md), and what comes out is drawn, whatever the order. Finished runs in the result are kept.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from graphstrap.bench.record import read_record, write_record
from graphstrap.estimator import BGRL
from graphstrap.generate import mag
from graphstrap.graph import Graph
from graphstrap.recipe import Recipe, load_recipe, parse_settings

RESULTS = Path(__file__).parent / "results" / "mag_curves.json"
ARMS: dict[str, dict[str, Any]] = {
    "supervised": {"method.auxiliary_weight": 0.0, "method.unlabelled_ratio": 0.0},
    "grace-256": {"method.auxiliary": "grace", "method.num_negatives": 256, "method.unlabelled_ratio": 0.0},
    "bgrl-0": {"method.unlabelled_ratio": 0.0},
    "bgrl-1": {"method.unlabelled_ratio": 1.0},
    "bgrl-10": {"method.unlabelled_ratio": 10.0},
}


def settings_of(arm: str, given: argparse.Namespace) -> dict[str, Any]:
    ratio = ARMS[arm]["method.unlabelled_ratio"]
    return {
        **ARMS[arm],
        "sampling.batch_size": round(given.labelled * (1.0 + ratio)),
        "train.steps": given.steps,
        "train.evaluate_every": max(1, given.steps // given.points),
        "train.log_every": max(1, given.steps // given.points),
        "train.learning_rate": given.learning_rate,
        "method.label_inputs": given.label_inputs,
    }


def run(graph: Graph, recipe: Recipe, arm: str, *, seed: int, device: str) -> dict[str, Any]:
    begin = time.perf_counter()
    model = BGRL(recipe=recipe, seed=seed, device=device).fit(graph)
    curve = [[record["step"], record["accuracy"]] for record in model.metrics_ if "accuracy" in record]
    return {
        "arm": arm,
        "seed": seed,
        "seconds": round(time.perf_counter() - begin, 1),
        "curve": curve,
        "final": curve[-1][1],
        "best": max(accuracy for _, accuracy in curve),
    }


def draw(rows: list[dict[str, Any]], path: Path, *, title: str) -> None:
    """One line for each arm, the mean over seeds, within a band of one standard deviation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for arm in ARMS:
        curves = [row["curve"] for row in rows if row["arm"] == arm]
        if not curves:
            continue
        steps = [point[0] for point in curves[0]]
        points = [[curve[i][1] for curve in curves] for i in range(len(steps))]
        middle = [mean(values) for values in points]
        spread = [stdev(values) if len(values) > 1 else 0.0 for values in points]
        (line,) = axes.plot(steps, middle, label=f"{arm} ({len(curves)} seeds)")
        low = [m - s for m, s in zip(middle, spread, strict=True)]
        high = [m + s for m, s in zip(middle, spread, strict=True)]
        axes.fill_between(steps, low, high, alpha=0.2, color=line.get_color())
    axes.set(xlabel="step", ylabel="validation accuracy, %", title=title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--recipe", default="mag240m")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--labelled", type=int, default=93)
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--label-inputs", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], help="further settings of the recipe, KEY=VALUE")
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    more = parse_settings(given.set)
    graph = mag(given.scale, device=given.device)
    options = {key: value for key, value in vars(given).items() if key not in ("to", "seeds", "arms", "device")}
    known: dict[str, Any] = read_record(given.to) if given.to.exists() else {}
    rows: list[dict[str, Any]] = known["rows"] if known.get("options") == options else []
    command = "python benchmarks/mag_curves.py " + " ".join(f"--{k.replace('_', '-')} {v}" for k, v in options.items())
    for seed in range(given.seeds):
        for arm in given.arms:
            if any(row["arm"] == arm and row["seed"] == seed for row in rows):
                continue
            recipe = load_recipe(given.recipe).with_settings(settings_of(arm, given) | more)
            rows.append(run(graph, recipe, arm, seed=seed, device=given.device))
            print(f"{arm:<12} seed {seed}: {rows[-1]['final']:.2f} in {rows[-1]['seconds']} s", flush=True)
            write_record(given.to, bench="mag_curves", command=command, rows=rows, options=options, synthetic=True)
    title = f"synthetic MAG-like graph, scale {given.scale:g}, {given.recipe}"
    draw(rows, given.to.with_suffix(".png"), title=title)
    for arm in given.arms:
        final = [row["final"] for row in rows if row["arm"] == arm]
        print(f"{arm:<12} {mean(final):.2f} ± {stdev(final) if len(final) > 1 else 0.0:.2f} over {len(final)} seeds")


if __name__ == "__main__":
    main()
