"""Seeds in groups: each is what it would be alone, is kept as soon as it is done, and time limits and failures stop no
more than they must."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_communities

from graphstrap.api.ensemble import fit_seeds
from graphstrap.api.estimator import Embedder
from graphstrap.errors import DivergedError, InputError
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap_lab.reproduce import cells as cells_module
from graphstrap_lab.reproduce import run as run_module
from graphstrap_lab.reproduce.accuracies import make_cell
from graphstrap_lab.reproduce.cells import Filling
from graphstrap_lab.reproduce.deadline import Deadline, TimeUpError, expected_seconds
from graphstrap_lab.reproduce.ledger import Ledger, Row
from graphstrap_lab.reproduce.render import Asked
from graphstrap_lab.reproduce.run import Work, fill_ledger
from graphstrap_lab.reproduce.tables import Table
from graphstrap_lab.reproduce.variants import VARIANTS, recipe_of, settings_id

ONE_OF_EACH = (
    *("bgrl", "bgrl-projector", "bgrl-pagerank", "grace", "grace-8", "gca-degree", "dgi", "gmi", "mvgrl"),
    *("barlow-twins", "deepwalk", "node2vec"),
)
TABLE = Table("table-3", ("random-init",), ("digits",))


def tiny_estimator(variant: str, *, device: str) -> Embedder:
    """A row's method and its settings on Amazon Photo, in a few narrow steps."""
    recipe = recipe_of(variant, "amazon-photo")
    narrow = {"encoder.hidden_sizes": (8,) * len(recipe.encoder.hidden_sizes), "encoder.embedding_size": 8}
    settings = {**narrow, "train.steps": 4, "train.log_every": 2, "train.precision": "fp32"}
    return Embedder(recipe=recipe.with_settings(settings), device=device)


def assert_each_is_as_alone(variant: str, graph: Graph, *, device: str) -> None:
    estimator = tiny_estimator(variant, device=device)
    together = fit_seeds(estimator, graph, seeds=[3, 5])
    for one in together:
        alone = Embedder(recipe=estimator.recipe, seed=one.seed, device=device).fit(graph)
        pairs = zip(one.model_.module.parameters(), alone.model_.module.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    first, second = (torch.from_numpy(one.embed(graph)) for one in together)
    assert first.isfinite().all()
    assert not torch.equal(first, second)


@pytest.mark.parametrize("variant", ONE_OF_EACH)
def test_every_method_trains_many_seeds_together(variant: str, communities: Graph) -> None:
    assert_each_is_as_alone(variant, communities, device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ONE_OF_EACH)
def test_every_method_trains_many_seeds_in_one_captured_program(variant: str, communities: Graph) -> None:
    assert_each_is_as_alone(variant, communities, device="cuda")


def test_one_of_each_is_every_method_of_the_tables() -> None:
    used = {recipe_of(name, "amazon-photo").method.name for name in ONE_OF_EACH}
    trained = [name for name, row in VARIANTS.items() if row.kind == "trained" and not row.encoder]
    assert used == {recipe_of(name, "amazon-photo").method.name for name in trained}


def fill(ledger: Ledger, how: Filling, *, table: Table = TABLE, num_seeds: int = 3) -> None:
    fill_ledger(table, ledger, how, variants=table.variants, datasets=table.datasets, num_seeds=num_seeds)


def test_a_group_is_in_the_ledger_before_the_next_one_begins(tmp_path: Path) -> None:
    path, begun = tmp_path / "ledger.jsonl", []

    def cut(text: str) -> None:
        begun.append((text, len(Ledger(path).rows)))
        if len(begun) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(Ledger(path), Filling(quick=True, device="cpu", together=2, note=cut))
    assert begun == [("digits: random-init, seeds 0 to 1", 0), ("digits: random-init, seed 2", 2)]
    notes: list[str] = []
    fill(Ledger(path), Filling(quick=True, device="cpu", together=2, note=notes.append))
    assert notes == ["digits: random-init, seed 2"]
    assert [row["seed"] for row in Ledger(path).rows] == [0, 1, 2]


def test_a_seed_is_the_same_in_every_group(tmp_path: Path) -> None:
    rows = []
    for together in (1, 2):
        ledger = Ledger(tmp_path / f"{together}.jsonl")
        fill(ledger, Filling(quick=True, device="cpu", together=together, note=lambda text: None), num_seeds=2)
        rows.append([row["runs"] for row in ledger.rows])
    assert rows[0] == rows[1]


def test_rows_say_where_they_come_from(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    fill(ledger, Filling(quick=True, device="cpu", note=lambda text: None), num_seeds=1)
    row = ledger.rows[0]
    wanted = {"git", "recipe", "seed", "accuracy", "hardware", "versions", "train_seconds", "peak_bytes", "time"}
    assert wanted <= set(row)
    assert set(row["accuracy"]) == {"reference", "paper"}
    assert row["versions"]["torch"] == torch.__version__


def test_work_under_way_is_given_up_when_the_time_is_up() -> None:
    started = time.monotonic()
    with pytest.raises(TimeUpError), Deadline(0.2 / 60).enforced():
        time.sleep(20)
    assert time.monotonic() < started + 10
    with Deadline(None).enforced():
        assert Deadline(None).seconds_left == float("inf")


def test_nothing_is_begun_that_is_known_to_take_too_long(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    settings = settings_id("random-init", "digits", quick=True)
    notes: list[str] = []
    key = {"dataset": "digits", "variant": "random-init", "settings": settings, "device": "cpu"}
    ledger.add([{**key, "seed": 0, "train_seconds": 400.0, "evaluate_seconds": 100.0}])
    assert expected_seconds(ledger, num_seeds=3, **key) == 1500.0
    assert expected_seconds(ledger, num_seeds=3, **{**key, "device": "cuda"}) == 0.0
    fill(ledger, Filling(quick=True, device="cpu", deadline=Deadline(5), note=notes.append))
    assert len(ledger.rows) == 1
    assert notes == ["digits: random-init: 2 seeds left for later, about 1000 s in all"]


def test_a_method_that_fails_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = replace(make_communities(num_nodes=60, num_classes=2, seed=0), name="mine")
    weighted = replace(graph, edge_weights=torch.full((graph.num_edges,), -1.0))
    monkeypatch.setattr(run_module, "load", lambda name: weighted)
    notes: list[str] = []
    warnings: list[str] = []
    table = Table("table-3", ("bgrl", "raw", "supervised-mean"), ("mine",))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    fill(ledger, Filling(quick=True, device="cpu", note=notes.append, warn=warnings.append), table=table)
    assert [row["variant"] for row in ledger.rows] == ["raw"]
    assert len(warnings) == 1
    assert "bgrl: failed: an edge weight is negative" in warnings[0]
    assert any("no counterpart" in note for note in notes)


def test_memory_that_runs_out_on_the_host_stops_one_row_alone(tmp_path: Path) -> None:
    def compute(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
        if variant == "raw":
            raise MemoryError
        return [{"dataset": graph.name, "variant": variant, "settings": "abc", "seed": seed} for seed in seeds]

    warnings: list[str] = []
    how = Filling(device="cpu", note=lambda text: None, warn=warnings.append)
    work = Work(load=lambda name, how: load(name), settings=lambda *cell: "abc", compute=compute)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    fill_ledger(TABLE, ledger, how, variants=["raw", "dgi"], datasets=["digits"], num_seeds=1, work=work)
    assert [row["variant"] for row in ledger.rows] == ["dgi"]
    assert warnings == ["digits: raw: failed: out of memory"]


@pytest.mark.parametrize("together", [1, 5])
def test_after_a_seed_that_diverges_the_others_go_on(tmp_path: Path, together: int) -> None:
    def compute(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> list[Row]:
        if 1 in seeds:
            raise DivergedError("the loss is NaN")
        return [{"dataset": graph.name, "variant": variant, "settings": "abc", "seed": seed} for seed in seeds]

    warnings: list[str] = []
    how = Filling(device="cpu", together=together, note=lambda text: None, warn=warnings.append)
    work = Work(load=lambda name, how: load(name), settings=lambda *cell: "abc", compute=compute)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    fill_ledger(TABLE, ledger, how, variants=["dgi"], datasets=["digits"], num_seeds=5, work=work)
    assert [row["seed"] for row in ledger.rows] == [0, 2, 3, 4]
    assert "digits: dgi: failed: the loss is NaN" in warnings


def test_what_did_not_fit_is_tried_again_when_more_memory_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(num_bytes: int) -> int:
        """How many rows there are once so much was free."""
        for module in (run_module, cells_module):
            monkeypatch.setattr(module, "free_memory", lambda device: num_bytes)
        ledger = Ledger(tmp_path / "ledger.jsonl")
        table = Table("table-3", ("dgi",), ("digits",))
        fill(ledger, Filling(quick=True, device="cpu", note=lambda text: None), table=table, num_seeds=1)
        return len(ledger.rows)

    assert [free(10**6), free(10**6), free(2 * 10**6)] == [1, 1, 2]


def test_a_ledger_that_cannot_be_written_ends_it_all(tmp_path: Path) -> None:
    """Else every cell would be computed and lost."""
    (tmp_path / "file").write_text("")
    notes: list[str] = []
    with pytest.raises(InputError, match="cannot be written"):
        fill(Ledger(tmp_path / "file" / "ledger.jsonl"), Filling(quick=True, device="cpu", note=notes.append))
    assert notes == ["digits: random-init, seed 0"]


def test_cells_of_a_graph_that_has_changed_are_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, table = tmp_path / "ledger.jsonl", Table("table-3", ("label-propagation",), ("mine",))

    def computed(seed: int, *, num_seeds: int, now: int, turned: bool = False) -> tuple[int, int]:
        """How many cells this took, and of how many seeds the table then tells."""
        graph = replace(make_communities(num_nodes=60, num_classes=2, seed=seed), name="mine")
        assert graph.labels is not None
        graph = replace(graph, labels=1 - graph.labels) if turned else graph
        monkeypatch.setattr(run_module, "load", lambda name: graph)
        monkeypatch.setattr(time, "time", lambda: now)
        ledger = Ledger(path)
        before = len(ledger.rows)
        fill(ledger, Filling(device="cpu", note=lambda text: None), table=table, num_seeds=num_seeds)
        cell = make_cell(Asked(table, ledger, (), ("mine",)), "label-propagation", "mine", "paper")
        return len(ledger.rows) - before, len(cell.values)

    assert computed(0, num_seeds=3, now=1) == (3, 3)
    assert computed(0, num_seeds=3, now=2) == (0, 3)
    assert computed(1, num_seeds=2, now=3) == (2, 2)  # and not the third of the graph before
    assert computed(1, num_seeds=3, now=4) == (1, 3)
    assert computed(1, num_seeds=1, now=5, turned=True) == (1, 1)


def test_a_group_too_large_for_the_memory_is_halved(communities: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def compute(graph: Graph, variant: str, how: Filling, seeds: Sequence[int]) -> dict[str, Any]:
        asked.append(len(seeds))
        if len(seeds) > 2:
            raise torch.OutOfMemoryError
        return {"per_seed": [{} for _ in seeds]}

    monkeypatch.setattr(cells_module, "_compute", compute)
    notes: list[str] = []
    rows = cells_module.compute_cells(communities, "bgrl", Filling(device="cpu", note=notes.append), range(5))
    assert [row["seed"] for row in rows] == [0, 1, 2, 3, 4]
    assert asked == [5, 2, 3, 1, 2]
    assert [note.rpartition(": ")[2] for note in notes] == [
        "5 seeds do not fit together, trying half as many",
        "3 seeds do not fit together, trying half as many",
    ]
