"""Frozen linear probe on the paper's graphs after full training by the paper's recipes: `graphstrap bench table` with
its results in results/paper_sets.json.

    python benchmarks/paper_sets.py --graphs amazon-photo amazon-computers --seeds 3 --device cuda

For every seed: 10,000 steps, then the protocols `reference` and `paper`, 5 random splits each. Rows that the file has
already are not measured again: remove it, or name another with --to, to start anew.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphstrap.bench.record import command_line
from graphstrap.bench.table import PROTOCOLS, measure_table, summarize

RESULTS = Path(__file__).parent / "results" / "paper_sets.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=["amazon-photo", "amazon-computers"])
    parser.add_argument("--recipe", default=None, help="the graph's own by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    options = {key: getattr(arguments, key) for key in ("recipe", "steps", "device")}
    command = command_line("table", datasets=arguments.graphs, seeds=arguments.seeds, **options)
    rows = []
    for row, is_new in measure_table(
        arguments.graphs, num_seeds=arguments.seeds, to=arguments.to, command=command, **options
    ):
        rows.append(row)
        print(row if is_new else f"{row['graph']}, seed {row['seed']}: already in {arguments.to}", flush=True)
    for line in summarize(rows):
        for protocol in PROTOCOLS:
            mean, std = line[protocol], line[f"{protocol}_std"]
            print(f"{line['graph']} {protocol}: {mean:.2f} ± {std:.2f} over {line['num_seeds']} seeds")


if __name__ == "__main__":
    main()
