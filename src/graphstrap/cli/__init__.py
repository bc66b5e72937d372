"""The command line: one file per verb. Results go to stdout, progress to stderr; bad input gives exit code 2 and one
sentence."""

from __future__ import annotations

from graphstrap.cli._app import run as main

__all__ = ["main"]
