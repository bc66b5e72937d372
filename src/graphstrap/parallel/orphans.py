"""A worker ends with the process that started it: nobody else would start it again, and it would hold the run folder's
lock against whoever goes on with the run. One that has only lost another ends after it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

PARENT = "GRAPHSTRAP_PARENT"
_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 15.0


def end_with_parent() -> None:
    """On Linux, where the parent has left its number in the environment: be killed when it dies."""
    parent = os.environ.pop(PARENT, None)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != parent:  # it died before
        os.kill(os.getpid(), signal.SIGKILL)


def leave_to_launcher() -> None:
    """Wait to be ended by the launcher. It takes the first worker that ends for the one that failed, and that one,
    which knows why, may be slower to end than those that it left."""
    with suppress(KeyboardInterrupt):
        time.sleep(_GRACE_SECONDS)
