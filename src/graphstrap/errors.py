"""The exceptions that callers may catch. InputError: the input cannot be used, and the message says what to do."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input from the user. One sentence or two: which file, row, column or key, and the fix.

    The command line prints it and ends with exit code 2; in Python it is a ValueError.
    """


class UnknownNodesError(InputError):
    """Edges name nodes that the nodes table does not have."""


class DivergedError(Exception):
    """The loss is no longer a number. The last checkpoint is from before."""


class InterruptedTrainingError(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped training, which saved first if it has a run folder.

    It is a KeyboardInterrupt: code that catches every Exception and goes on does not catch this one.
    """

    def __init__(self, step: int, *, terminated: bool = False) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step
        self.exit_code = 0 if terminated else 130  # a scheduler's SIGTERM is no failure: the run is saved


class LostWorkerError(RuntimeError):
    """Another worker has ended or cannot be reached; its own message says why."""
