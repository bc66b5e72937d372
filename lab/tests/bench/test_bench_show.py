"""docs/default-recipe.md holds what was measured, and its verdicts follow from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphstrap_lab.bench.record import read_record, write_record
from graphstrap_lab.bench.show import defaults_grid, verdict_of
from graphstrap_lab.page import make_blocks, render_page, update_page

REPOSITORY = Path(__file__).parents[3]
RESULTS = REPOSITORY / "lab" / "benchmarks" / "results"
SEEDS = [80.0, 80.2, 79.9, 80.1, 80.05]


def row(bgrl: list[float], *, raw: Any = 60.0, random_init: list[float] | None = None) -> dict[str, Any]:
    return {"graph": "mine", "raw": raw, "random_init": random_init or [70.0] * len(bgrl), "bgrl": bgrl}


def rendered(*rows: dict[str, Any]) -> str:
    grid = defaults_grid({"rows": list(rows)})
    return f"{grid.to_markdown()}\n{grid.note}"


def test_the_page_is_up_to_date() -> None:
    text = (REPOSITORY / "docs" / "default-recipe.md").read_text(encoding="utf-8")
    blocks = make_blocks(text, results=RESULTS, images="images")
    assert text == render_page(text, blocks), "run python lab/benchmarks/defaults.py"
    assert "| cora |" in text


@pytest.mark.parametrize(
    ("shift", "expected"), [(5.0, "above both"), (-5.0, "below"), (0.0, "within noise of the better")]
)
def test_a_verdict_follows_the_difference_from_the_better_baseline(shift: float, expected: str) -> None:
    better = [value - shift for value in reversed(SEEDS)]
    assert verdict_of(row(SEEDS, random_init=better))[1] == expected
    assert verdict_of(row(SEEDS, raw=better))[1] == expected
    assert verdict_of(row(SEEDS, raw=80.05 - shift))[1] == expected
    assert verdict_of(row(SEEDS, raw=better))[0] == pytest.approx(shift)


def test_seeds_are_compared_on_their_own_splits() -> None:
    """A small difference that every seed shows is one, however much splits differ from each other."""
    hard, easy = [60.0, 70.0, 80.0, 90.0, 75.0], [60.5, 70.4, 80.6, 90.5, 75.5]
    assert verdict_of(row(easy, random_init=hard))[1] == "above both"
    assert verdict_of(row(easy, random_init=hard[::-1]))[1] == "within noise of the better"


def test_one_seed_proves_nothing_and_a_graph_may_have_no_features() -> None:
    assert verdict_of(row([90.0]))[1] == "within noise of the better"
    assert "| none | 70.00 ± 0.00 | 80.05 ± 0.11 | +10.05 | above both |" in rendered(row(SEEDS, raw=None))


def test_only_what_is_between_the_markers_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results: defaults -->\nold\n<!-- end of results -->\nafter\n")
    write_record(tmp_path / "results.json", bench="defaults", command="", rows=[row(SEEDS)])
    update_page(page, results=tmp_path, images=tmp_path)
    text = page.read_text()
    assert text.startswith("before\n<!-- results: defaults -->\n\n| graph |")
    assert text.endswith("<!-- end of results -->\nafter\n")
    assert "| mine | 60.00 |" in text
    assert "old" not in text
    assert "5 seeds; 1 above both, 0 within noise of the better, 0 below" in text


def test_every_baseline_of_the_kept_table_has_all_seeds() -> None:
    """Splits differ by more than methods do: one seed's raw features beside five seeds of the rest say nothing."""
    rows = read_record(RESULTS / "defaults.json")["rows"]
    assert all(len(row["raw"]) == len(row["random_init"]) == len(row["bgrl"]) == 5 for row in rows)


def test_raw_features_of_one_seed_are_said_to_be() -> None:
    assert "first seed's splits alone" in rendered(row(SEEDS))
    assert "first seed's splits alone" not in rendered(row(SEEDS, raw=SEEDS))
    assert "first seed's splits alone" not in rendered(row(SEEDS, raw=None))
