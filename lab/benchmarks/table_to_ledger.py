"""Put the cells of a result of `graphstrap bench table` into the ledger, where it lacks them.

python lab/benchmarks/table_to_ledger.py lab/benchmarks/results/bench_table_cuda.json
"""

from __future__ import annotations

import sys
from pathlib import Path

from graphstrap_lab.reproduce.from_bench import cells_of_table
from graphstrap_lab.reproduce.ledger import KEY, Ledger

if __name__ == "__main__":
    ledger = Ledger(Path(__file__).parent / "results" / "ledger.jsonl")
    new = [row for row in cells_of_table(Path(sys.argv[1])) if not ledger.find(**{name: row[name] for name in KEY})]
    ledger.add(new)
    print(f"{len(new)} cells added to {ledger.path}")
