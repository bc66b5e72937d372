"""docs/results.md holds what the ledger says, and nothing typed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphstrap.cli._app import run
from graphstrap_lab.page import blocks_of, make_blocks, render_page, table_block, update_page
from graphstrap_lab.reproduce import reports
from graphstrap_lab.reproduce.blind import UNTOUCHED
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.tables import TABLES, copied_note, how_to_get, printed
from graphstrap_lab.reproduce.variants import settings_id

REPOSITORY = Path(__file__).parents[3]
PAGE = "# Title\n\n<!-- results: table-3 -->\nold\n<!-- end of results -->\n\nText.\n"


def row(variant: str, seed: int, accuracy: float) -> dict[str, object]:
    return {
        "dataset": "amazon-photo",
        "variant": variant,
        "settings": settings_id(variant, "amazon-photo", quick=False),
        "seed": seed,
        "accuracy": {"reference": accuracy, "paper": accuracy - 0.5},
        "train_seconds": 3.0,
        "peak_bytes": 5 * 10**8,
        "seeds_together": 2,
        "hardware": "a machine",
        "versions": {"torch": "9.9"},
        "git": {"sha": "0123456789", "changed": False},
    }


def test_the_page_is_up_to_date() -> None:
    text = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    blocks = make_blocks(text, results=REPOSITORY / "lab" / "benchmarks" / "results", images="images")
    assert text == render_page(text, blocks), "run python lab/benchmarks/pages.py"
    assert set(blocks_of(text)) == set(TABLES)


def test_a_page_shows_numbers_costs_places_recipes_and_reasons(tmp_path: Path) -> None:
    page, images = tmp_path / "page.md", tmp_path / "images"
    page.write_text(PAGE)
    Ledger(tmp_path / "ledger.jsonl").add([row("bgrl", 0, 93.0), row("bgrl", 1, 93.4), row("dgi", 0, 91.0)])
    update_page(page, results=tmp_path, images=images)
    text = page.read_text()
    assert "| 93.20 ± 0.28 (2) | 93.17 ± 0.30, +0.03 |" in text
    assert "3.0 s; 0.50 GB, 2 seeds" in text
    assert "a machine, PyTorch 9.9, source 0123456 (3 cells)" in text
    assert "train.learning_rate=0.0001" in text
    assert "- **DGI** (amazon-photo -0.61): Taken from" in text
    assert how_to_get("wikics") in text
    assert "\nold\n" not in text
    assert "| no data here |" in text
    assert "Text." in text
    assert [path.name for path in images.iterdir()] == ["results-table-3.png"]
    update_page(page, results=tmp_path, images=images)
    assert page.read_text() == text


def test_rows_chosen_by_labels_stand_under_the_tables_that_show_them(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    chosen = {"dataset": "amazon-computers", "settings": settings_id("grace", "amazon-computers", quick=False)}
    ledger.add([{**row("grace", 0, 90.5), **chosen, "accuracy": {"reference": 90.5, "paper": 90.0, UNTOUCHED: 90.25}}])
    shown = {name: "amazon-computers 90.25" in table_block(TABLES[name], ledger, images="").text for name in TABLES}
    assert [name for name, has_line in shown.items() if has_line] == ["table-3"]


@pytest.mark.parametrize("table", ["table-3", "table-4", "small-datasets"])
def test_every_row_that_the_paper_copied_has_a_reason(table: str) -> None:
    for variant in TABLES[table].variants:
        cells = [printed(table, variant, dataset) for dataset in TABLES[table].datasets]
        is_copied = any(cell is not None and not cell.is_starred for cell in cells)
        assert bool(copied_note(table, variant)) == is_copied, variant


def test_the_command_line_shows_and_writes_what_the_ledger_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, to = tmp_path / "ledger.jsonl", tmp_path / "out"
    Ledger(ledger).add([row("bgrl", 0, 93.0), row("bgrl", 1, 93.4)])
    common = ["--show", "--ledger", str(ledger), "--to", str(to), "--device", "cpu"]
    assert run(["reproduce", "table-3", "--datasets", "amazon-photo", *common]) == 0
    assert "93.20 ± 0.28 (2)" in capsys.readouterr().out
    assert {path.suffix for path in to.iterdir()} == {".md", ".csv", ".png", ".svg"}
    assert run(["reproduce", "ppi", *common]) == 0
    assert "ppi (protein interactions in 24 tissues, through PyG) was not at hand" in " ".join(
        capsys.readouterr().out.split()
    )
    assert run(["reproduce", "all", "--methods", "bgrl", *common]) == 0
    assert {path.stem for path in to.iterdir()} == {name for name, one in TABLES.items() if "bgrl" in one.variants}
    assert run(["reproduce", "table-99", *common]) == 2


def test_a_graph_is_known_by_all_of_its_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = tmp_path / "ledger.jsonl"
    Ledger(ledger).add([row("bgrl", 0, 93.0), row("bgrl", 1, 93.4)])
    common = ["--show", "--ledger", str(ledger), "--device", "cpu", "--methods", "bgrl,bgrl"]
    assert run(["reproduce", "table-3", "--datasets", "Amazon_Photo,amazon-photo", *common]) == 0
    out = capsys.readouterr().out
    assert "not computed" not in out
    assert out.count("93.20 ± 0.28 (2)") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["table-3", "--datasets", "amazon-foto"], "did you mean amazon-photo?"),
        (["table-3", "--datasets", ","], "--datasets names nothing"),
        (["all", "--datasets", "amazon-foto"], "did you mean amazon-photo?"),
        (["all", "--datasets", "digits"], "no table has such methods on such graphs"),
        (["table-3", "--methods", ""], "--methods names nothing"),
        (["table-3", "--methods", "mag-bgrl-0"], "table-3 has no room for the method 'mag-bgrl-0'"),
        (["table-1", "--methods", "dgi"], "table-1 has no room for the method 'dgi': take some of grace, bgrl"),
        (["training-curves", "--methods", "raw"], "take some of bgrl, bgrl-projector"),
        (["attention-entropy", "--methods", "raw"], "take some of bgrl-gat, grace-gat, grace-2-gat"),
        (["mag-auxiliary", "--methods", "bgrl"], "take some of mag-supervised"),
        (["table-3", "--to", "file"], "--to file cannot be made a folder"),
        (["table-3", "--ledger", "file/ledger.jsonl"], "ledger file/ledger.jsonl cannot be written"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_anything_is_computed(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert run(["reproduce", *arguments, "--quick", "--device", "cpu"]) == 2
    message = capsys.readouterr()
    assert said in message.err
    assert message.err.count("\n") == 1
    assert not message.out


def test_a_command_that_is_stopped_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reports, "fill", stop)
    ledger = tmp_path / "ledger.jsonl"
    assert run(["reproduce", "table-3", "--device", "cpu", "--ledger", str(ledger)]) == 130
    assert f"finished cells are in {ledger}: the same command goes on from there" in capsys.readouterr().err
