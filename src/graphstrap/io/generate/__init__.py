"""Graphs that are made, not measured: every number that comes from one is a number of a synthetic graph."""

from __future__ import annotations

from graphstrap.io.generate.arxiv import arxiv_like
from graphstrap.io.generate.mag import mag

__all__ = ["arxiv_like", "mag"]
