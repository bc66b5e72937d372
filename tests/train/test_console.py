"""The bar writes to stderr only, and nothing when hidden; signals are obeyed once the step is finished."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import pytest
from rich.console import Console

import graphstrap as gs
from graphstrap.train import console
from graphstrap.train.console import Interrupt, TrainingBar, can_be_watched, pass_on

BRIEF = {"train.steps": 2, "encoder.hidden_sizes": [8], "encoder.embedding_size": 4}


@pytest.mark.parametrize("shown", [True, False])
def test_bar_shows_on_stderr_or_not_at_all(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingBar(10, shown=shown) as bar:
        bar.show(3, loss=0.5, speed=12.0)
        bar.show(10, loss=0.25, speed=12.0)
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

    monkeypatch.setattr(console, "find_spec", find_spec)
    monkeypatch.setattr(console, "Console", lambda **options: Console(force_jupyter=True, **options))
    assert can_be_watched() == has_widgets


def test_first_signal_is_noticed_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested
    assert signal.getsignal(signal.SIGINT) is before


def interrupt_twice() -> None:
    with Interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_second_ctrl_c_interrupts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_threads_are_told_of_signals(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_passed_on", [])
    seen = []

    def train() -> None:
        interrupt = Interrupt()
        for moment in ("before", "during", "after"):
            if moment == "during":
                interrupt.__enter__()
            if moment == "after":
                interrupt.__exit__()
            if moment == when:
                pass_on(signal.SIGTERM)
        seen.append((interrupt.requested, interrupt.terminated))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [(when != "after",) * 2]


def test_the_main_thread_gets_its_signals_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_passed_on", [])
    with Interrupt() as interrupt:
        pass_on(signal.SIGTERM)
        assert not interrupt.requested
