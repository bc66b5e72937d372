"""Write the tables and plots of docs/performance.md and docs/encoders.md anew from lab/benchmarks/results/.

python lab/benchmarks/performance_page.py
"""

from __future__ import annotations

from pathlib import Path

from graphstrap_lab.bench.page import update_page

REPOSITORY = Path(__file__).parents[2]

if __name__ == "__main__":
    docs = REPOSITORY / "docs"
    for page in ("performance.md", "encoders.md"):
        update_page(docs / page, results=REPOSITORY / "lab" / "benchmarks" / "results", images=docs / "images")
