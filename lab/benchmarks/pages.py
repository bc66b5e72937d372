"""Write the tables and plots of docs/performance.md, docs/encoders.md, docs/results.md and docs/default-recipe.md anew.

    python lab/benchmarks/pages.py

They come from lab/benchmarks/results: a JSON file for each benchmark, and the ledger of the paper's tables.
"""

from __future__ import annotations

from graphstrap_lab.page import update_page
from harness import REPOSITORY, RESULTS

if __name__ == "__main__":
    docs = REPOSITORY / "docs"
    for name in ("performance.md", "encoders.md", "results.md", "default-recipe.md"):
        update_page(docs / name, results=RESULTS, images=docs / "images")
