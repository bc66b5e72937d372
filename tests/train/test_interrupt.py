"""Signals are noticed, not obeyed, until the step is finished."""

from __future__ import annotations

import os
import signal

import pytest

from graphstrap.train.interrupt import Interrupt


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
