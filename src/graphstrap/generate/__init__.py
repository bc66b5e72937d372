"""Graphs that are made, not measured: every number that comes from one is a number of a synthetic graph."""

from __future__ import annotations

from graphstrap.generate.mag import mag

__all__ = ["mag"]
