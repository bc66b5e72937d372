"""The command line: one file per verb. Results on stdout, progress on stderr, exit code 2 and one sentence for bad
input."""

from __future__ import annotations

import sys

from graphstrap.cli._app import run


def main() -> None:
    """Entry point of the `graphstrap` command."""
    sys.exit(run())
