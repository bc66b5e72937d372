"""Forks of a process that has imported PyTorch and Graphstrap and does nothing else: to import them takes longer than
most tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import torch

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["graphstrap.cli._app", "graphstrap.report.build", "torch.distributed.nn", "scipy.sparse", "duckdb", "pytest"]
)


def exit_code_of(function: Callable[..., int], *arguments: Any, seconds: float = 120.0) -> int:
    """What a function of some module returns in a process with one thread; -9 where that was killed, as after so many
    seconds."""
    process = CONTEXT.Process(target=_call, args=(dict(os.environ), function, arguments))
    process.start()
    process.join(timeout=seconds)
    process.kill()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _call(environment: dict[str, str], function: Callable[..., int], arguments: tuple[Any, ...]) -> None:
    os.environ |= environment
    torch.set_num_threads(1)
    sys.exit(function(*arguments))
