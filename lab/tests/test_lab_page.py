"""docs/performance.md holds what the result files say, and nothing typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphstrap_lab.bench.record import write_record
from graphstrap_lab.page import make_blocks, read_records, render_page, update_page

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "lab" / "benchmarks" / "results"
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


def rendered(text: str, results: Path) -> str:
    return render_page(text, make_blocks(text, results=results, images="images"))


@pytest.mark.parametrize(
    ("page", "benches"),
    [("performance.md", ("step", "scale", "ops", "table")), ("encoders.md", ("twitch", "arxiv-like"))],
)
def test_the_page_is_up_to_date(page: str, benches: tuple[str, ...]) -> None:
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    assert text == rendered(text, RESULTS), "run python lab/benchmarks/performance_page.py"
    for bench in benches:
        assert f"<!-- results: {bench} -->" in text


def test_twitch_is_a_row_for_each_encoder(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"tested": "de", "encoder": "gcn", "random_init": [50.0, 52.0], "bgrl": [60.0, 62.0]},
        {"tested": "fr", "encoder": "gcn", "random_init": [54.0, 56.0], "bgrl": [64.0, 66.0]},
        {"tested": "fr", "encoder": "gat", "random_init": [54.0, 54.0], "bgrl": [70.0, 70.0]},
        {"tested": "es", "encoder": "gat", "random_init": [1.0, 1.0], "bgrl": [1.0, 1.0]},  # no raw features to compare
        {"tested": "de", "encoder": "raw features", "auc": 40.0},
        {"tested": "fr", "encoder": "raw features", "auc": 41.0},
    ]
    write_record(tmp_path / "twitch.json", bench="twitch", command="python", rows=rows, options={"device": "cpu"})
    text = rendered("<!-- results: twitch -->\n<!-- end of results -->", tmp_path)
    assert "| encoder | raw features | random init | BGRL | de | fr |" in text
    assert "| gcn | 40.50 | 53.00 ± 1.41 | 63.00 ± 1.41 | 61.00 | 65.00 |" in text
    assert "| gat | 41.00 | 54.00 ± 0.00 | 70.00 ± 0.00 |  | 70.00 |" in text


def test_arxiv_like_is_a_row_for_each_method_with_the_cost_of_those_that_were_alone(tmp_path: Path) -> None:
    scores = {f"{protocol} {part}": 50.0 for protocol in ("adamw", "adamw-reference") for part in ("val", "test")}
    trained = {**scores, "steps": 1000, "train_seconds": 12.3, "peak_bytes": 2**30}
    rows: list[dict[str, Any]] = [
        {"method": "random init", "steps": 0, **scores},
        {"method": "BGRL", **trained},
        {"method": "GRACE k=2", **trained, "alone_on_the_gpu": False},
        {"method": "GRACE full", "steps": 1000, "refused": "OOM: needs about 928 GB of 149 GB"},
    ]
    write_record(tmp_path / "arxiv.json", bench="arxiv-like", command="python", rows=rows, options={"device": "cpu"})
    text = rendered("<!-- results: arxiv-like -->\n<!-- end of results -->", tmp_path)
    numbers = "50.00 | 50.00 | 50.00 | 50.00"
    assert f"| random init | 0 | {numbers} |  |  |" in text
    assert f"| BGRL | 1,000 | {numbers} | 12 | 1.00 GiB |" in text
    assert f"| GRACE k=2 | 1,000 | {numbers} |  |  |" in text
    assert "| GRACE full | OOM: needs about 928 GB of 149 GB |" in text


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


def test_a_page_without_results_says_so(tmp_path: Path) -> None:
    text = rendered(PAGE, tmp_path)
    assert text.count("*Not measured yet.*") == 2
    assert rendered(text, tmp_path) == text


def test_result_files_say_where_they_come_from() -> None:
    for record in read_records(RESULTS).values():
        assert {"command", "environment", "hardware", "git"} <= set(record), json.dumps(record)[:200]
