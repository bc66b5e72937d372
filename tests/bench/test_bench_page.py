"""docs/performance.md holds what the result files say, and nothing typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphstrap.bench.page import read_results, render_page, update_page
from graphstrap.bench.record import write_record

REPOSITORY = Path(__file__).parent.parent.parent
PAGE = """# Title

<!-- results: step -->
old
<!-- end of results -->

Text.

<!-- results: scale -->
<!-- end of results -->
"""
STEP = {
    "dataset": "digits", "device": "cpu", "precision": "fp32", "ours_ms": 2.0, "ours_ms_iqr": 0.1, "baseline_ms": 9.0,
    "baseline_ms_iqr": 0.2, "speedup": 4.5, "ours_bytes": 2**20, "baseline_bytes": 3 * 2**20,
}  # fmt: skip


def test_the_page_is_up_to_date() -> None:
    text = (REPOSITORY / "docs" / "performance.md").read_text(encoding="utf-8")
    assert text == render_page(text, read_results(REPOSITORY / "benchmarks" / "results"), images="images")
    for bench in ("step", "scale", "ops", "table"):
        assert f"<!-- results: {bench} -->" in text


def test_tables_and_plots_come_from_files(tmp_path: Path) -> None:
    page, results, images = tmp_path / "page.md", tmp_path / "results", tmp_path / "images"
    results.mkdir()
    page.write_text(PAGE)
    (results / "other.json").write_text('{"rows": []}')  # of another script
    write_record(results / "bench_step_cpu.json", bench="step", command="graphstrap bench step", rows=[STEP])
    growth: list[dict[str, Any]] = [
        {
            "num_nodes": n,
            "num_edges": 16 * n,
            "device": "cpu",
            "step_ms": n / 1e3,
            "step_ms_iqr": 0.0,
            "peak_bytes": 9 * n,
        }
        for n in (100_000, 200_000)
    ]
    slopes = {"time": 1.0, "memory": 1.0}
    write_record(
        results / "bench_scale.json", bench="scale", command="graphstrap bench scale", rows=growth, slopes=slopes
    )
    update_page(page, results=results, images=images)
    text = page.read_text()
    assert "| digits | fp32 | 2.00 ± 0.10 | 9.00 ± 0.20 | 4.5× | 1 MiB | 3 MiB | 3.0× |" in text
    assert "time grows as N^1.00" in text
    assert "old" not in text
    assert "Text." in text
    assert {path.name for path in images.iterdir()} == {"bench_step_cpu.png", "bench_scale.png"}
    update_page(page, results=results, images=images)
    assert page.read_text() == text


def test_a_page_without_results_says_so() -> None:
    text = render_page(PAGE, {}, images="images")
    assert text.count("*Not measured yet.*") == 2
    assert render_page(text, {}, images="images") == text


def test_result_files_say_where_they_come_from() -> None:
    for record in read_results(REPOSITORY / "benchmarks" / "results").values():
        assert {"command", "environment", "hardware", "git"} <= set(record), json.dumps(record)[:200]
