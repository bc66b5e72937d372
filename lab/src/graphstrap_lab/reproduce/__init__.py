"""Every table of the paper, by one command: what to run, what was run, and the paper's number beside ours."""

from __future__ import annotations
