"""Write the tables and plots of docs/results.md anew from lab/benchmarks/results/ledger.jsonl.

python lab/benchmarks/results_page.py
"""

from __future__ import annotations

from pathlib import Path

from graphstrap_lab.reproduce.page import update_page

REPOSITORY = Path(__file__).parents[2]

if __name__ == "__main__":
    docs, results = REPOSITORY / "docs", REPOSITORY / "lab" / "benchmarks" / "results"
    update_page(docs / "results.md", ledger=results / "ledger.jsonl", images=docs / "images")
