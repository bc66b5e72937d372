"""The bar writes to stderr only, and nothing when hidden."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from rich.console import Console

import graphstrap as gs
from graphstrap.train import console as progress
from graphstrap.train.console import TrainingBar, can_be_watched

BRIEF = {"train.steps": 2, "encoder.hidden_sizes": [8], "encoder.embedding_size": 4}


@pytest.mark.parametrize("shown", [True, False])
def test_bar_shows_on_stderr_or_not_at_all(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingBar(10, shown=shown) as bar:
        bar.update(3, loss=0.5, speed=12.0)
        bar.update(10)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("10/10" in captured.err) == shown


@pytest.mark.parametrize(("asked", "is_terminal"), [(None, True), (None, False), (True, False), (False, True)])
def test_fit_shows_a_bar_where_it_is_asked_to_or_can_be_watched(
    communities: gs.Graph,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    asked: bool | None,
    is_terminal: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    gs.BGRL(settings=BRIEF, device="cpu").fit(communities, progress=asked)
    gs.fit_seeds(gs.BGRL(settings=BRIEF, device="cpu"), communities, seeds=[0, 1], progress=asked)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("2/2" in captured.err) == (is_terminal if asked is None else asked)
    assert bool(captured.err) == ("2/2" in captured.err)


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_has_a_bar_where_it_can_draw_one(monkeypatch: pytest.MonkeyPatch, has_widgets: bool) -> None:
    def find_spec(name: str) -> Any:
        return object() if has_widgets else None

    monkeypatch.setattr(progress, "find_spec", find_spec)
    monkeypatch.setattr(progress, "Console", lambda **options: Console(force_jupyter=True, **options))
    assert can_be_watched() == has_widgets
