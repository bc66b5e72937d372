"""InputError: what the user gave cannot be used, and the message says what to do about it."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input from the user. One sentence or two: which file, row, column or key, and the fix.

    The command line prints it and ends with exit code 2; in Python it is a ValueError.
    """


class UnknownNodesError(InputError):
    """Edges name nodes that the nodes table does not have."""
