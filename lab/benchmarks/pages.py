"""Write the tables and plots of docs/performance.md, docs/encoders.md, docs/results.md and docs/default-recipe.md anew.

    python lab/benchmarks/pages.py

They come from lab/benchmarks/results: a JSON file for each benchmark, and the ledger of the paper's tables.
"""

from __future__ import annotations

from graphstrap_lab.bench import page as benchmarks
from graphstrap_lab.bench.default_page import update_default_page
from graphstrap_lab.reproduce import page as tables
from harness import REPOSITORY, RESULTS

if __name__ == "__main__":
    docs = REPOSITORY / "docs"
    for name in ("performance.md", "encoders.md"):
        benchmarks.update_page(docs / name, results=RESULTS, images=docs / "images")
    tables.update_page(docs / "results.md", ledger=RESULTS / "ledger.jsonl", images=docs / "images")
    update_default_page(docs / "default-recipe.md", results=RESULTS / "defaults.json")
