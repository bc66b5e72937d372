"""The code blocks of a page, made to run: on small tables, with few steps."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np

from graphstrap.cli._app import run

ROOT = Path(__file__).parent.parent
FEW_STEPS = "BGRL(seed=0, settings={'train.steps': 5})"


def code_blocks(page: Path) -> list[tuple[str, str]]:
    """(language, code) of every block; the language of a bare one is ``."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def run_python(page: Path) -> list[dict[str, object]]:
    """Run each Python block by itself; the names that each leaves."""
    left = []
    for language, code in code_blocks(page):
        if language == "python":
            fast = code.replace('gs.load("stdlib")', 'gs.load("digits")').replace("BGRL(seed=0)", FEW_STEPS)
            names: dict[str, object] = {}
            exec(compile(fast, page.name, "exec"), names)
            left.append(names)
    return left


def commands(page: Path, *, language: str = "sh") -> list[list[str]]:
    """The `graphstrap` commands of a page, as words."""
    lines = [line for kind, code in code_blocks(page) if kind == language for line in code.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("graphstrap")]


def run_commands(page: Path) -> int:
    """Run each command of a page, one after the other; how many there were."""
    found = commands(page)
    for command in found:
        words = [re.sub(r"^train\.steps=\d+$", "train.steps=5", word) for word in command[1:]]
        few = ["--set", "train.steps=5"] if command[1] == "fit" and "train.steps=5" not in words else []
        quiet = ["--quiet"] if command[1] == "fit" else []
        assert run([*words, *few, *quiet]) == 0, command
    return len(found)


def make_user_tables(folder: Path) -> None:
    """The tables that the pages speak of."""
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
