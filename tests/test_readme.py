"""Every code block of the README runs: Python as it stands, shell commands through the command line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from code_blocks import ROOT, make_user_tables, run_commands, run_python

README = ROOT / "README.md"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_user_tables(tmp_path)
    return tmp_path


def test_python_blocks_run(workplace: Path) -> None:
    blocks = run_python(README)
    assert blocks
    for names in blocks:
        h = names["h"]
        assert isinstance(h, np.ndarray)
        assert h.shape == (1797, 256 + 4 * 64)  # with columns of own features, and of their averages over three hops


def test_shell_blocks_run(workplace: Path) -> None:
    assert run_commands(README) >= 6


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"make (\w[\w-]*)", README.read_text(encoding="utf-8")):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_file_map_names_every_part_of_the_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    package = README.parent / "src" / "graphstrap"
    parts = [
        p
        for p in package.iterdir()
        if (p.suffix == ".py" and not p.name.startswith("__")) or (p / "__init__.py").exists()
    ]
    missing = [p.name for p in parts if p.name not in text]
    assert not missing, missing
