"""Signals are noticed, not obeyed, until the step is finished."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import graphstrap.train.console as module
from graphstrap.train.console import Interrupt, pass_on


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
    monkeypatch.setattr(module, "_passed_on", [])
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
    monkeypatch.setattr(module, "_passed_on", [])
    with Interrupt() as interrupt:
        pass_on(signal.SIGTERM)
        assert not interrupt.requested
