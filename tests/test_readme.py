"""Every code block of the README runs: Python as it stands, shell commands through the command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from graphstrap.cli._app import run

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def make_user_tables(folder: Path) -> None:
    """The tables that the README speaks of."""
    random = np.random.default_rng(0)
    for name, first, count in (("", 0, 200), ("new_", 200, 20)):
        people = [f"u{i}" for i in range(first, first + count)]
        group = np.arange(first, first + count) % 2
        rows = [
            f"{person},{random.normal() + g:.3f},{random.normal() - g:.3f},{'' if i % 4 == 0 else ('fraud', 'fine')[g]}"
            for i, (person, g) in enumerate(zip(people, group, strict=True))
        ]
        (folder / f"{name}nodes.csv").write_text("\n".join(["id,amount,age,label", *rows]) + "\n")
        pairs = [
            (p, people[random.integers(count // 2) * 2 + group[i]]) for i, p in enumerate(people) for _ in range(4)
        ]
        (folder / f"{name}edges.csv").write_text("\n".join(["source,target", *(f"{a},{b}" for a, b in pairs)]) + "\n")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_user_tables(tmp_path)
    return tmp_path


def test_python_blocks_run(workplace: Path) -> None:
    blocks = [code for language, code in BLOCKS if language == "python"]
    assert blocks
    for code in blocks:
        fast = code.replace('gs.load("stdlib")', 'gs.load("digits")').replace(
            "BGRL(seed=0)", "BGRL(seed=0, settings={'train.steps': 20})"
        )
        names: dict[str, object] = {}
        exec(compile(fast, "README.md", "exec"), names)
        assert names["h"].shape == (1797, 256)  # type: ignore[attr-defined]


def test_shell_blocks_run(workplace: Path) -> None:
    lines = [line for language, code in BLOCKS if language == "sh" for line in code.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("graphstrap")]
    assert len(commands) >= 6
    for command in commands:
        extra = ["--set", "train.steps=20", "--quiet"] if command[1] == "fit" else []
        assert run([*command[1:], *extra]) == 0, command


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"make (\w[\w-]*)", README.read_text(encoding="utf-8")):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_file_map_names_every_part_of_the_package() -> None:
    text = README.read_text(encoding="utf-8")
    package = README.parent / "src" / "graphstrap"
    parts = [
        p
        for p in package.iterdir()
        if (p.suffix == ".py" and not p.name.startswith("__")) or (p / "__init__.py").exists()
    ]
    missing = [p.name for p in parts if p.name not in text]
    assert not missing, missing
