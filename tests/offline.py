"""Data and cache folders of a test's own, and no way out of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest


def make_folders(parent: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders `data` and, once something is kept, `cache`; every connection is refused."""
    monkeypatch.setenv("GRAPHSTRAP_DATA", str(parent / "data"))
    monkeypatch.setenv("GRAPHSTRAP_CACHE", str(parent / "cache"))
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("no_proxy", "")
    (parent / "data").mkdir()
    return parent
