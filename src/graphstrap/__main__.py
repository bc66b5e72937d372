"""`python -m graphstrap`."""

from __future__ import annotations

from graphstrap.cli import main

main()
