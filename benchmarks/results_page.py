"""Write the tables and plots of docs/results.md anew from benchmarks/results/ledger.jsonl.

python benchmarks/results_page.py
"""

from __future__ import annotations

from pathlib import Path

from graphstrap.reproduce.page import update_page

REPOSITORY = Path(__file__).parent.parent

if __name__ == "__main__":
    docs, results = REPOSITORY / "docs", REPOSITORY / "benchmarks" / "results"
    update_page(docs / "results.md", ledger=results / "ledger.jsonl", images=docs / "images")
